"""The worker's end of the socket to its supervisor: reports its leases, and carries out the supervisor's orders.

A lease is reported right after it was taken, before its handler starts: the handler may hold the interpreter from its
first moment on. The parent reports which leases it renewed, so that the worker knows how long it may go on. When the
parent does not renew (it is gone, stopped, or in trouble itself), the worker's heart does, from its thread. When the
socket closes the parent is gone: the worker stops as at a stop order, and `process_end` makes sure that the process
ends.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta

from taskharbor.model.clock import Clock
from taskharbor.model.errors import DriverError, JobNotFound, JobNotInflight, LeaseExpired, LeaseMismatch
from taskharbor.model.lease import Lease, Reserved
from taskharbor.model.progress import Progress
from taskharbor.policy.losses import is_suspect
from taskharbor.worker.delivery import Delivery
from taskharbor.worker.heart import LoopWatch, OnLost, ThreadHeart, overdue
from taskharbor.worker.losses import Losses
from taskharbor.worker.outage import RenewalGate
from taskharbor.worker.parts import Part, WorkerParts
from taskharbor.worker.progress_notes import ProgressNotes, written
from taskharbor.worker.supervisor import messages
from taskharbor.worker.worker import Worker

logger = logging.getLogger("taskharbor.worker")

TICK_INTERVAL_S = 1.0  # between two heartbeats to the parent
LOST_ERRORS = {error.__name__: error for error in (JobNotFound, JobNotInflight, LeaseMismatch, LeaseExpired)}


class ChildChannel:
    """One for each worker process; `attach` it to the worker before that runs."""

    def __init__(
        self,
        connection: socket.socket,
        received: Iterable[bytes],
        max_jobs: int | None = None,
        orphaned: Callable[[threading.Event], None] = lambda left: None,
    ) -> None:
        self.dsn: str | None = None  # None: no other process can reach the store
        self.abilities: messages.Abilities | None = None
        self.jobs_left = max_jobs  # how many jobs the worker may still take; None: any number
        self.suspect: messages.TakenLease | None = None  # the one job that this process is to run
        self.ready = False
        self._schedules = False  # whether the app declares schedules
        self._unreported = False  # they are stored, and the parent does not know it
        self._connection = connection
        self._received = received  # lines of JSON
        self._lock = threading.Lock()
        self._unsent = b""  # the rest of a message that the parent has not read yet
        self._missed = False  # a message was dropped meanwhile: the full state has to be sent again
        self._worker: Worker | None = None
        self._handover: Handover | None = None
        self._heart: _SupervisedHeart | None = None
        self.parent_renews: bool | None = None  # None: it has not reported that yet
        self._early: list[str] = []  # orders that arrived before there was a worker
        self._held: dict[str, Delivery] = {}
        self._reported: dict[str, messages.TakenLease] = {}
        self._fresh: set[str] = set()  # reported, and not yet in `held`
        self.notes: ProgressNotes | None = None  # None: the store keeps no progress
        self._sent_progress: dict[str, Progress] = {}  # what was last sent of each job's progress, by token
        self._on_lost: OnLost | None = None
        self._serve = threading.Event()  # a spare may serve, or has to end
        self._orphan = False  # the parent is gone: nothing that is sent arrives
        self._left = threading.Event()  # the worker has stopped serving
        self._orphaned = orphaned  # called in a thread when the parent is gone

    def listen(self) -> None:
        """Receive messages of the parent from now on, in a thread: also while the worker's loop is blocked."""
        threading.Thread(target=self._listen, name="taskharbor-channel", daemon=True).start()

    def wait(self) -> None:
        """Wait as a spare, until the order to serve or to end arrives, or the parent is gone."""
        self._send(messages.Waiting())
        self._serve.wait()

    def attach(self, worker: Worker) -> None:
        """Serve this worker. Orders that arrived before are carried out first."""
        worker._channel = self
        with self._lock:
            self._worker = worker
            early, self._early = self._early, []
        for what in early:
            worker._order(what)

    def fail(self, text: str, code: int) -> None:
        """Report why this process cannot start."""
        self._send(messages.StartFailed(text, code))

    def declared(self) -> None:
        """Report that the schedules of the app are stored; with the next heartbeat, if the parent does not read now."""
        self._unreported = not self._send(messages.Declared())

    def leave(self) -> None:
        """Report that the worker has stopped serving: the process is about to exit, or its parent ends it."""
        self._left.set()
        self._send(messages.StoppedServing())

    # What the services use ------------------------------------------------------------------------------------

    def hand_over(self, parts: WorkerParts, losses: Losses) -> Callable[[datetime, int], Awaitable[list[Reserved]]]:
        """The way in which the fetcher reserves: it reports what it took to the parent before a job of it runs."""
        self._schedules = parts.settings.schedules and bool(parts.handlers.schedules) and self.suspect is None
        self._handover = Handover(parts, losses, self)
        return self._handover.reserve

    def heart(self, parts: WorkerParts, gate: RenewalGate, on_lost: OnLost, watch: LoopWatch) -> ThreadHeart:
        """A heart that renews nothing as long as the parent does."""
        self._held, self._on_lost, self.notes = parts.held, on_lost, parts.notes
        self._heart = _SupervisedHeart(parts, gate, on_lost, watch, self)
        self._send(messages.Ready(parts.settings.name, self.dsn, self.abilities, self._schedules))
        self.ready = True
        return self._heart

    @property
    def hands_on(self) -> bool:
        """Whether the parent can let another process run a suspect."""
        return self.dsn is not None and not self._orphan

    def hand_on(self, lease: messages.TakenLease) -> bool:
        """Leave a job to another process; return whether the parent was reached, which renews its lease from now on."""
        return self._send(messages.SuspectTaken(lease))

    def tokens(self) -> list[str]:
        """The tokens of the leases that this worker holds, or held a moment ago."""
        with self._lock:
            return [*self._reported]

    def deliveries_exist(self) -> None:
        """Everything that was reported before is in `held` by now, or already settled."""
        with self._lock:
            self._fresh.clear()

    def taken(self, leases: Sequence[messages.TakenLease]) -> None:
        """Report leases that the worker has taken."""
        with self._lock:
            for each in leases:
                self._reported[each.lease.token] = each
                self._fresh.add(each.lease.token)
        if self.jobs_left is not None:
            self.jobs_left -= len(leases)
            if self.jobs_left <= 0:
                self._order("retire")
        self._send(messages.Taken(list(leases), self._gone()))

    def tick(self, clock: Clock) -> None:
        """Send a heartbeat with released leases and the remaining run time of each job."""
        worker = self._worker
        if worker is None:
            return
        if self._unreported:
            self.declared()
        fresh = self._new_progress()
        due, notes = self._due(clock.monotonic()), list(written(fresh).items())
        sent = self._send(messages.Tick(worker.health(), self._gone(), due, notes))
        if sent:
            self._sent_progress.update(fresh)
        elif fresh and self.notes is not None:
            self.notes.gate.waiting = True

    def _new_progress(self) -> dict[str, Progress]:
        """What jobs have reported since it was last sent to the parent; nothing if the parent renews no leases."""
        if self.notes is None or not self.notes.gate.waiting or not self.hands_on:
            return {}
        self.notes.gate.waiting = False
        for token in [token for token in self._sent_progress if token not in self._held]:
            del self._sent_progress[token]
        held = list(self._held.items())
        return {
            token: each.progress for token, each in held if each.progress not in (None, self._sent_progress.get(token))
        }

    def _gone(self) -> list[str]:
        with self._lock:
            gone = [token for token in self._reported if token not in self._held and token not in self._fresh]
            for token in gone:
                del self._reported[token]
        return gone

    def _due(self, now: float) -> list[tuple[str, float]]:
        """How many seconds each job may still run. A job that has not started has its whole timeout."""
        due = []
        for token, delivery in list(self._held.items()):
            reported = self._reported.get(token)
            if delivery.due is not None:
                due.append((token, delivery.due - now))
            elif delivery.task is None and reported is not None and reported.limit is not None:
                due.append((token, reported.limit))
        return due

    # The socket ----------------------------------------------------------------------------------------------

    def _send(self, message: messages.ToParent) -> bool:
        """Send a message without waiting. While the parent does not read, drop it, and send the full state later."""
        with self._lock:
            self._write(b"")
            if self._unsent:
                self._missed = True
                return False
            if self._missed:
                self._missed = False
                held = [each for token, each in self._reported.items() if token in self._held or token in self._fresh]
                self._write(messages.line(messages.Taken(held, [], all=True)))
            self._write(messages.line(message))
            return True

    def _write(self, data: bytes) -> None:
        data = self._unsent + data
        try:
            while data:
                data = data[self._connection.send(data, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            pass
        except OSError:
            data = b""  # the parent is gone; the receiving thread notices that, too
        self._unsent = data

    def _listen(self) -> None:
        try:
            for line in self._received:
                self._receive(messages.read_by_child(line))
        except OSError:
            pass
        self._orphan = True
        self._order("stop")  # before the line is logged: a job enqueued after it is not taken
        logger.warning("the supervising process is gone: this worker stops")
        self._orphaned(self._left)

    def _receive(self, message: messages.ToChild) -> None:
        if isinstance(message, messages.Kept):
            self._kept(message)
        elif isinstance(message, messages.Keeping):
            self.parent_renews = message.renews
            if self._heart is not None:
                self._heart.note_connection()
        elif isinstance(message, messages.Serve):
            self.suspect = message.suspect
            self._serve.set()
        elif isinstance(message, messages.Release):
            if self._handover is not None and not self._handover.loop.is_closed():
                asyncio.run_coroutine_threadsafe(self._handover.release(message.keep), self._handover.loop)
        else:
            self._order(message.what)

    def _order(self, what: str) -> None:
        with self._lock:
            worker = self._worker
            if worker is None:
                self._early.append(what)
                self._serve.set()
        if worker is not None:
            worker._order(what)

    def _kept(self, message: messages.Kept) -> None:
        for lease in message.renewed:
            delivery = self._held.get(lease.token)
            if delivery is not None:
                delivery.lease = lease
                delivery.unrenewed = False
        if message.renewed and self._heart is not None:
            self._heart.gate.update(renewing=True)
        for token, name, text in message.lost:
            delivery = self._held.get(token)
            if delivery is not None and not delivery.decided and self._on_lost is not None:
                self._on_lost(delivery, LOST_ERRORS.get(name, DriverError)(text))


class Handover(Part):
    """How a worker process reserves: it reports what it took to the parent before a job of it runs.

    A suspect is handed on instead of run, so that it has a process of its own:

        reserve ──suspect──► SuspectTaken to the parent ──► another process: extend, inspect, run it as if reserved
                                                             there └── dies ──► Release to this worker: give it back

    In the store the lease stays this worker's: `release` gives back the leases of one worker. So when the other process
    dies, this worker releases what it no longer holds itself. No other process knows which leases those are, because a
    reserve of this worker may be under way.
    """

    def __init__(self, parts: WorkerParts, losses: Losses, channel: ChildChannel) -> None:
        super().__init__(parts)
        self._losses = losses
        self._channel = channel
        self._lock = asyncio.Lock()  # no release while a reserve is under way
        self.loop = asyncio.get_running_loop()

    async def reserve(self, now: datetime, limit: int) -> list[Reserved]:
        """Reserve jobs; return those that this process is to run."""
        async with self._lock:
            self._channel.deliveries_exist()
            if self._channel.suspect is not None:
                return await self._take()
            left = self._channel.jobs_left
            if left == 0:
                return []  # this process retires
            if left is not None:
                limit = min(limit, left)
            while True:
                batch = await self._losses.reserve(now, limit)
                if not batch:
                    return batch
                # This process may have been stopped meanwhile: an expired lease may be another worker's by now.
                now = self._clock.now()
                fresh = [reserved for reserved in batch if reserved.lease.expires_at > now]
                own = [reserved for reserved in fresh if not (reserved.job.lost and self._hand_on(reserved))]
                self._channel.taken([self._taken(reserved) for reserved in own])
                if own or not fresh:
                    return own

    async def release(self, keep: Collection[str]) -> None:
        """Give back what this worker took and no longer holds, except what other processes hold for it (`keep`)."""
        async with self._lock:
            try:
                await self._driver.release(self._worker, self._clock.now(), [*self._channel.tokens(), *keep])
            except Exception as error:  # nothing renews it: another worker takes it over when its lease ends
                logger.warning("what was handed on could not be given back: %s", type(error).__name__)

    def _hand_on(self, reserved: Reserved) -> bool:
        job, max_lost = reserved.job, self._settings.max_lost
        if not self._channel.hands_on or not is_suspect(job, max_lost) or job.lost >= max_lost:
            return False
        if self._handlers.get(job.type) is None:
            return False  # no process here can run it
        return self._channel.hand_on(self._taken(reserved))

    async def _take(self) -> list[Reserved]:
        """The one job that this process is to run, as if it had been reserved here; nothing if its lease is gone."""
        handed = self._channel.suspect
        assert handed is not None
        [extended] = await self._driver.extend([handed.lease], self._clock.now(), self._settings.lease)
        batch = []
        if isinstance(extended, Lease):
            job = (await self._driver.inspect(handed.lease.job_id, self._clock.now())).job
            taken = Reserved(job, extended, handed.lost_by)
            batch = await self._losses.weigh([taken])
        self._channel.suspect = None  # this process has nothing more to do: it retires
        self._channel.jobs_left = len(batch)
        self._channel.taken([self._taken(reserved) for reserved in batch])
        return batch

    def _taken(self, reserved: Reserved) -> messages.TakenLease:
        job, handler = reserved.job, self._handlers.get(reserved.job.type)
        timeout = job.timeout or (handler.timeout if handler is not None else None)
        limit = None if timeout is None else timeout.total_seconds()
        return messages.TakenLease(reserved.lease, job.attempts, limit, reserved.lost_by)


class _SupervisedHeart(ThreadHeart):
    """Sends heartbeats to the parent, and renews leases itself only if the parent does not."""

    def __init__(
        self, parts: WorkerParts, gate: RenewalGate, on_lost: OnLost, watch: LoopWatch, channel: ChildChannel
    ) -> None:
        super().__init__(parts, gate, on_lost, watch)
        self._channel = channel
        self._pause = min(TICK_INTERVAL_S, self._every / 2)
        self._neglect = (parts.settings.lease - timedelta(seconds=self._every)) / 2

    def note_connection(self) -> None:
        self.gate.update(connected=bool(self._channel.parent_renews) or self._opened)

    async def keep(self) -> None:
        """Do all at once: a store that does not answer must not silence the heartbeats."""
        await asyncio.gather(self._tick(), self._open_if_needed(), self._beat_if_needed())

    async def _tick(self) -> None:
        while True:
            self._channel.tick(self._clock)
            await asyncio.sleep(self._pause)

    async def _open_if_needed(self) -> None:
        channel = self._channel
        while (  # noqa: ASYNC110 - that a lease is neglected is seen by looking
            channel.hands_on and channel.parent_renews is not False and not self._neglected()
        ):
            await asyncio.sleep(self._pause)
        await self._open()

    async def _beat_if_needed(self) -> None:
        notes = self._notes
        while True:
            await asyncio.sleep(self._pause)
            if self._neglected() or not self.gate.renewing:
                await self.beat()
            elif notes is not None and notes.gate.waiting and not self._channel.hands_on:
                await self.store_notes()

    def _neglected(self) -> bool:
        now, moment = self._clock.now(), self._clock.monotonic()
        return any(
            delivery.lease.expires_at - now < self._neglect and not overdue(delivery, moment)
            for delivery in list(self._held.values())
        )
