"""The supervisor: starts worker processes, handles signals, reaps what has ended, and ends all processes in order.

    serving ──TERM, INT, HUP──► draining ──again, or the grace period is over──► hurried ──again, or 4 s──► killed
       │                            └────── every process is gone ──────┴──► what is left is given back ──► exit 0
       └──QUIT──► hurried

It can run as process 1 of a container: it handles every signal that it needs, and reaps every orphan.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from taskharbor.model import process_events as events
from taskharbor.model.clock import StoreClock
from taskharbor.model.events import Observers
from taskharbor.worker.settings import SupervisorSettings
from taskharbor.worker.supervisor import memory, messages
from taskharbor.worker.supervisor.heart import FleetHeart
from taskharbor.worker.supervisor.probes import HealthReport, Probes, Unusable, describe
from taskharbor.worker.supervisor.process import Process
from taskharbor.worker.supervisor.roles import Declarations, RestartLoop, Spare, Suspects
from taskharbor.worker.supervisor.signals import SupervisorSignals
from taskharbor.worker.supervisor.source_watch import SourceWatch

ECHO_S = 0.05  # the same signal again within this time was sent once; nobody presses Ctrl-C as quickly
CHECK_INTERVAL_S = 1.0
SILENT_AFTER_S = 5.0  # without a heartbeat, after which that is reported
STOP_PROMISE_S = 14.5  # a stop takes at most this long beyond the grace period; docs/operations.md says 15. Of these:
SETTLE_S = 5.0  # beyond the grace period, for a worker to write its last outcomes before it is hurried
HURRY_S = 4.0  # until a hurried worker is killed
RETURN_S = 3.0  # for giving leases back at the very end, if the store does not answer
CLOSE_S = 1.0  # for closing the connection to a store that does not answer
MAX_JOBS_SHOWN = 10  # of a silent process


class Supervisor:
    """Runs worker processes until a signal ends it.

    `complain` prints one line for the person who started it. `on_store` is called with the address of the store when
    the first process that uses it is ready, `on_abilities` with what worker processes can run whenever that has
    changed, and `on_end` when the end begins, with the seconds that it may take and the exit code.
    """

    def __init__(
        self,
        settings: SupervisorSettings,
        setup: messages.Setup,
        command: Sequence[str],
        complain: Callable[[str], None],
        *,
        observers: Observers,
        on_store: Callable[[str], None] | None = None,
        on_abilities: Callable[[messages.Abilities], None] = lambda abilities: None,
        on_end: Callable[[float, int], None] = lambda seconds, code: None,
    ) -> None:
        self._settings = settings
        self._setup = setup
        self._command = tuple(command)
        self._complain = complain
        self._emit = observers.emit
        self._observers = observers
        self._on_store = on_store
        self._on_abilities = on_abilities
        self._on_end = on_end
        self._abilities: messages.Abilities | None = None
        self._clock = StoreClock()
        self._fleet: dict[int, Process] = {}  # by process id
        self._heart: FleetHeart | None = None
        self._served = False  # some process was ready once: the command line is right
        self._code = 0
        self._signals = 0
        self._echoing: dict[signal.Signals, asyncio.TimerHandle] = {}  # signals whose repetition counts as the same
        self._background: set[asyncio.Task[None]] = set()  # what the end waits for
        self._declarations = Declarations(self._fleet.values)
        self._spare = Spare(self._start_spare)
        self._suspects = Suspects(self._start_waiting, lambda: self._heart, settings.processes, observers)
        self._ending, self._changed = asyncio.Event(), asyncio.Event()
        self._restart_loops = [
            RestartLoop(number, self._clock, self._start, observers) for number in range(settings.processes)
        ]

    def run(self) -> int:
        """Run until a signal ends it, and return the exit code. No signal changes that afterwards."""
        signals = SupervisorSignals(
            self._on_signal, self._reap, lambda number: self._emit(events.SignalIgnored(number.name))
        )
        signals.take()
        try:
            return asyncio.run(self._main(signals))
        finally:
            signals.end()

    async def _main(self, signals: SupervisorSignals) -> int:
        signals.attach(asyncio.get_running_loop())
        probes = Probes(self._report, self._settings)
        try:
            await probes.start()
        except Unusable as error:
            self._complain(str(error))
            return 2
        running = [asyncio.create_task(each.run()) for each in self._restart_loops]
        watching = asyncio.create_task(self._watch(probes))
        ended = asyncio.ensure_future(self._ending.wait())
        try:
            await asyncio.wait((ended, watching, *running), return_when=asyncio.FIRST_COMPLETED)
            await self._end()
        finally:
            for number in list(self._echoing):
                self._report_signal(number)
            for task in (ended, watching, *running):
                task.cancel()
            outcomes = await asyncio.gather(watching, *running, return_exceptions=True)
            await probes.stop()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        return self._code

    # Starting ------------------------------------------------------------------------------------------------

    async def _start(self, number: int) -> Process:
        process = self._spare.take()
        if process is not None:
            process.number = number
            return process
        return await self._launch(self._process(number), self._setup)

    async def _start_waiting(self) -> Process:
        """A process that waits for its order: the spare if there is one."""
        return self._spare.give() or await self._start_spare()

    async def _start_spare(self) -> Process:
        process = self._process(0)
        process.state = "spare"
        return await self._launch(process, msgspec.structs.replace(self._setup, waits=True))

    def _process(self, number: int) -> Process:
        return Process(number, self._clock, self._settings.max_jobs, self._on_message)

    async def _launch(self, process: Process, setup: messages.Setup) -> Process:
        try:
            await process.connect(setup)
            process.spawn(self._command)
        except OSError as error:
            self._emit(events.ProcessNotStarted(process.number, error))
            process.not_started()
            await process.finish()
            return process
        self._fleet[process.pid] = process  # without an await in between: it may end before anything else happens here
        if self._ending.is_set():
            process.stop()
        return process

    def _on_message(self, process: Process, message: messages.ToParent) -> None:
        if isinstance(message, messages.Ready):
            self._on_ready(process, message)
        elif isinstance(message, messages.Declared):
            self._declarations.stored(process)
        elif isinstance(message, messages.Waiting):
            self._emit(events.ProcessWaiting(process.pid))
        elif isinstance(message, messages.SuspectTaken):
            self._in_background(self._suspects.take(process, message.lease, ending=self._ending.is_set()))
        elif isinstance(message, messages.Tick) and message.notes and self._heart is not None:
            self._heart.notes.signal()

    def _on_ready(self, process: Process, ready: messages.Ready) -> None:
        self._served = True
        self._restart_loops[process.number].waits_for_change = False
        if self._heart is None and ready.dsn is not None:
            worker = self._settings.worker
            self._heart = FleetHeart(
                ready.dsn,
                self._fleet.values,
                lease=worker.lease,
                every=worker.heartbeat,
                observers=self._observers,
                held_elsewhere=self._suspects.tokens,
            )
            if self._on_store is not None:
                self._on_store(ready.dsn)
        if self._heart is not None and self._heart.renews is not None:
            process.send(messages.Keeping(self._heart.renews))
        if ready.abilities is not None and ready.abilities != self._abilities:
            self._abilities = ready.abilities
            self._on_abilities(ready.abilities)
        self._emit(events.ProcessStarted(process.pid, process.number, ready.worker))
        self._declarations.ready(process)

    # Signals -------------------------------------------------------------------------------------------------

    def _on_signal(self, number: signal.Signals) -> None:
        """Stop, or hurry. The same signal again within a moment does not count as a second one: `timeout`, and others
        that pass signals on, send it to us and to our group. It is reported when that moment is over."""
        if number in self._echoing:
            return
        self._signals = max(self._signals + 1, 2 if number is signal.SIGQUIT else 1)
        self._ending.set()
        self._changed.set()
        self._echoing[number] = asyncio.get_running_loop().call_later(ECHO_S, self._report_signal, number)

    def _report_signal(self, number: signal.Signals) -> None:
        self._echoing.pop(number).cancel()
        self._emit(events.SupervisorStopping(number.name))

    def _reap(self) -> None:
        """Handle every child that ended, stopped or continued; also those that are ours because we are process 1."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            process = self._fleet.get(pid)
            if process is None:
                continue
            if os.WIFSTOPPED(status):
                process.stopped = True
                self._emit(events.ProcessStopped(pid, process.number))
            elif os.WIFCONTINUED(status):
                process.stopped = False
                self._emit(events.ProcessContinued(pid, process.number))
            else:
                del self._fleet[pid]
                process.ended(os.waitstatus_to_exitcode(status))
                self._in_background(self._on_gone(process))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside everything else; the end waits for it."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _on_gone(self, process: Process) -> None:
        await process.finish()
        if process.failure is not None:
            self._on_failure(process, process.failure)
        if process is self._spare.process:
            self._spare.died(self._clock.monotonic())
            if not process.is_asked_to_end:
                self._emit(events.SpareDied(process.pid, process.cause))
        process.state = "gone"
        process.gone.set()
        self._changed.set()
        self._declarations.gone(process)
        if process in self._suspects:
            await self._suspects.gone(process)
        if self._heart is not None:
            await self._heart.recover(process)

    def _on_failure(self, process: Process, failure: messages.StartFailed) -> None:
        if process in self._suspects:
            self._complain(failure.text)
        elif self._settings.reload is not None:
            self._restart_loops[process.number].waits_for_change = True
            self._complain(failure.text)
        elif self._served:
            self._complain(failure.text)  # it could start before: a file may be half written, a deploy half done
        elif not self._ending.is_set():  # starting it again would not help
            self._complain(failure.text)
            self._code = failure.code
            self._ending.set()

    # Watching ------------------------------------------------------------------------------------------------

    async def _watch(self, probes: Probes) -> None:
        sources = SourceWatch(self._settings.reload) if self._settings.reload is not None else None
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            self._reap()
            now = self._clock.monotonic()
            for process in list(self._fleet.values()):
                self._check(process, now)
            path = await asyncio.to_thread(sources.changed) if sources is not None else None
            if path is not None and not self._ending.is_set():
                self._emit(events.SourcesChanged(path))
                self._declarations.changed()
                for each in self._restart_loops:
                    each.restart()
            # Without a store from which our heart can give jobs back, a quick replacement would win nothing.
            if self._settings.spare and sources is None and self._heart is not None and not self._ending.is_set():
                await self._spare.keep(self._restart_loops, now)
            await probes.write()

    def _check(self, process: Process, now: float) -> None:
        process.check()
        if process.lingers(now):
            self._emit(events.ProcessKilled(process.pid, process.number, "it had stopped, and did not exit"))
            process.kill()
            return
        silent = now - process.heard_at
        if silent > SILENT_AFTER_S and process.ready.is_set() and not process.stopped and not process.silence_reported:
            process.silence_reported = True
            jobs = tuple(held.lease.job_id for held in list(process.leases.values())[:MAX_JOBS_SHOWN])
            self._emit(events.ProcessSilent(process.pid, process.number, round(silent, 1), jobs))
        limit = self._settings.max_memory
        # A process that has taken no job yet is as small as it can be: replacing it would go on for ever.
        if limit is not None and process.taken and process.state == "running" and memory.used(process.pid) > limit:
            process.tire(f"{limit} bytes of memory")
        if process.stuck and process.state == "running":
            process.tire("every slot is held by a handler that does not end")

    def _report(self) -> HealthReport:
        serving = [
            process
            for process in self._fleet.values()
            if process is not self._spare.process and process not in self._suspects
        ]
        return describe(
            self._restart_loops, serving, self._clock.monotonic(), self._settings.health_within, self._ending.is_set()
        )

    # Ending --------------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        """Drain, hurry, kill; then give back what is left."""
        self._ending.set()
        grace = self._settings.worker.shutdown_timeout
        self._on_end(grace + STOP_PROMISE_S, self._code)
        for each in self._restart_loops:
            each.close()
        for process in self._fleet.values():
            process.stop()
        if not await self._gone_within(grace + SETTLE_S, signals=1):
            for process in self._fleet.values():
                process.stop(hurry=True)
            await self._gone_within(HURRY_S, signals=2)
        for process in self._fleet.values():
            self._emit(events.ProcessKilled(process.pid, process.number, "it did not stop in time"))
            process.kill()
        begun = self._clock.monotonic()
        await self._gone_within(RETURN_S)  # a process that the kernel holds up cannot be killed: it is left behind
        if self._heart is not None:
            self._heart.end()
        if self._background:
            await asyncio.wait(self._background, timeout=max(0.0, begun + RETURN_S - self._clock.monotonic()))
        last = set(self._background)
        for task in last:
            task.cancel()
        if self._heart is not None:
            last.add(asyncio.create_task(self._heart.stop()))
        if last:
            await asyncio.wait(last, timeout=CLOSE_S)

    async def _gone_within(self, seconds: float, *, signals: float = math.inf) -> bool:
        """Whether every process ended before the time was over or a further signal arrived."""
        try:
            async with asyncio.timeout(seconds):
                while self._fleet and self._signals <= signals:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        return not self._fleet
