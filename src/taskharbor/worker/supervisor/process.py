"""One worker process as its parent sees it: started afresh, connected by a socket, ended by its process id.

    spare ──Serve──► starting ──Ready──► running ──retire──► retiring ──► gone
      └─────────────────┴──────────────────┴──stop──► stopping ─────────► gone    killed, or died by itself: from any

Each has a session of its own, so that Ctrl-C reaches the parent alone, and what a crashed process leaves behind
(children that run its jobs) can be ended before other workers get the jobs. A process that has stopped serving
(`StoppedServing`) and does not exit is killed after a few seconds: a thread of the application, or an atexit function,
holds it up.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence

import msgspec

from taskharbor.model.clock import Clock
from taskharbor.model.lease import Lease, Lost
from taskharbor.model.safe_repr import shown
from taskharbor.worker.health import Health
from taskharbor.worker.heart import OVERDUE_S
from taskharbor.worker.supervisor import messages, process_end

LAST_MESSAGES_S = 0.5  # to read what a dead process had sent; only a stray copy of its socket makes that last
REPLACE_FROM = 0.9  # of --max-jobs: from here on a process is replaced
EXIT_S = 3.0  # for a process to exit after it has stopped serving
MAX_UNREAD_BYTES = 1024 * 1024  # in the buffer of a child that does not read: no more reports are added


class HeldLease(msgspec.Struct):
    """A lease that a worker process holds. `until`: when (monotonic) to stop renewing it; None: never."""

    lease: Lease
    attempts: int
    until: float | None
    lost_by: Lost | None = None  # the execution before, if it was lost
    note: bytes = b""  # progress that waits to be stored

    def __repr__(self) -> str:
        return shown(self, "lease", "attempts", "until")


def held_lease(taken: messages.TakenLease, now: float) -> HeldLease:
    """A lease as its worker reported it."""
    until = None if taken.limit is None else now + taken.limit + OVERDUE_S
    return HeldLease(taken.lease, taken.attempts, until, taken.lost_by)


class Process:
    """A worker process. `ready` (it serves), `tired` (replace it) and `gone` (it has ended) are set once each."""

    def __init__(
        self,
        number: int,
        clock: Clock,
        max_jobs: int | None = None,
        on_message: Callable[[Process, messages.ToParent], None] = lambda process, message: None,
    ) -> None:
        self.number = number
        self.pid = 0
        self.state = "starting"
        self.worker = ""
        self.leases: dict[str, HeldLease] = {}
        self.taken = 0
        self.health: Health | None = None
        self.failure: messages.StartFailed | None = None
        self.code: int | None = None
        self.stopped = False  # by SIGSTOP
        self.killed = False  # by us
        self.is_asked_to_end = False  # it ends on request
        self.why = ""  # why it is replaced
        self.silence_reported = False
        self.elsewhere = False  # its jobs are in a store that the supervisor does not know
        self.left_at: float | None = None  # when it reported that it has stopped serving
        self.on_message = on_message  # called with each message, after it was noted here
        self.schedules = False  # its app declares some
        self.ready, self.tired, self.gone = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._clock = clock
        self._max_jobs = max_jobs
        self.started_at = self.heard_at = clock.monotonic()
        self.polled_at: float | None = None
        self._child_end: socket.socket | None = None  # of the socket, until the program has started
        self._popen: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def connect(self, setup: messages.Setup) -> None:
        """Make the socket and send the setup; `spawn` follows."""
        ours, theirs = socket.socketpair()
        self._child_end = theirs
        ours.setblocking(False)
        reader, self._writer = await asyncio.open_unix_connection(sock=ours, limit=messages.MAX_LINE_BYTES)
        self.send(setup)
        self._reading = asyncio.create_task(self._read(reader))

    def spawn(self, command: Sequence[str]) -> None:
        """Start the program; its last argument is the file descriptor of its end of the socket."""
        assert self._child_end is not None
        with self._child_end as theirs:
            number = theirs.fileno()
            self._popen = subprocess.Popen(
                [*command, str(number)], stdin=subprocess.DEVNULL, pass_fds=(number,), start_new_session=True
            )
        self.pid = self._popen.pid

    def not_started(self) -> None:
        """The system could not start it: treat it as one that died at once."""
        self.code = 1
        self.state = "gone"
        self.gone.set()

    # Orders --------------------------------------------------------------------------------------------------

    def serve(self, suspect: messages.TakenLease | None = None) -> None:
        """Let a spare serve, as if it had been started now. `suspect`: it runs that one job."""
        self.state = "starting"
        self.started_at = self._clock.monotonic()
        self.send(messages.Serve(suspect))

    def retire(self) -> None:
        """Let it take no more jobs, and end when its last one has."""
        self.state, self.is_asked_to_end = "retiring", True
        self.send(messages.ProcessOrder("retire"))

    def stop(self, *, hurry: bool = False) -> None:
        """Let it finish within its grace period and give back the rest; `hurry`: at once."""
        if self.state == "gone":
            return
        self.state, self.is_asked_to_end = "stopping", True
        self.send(messages.ProcessOrder("hurry" if hurry else "stop"))
        if not self.ready.is_set():
            self._signal(signal.SIGTERM)  # it may be busy importing; it holds nothing yet
        if self.stopped:
            self._signal(signal.SIGCONT)  # or it would not receive it

    def kill(self) -> None:
        """Kill it, with everything it started."""
        if self.state != "gone":
            self.killed = self.is_asked_to_end = True
            if self.pid and self.code is None:
                process_end.kill(self.pid)

    def tire(self, why: str) -> None:
        """Have it replaced."""
        if not self.tired.is_set():
            self.why = why
            self.tired.set()

    def kept(self, renewed: list[Lease], lost: list[tuple[str, str, str]]) -> None:
        """Report to it which of its leases were renewed and which are lost."""
        for token, *_ in lost:
            self.leases.pop(token, None)
        if self._writer is not None and self._writer.transport.get_write_buffer_size() < MAX_UNREAD_BYTES:
            self.send(messages.Kept(renewed, lost))

    # Facts ---------------------------------------------------------------------------------------------------

    @property
    def stuck(self) -> bool:
        """Whether a handler that does not end occupies each of its slots, so that it can run nothing."""
        return self.health is not None and 0 < self.health.slots <= self.health.stuck

    @property
    def done(self) -> bool:
        """Whether it exited because it has taken all the jobs that it may take."""
        return self.code == 0 and self.tired.is_set() and not self.is_asked_to_end

    @property
    def cause(self) -> str:
        """How it ended, for the log."""
        code = self.code
        if code is None or code >= 0:
            return f"exit code {code}"
        try:
            return f"signal {signal.Signals(-code).name}"
        except ValueError:
            return f"signal {-code}"

    def lingers(self, now: float) -> bool:
        """Whether it has stopped serving some time ago, and still has not exited."""
        return self.left_at is not None and self.code is None and not self.killed and now - self.left_at > EXIT_S

    def renewable(self, now: float) -> list[HeldLease]:
        """The leases to renew; none of a process that is gone, stopped or elsewhere, nor of a job past its timeout."""
        if self.stopped or self.elsewhere or self.code is not None:
            return []
        return [lease for lease in self.leases.values() if lease.until is None or now < lease.until]

    # Messages, and the end ----------------------------------------------------------------------------------

    def ended(self, code: int) -> None:
        """The kernel reports its end: nothing is renewed from here on. `finish` follows."""
        self.code = code
        if self._popen is not None:
            self._popen.returncode = code
        if self.pid and (not self.is_asked_to_end or self.killed):
            process_end.kill(self.pid)

    async def finish(self) -> None:
        """Read what it had still sent, and close the socket."""
        if self._reading is not None:
            await asyncio.wait((self._reading,), timeout=LAST_MESSAGES_S)
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()

    def check(self) -> None:
        """Raise what ended the reading of its messages, if that was a bug of ours."""
        if self._reading is not None and self._reading.done() and not self._reading.cancelled():
            self._reading.result()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await reader.readline()
            except OSError:
                return
            if not line.endswith(b"\n"):
                return  # it died, perhaps in the middle of a message
            self._receive(messages.read_by_parent(line))

    def _receive(self, message: messages.ToParent) -> None:
        self.heard_at = self._clock.monotonic()
        self.silence_reported = False
        if isinstance(message, messages.Taken):
            self._on_taken(message)
        elif isinstance(message, messages.Tick):
            self._on_tick(message)
        elif isinstance(message, messages.Ready):
            self.worker = message.worker
            self.schedules = message.schedules
            if self.state == "starting":
                self.state = "running"
            self.ready.set()
        elif isinstance(message, messages.StoppedServing | messages.StartFailed):
            self.left_at = self.heard_at
            self.failure = message if isinstance(message, messages.StartFailed) else self.failure
        self.on_message(self, message)

    def _on_taken(self, message: messages.Taken) -> None:
        if message.all:
            self.leases.clear()
        for each in message.leases:
            self.leases[each.lease.token] = held_lease(each, self.heard_at)
        for token in message.gone:
            self.leases.pop(token, None)
        if not message.all:
            self.taken += len(message.leases)
            # The next one starts a little early: after its last job this one takes no more, replaced or not.
            if self._max_jobs is not None and self.taken >= self._max_jobs * REPLACE_FROM:
                self.tire(f"{self.taken} jobs")

    def _on_tick(self, message: messages.Tick) -> None:
        self.health = health = message.health
        for token in message.gone:
            self.leases.pop(token, None)
        for token, seconds in message.due:
            if (lease := self.leases.get(token)) is not None:
                lease.until = self.heard_at + seconds + OVERDUE_S
        for token, note in message.notes:
            if (lease := self.leases.get(token)) is not None:
                lease.note = note
        if health.busy and not health.store_error and not health.blocked_for:
            self.polled_at = self.heard_at
        elif health.polled_seconds_ago is not None:
            self.polled_at = self.heard_at - health.polled_seconds_ago

    def send(self, message: messages.Setup | messages.ToChild) -> None:
        """Send a message, if there is someone to read it."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(messages.line(message))

    def _signal(self, number: signal.Signals) -> None:
        if self.pid and self.code is None:  # else another process may have its id by now
            try:
                os.kill(self.pid, number)
            except (ProcessLookupError, PermissionError):
                return
