"""The supervisor: starts the slots, hears signals, reaps what has ended, and ends them all in order.

    serving ──TERM, INT, HUP──► draining ──again, or the grace period is over──► hurried ──again, or 4 s──► killed
       │                            └────── every process is gone ──────┴──► what is left is given back ──► exit 0
       └──QUIT──► hurried

It is fit to be process 1 of a container: it asks for every signal that it needs, and reaps every orphan.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from taskharbor.model.clock import StoreClock
from taskharbor.worker.settings import WorkerSettings
from taskharbor.worker.supervisor import memory, messages
from taskharbor.worker.supervisor.events import (
    ProcessContinued,
    ProcessKilled,
    ProcessNotStarted,
    ProcessSilent,
    ProcessStarted,
    ProcessStopped,
    SignalIgnored,
    SourcesChanged,
    SpareDied,
    SupervisorStopping,
    tell,
)
from taskharbor.worker.supervisor.heart import FleetHeart
from taskharbor.worker.supervisor.probes import HealthReport, Probes, Unusable, describe
from taskharbor.worker.supervisor.process import Process
from taskharbor.worker.supervisor.restart_loop import RestartLoop
from taskharbor.worker.supervisor.signals import SupervisorSignals
from taskharbor.worker.supervisor.source_watch import SourceWatch
from taskharbor.worker.supervisor.spare import Spare
from taskharbor.worker.supervisor.suspects import Suspects

ECHO = 0.05  # seconds within which a signal that comes twice was sent once; nobody presses Ctrl-C as quickly
LOOK = 1.0  # seconds between two looks at everything
SILENT = 5.0  # seconds without a sign of life, after which that is told
PROMISED = 14.5  # seconds beyond the grace period: docs/operations.md says 15. Of these:
MARGIN = 5.0  # seconds beyond the grace period in which a worker writes its last outcomes, before it is hurried
HURRY = 4.0  # seconds until it is killed after that
LAST = 3.0  # seconds for giving back at the very end, if the store does not answer
CLOSE = 1.0  # seconds for closing the connection to a store that does not answer
SHOWN = 10  # jobs of a silent process that the log names


class SupervisorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor was told."""

    settings: WorkerSettings
    processes: int = 1
    max_jobs: int | None = None
    max_memory: int | None = None  # bytes
    reload: str | None = None  # the folder to watch
    spare: bool = True  # keep a process waiting that takes the place of one that dies
    health_file: str | None = None
    health_host: str = "127.0.0.1"
    health_port: int | None = None
    health_within: float = 30.0


class Supervisor:
    """Runs worker processes until a signal ends it."""

    def __init__(
        self,
        plan: SupervisorSettings,
        setup: messages.Setup,
        command: Sequence[str],
        complain: Callable[[str], None],
        on_store: Callable[[str], None] | None = None,
        on_offer: Callable[[messages.Offer], None] | None = None,
        on_end: Callable[[float, int], None] | None = None,
    ) -> None:
        self._plan = plan
        self._setup = setup
        self._command = tuple(command)
        self._complain = complain  # says one line to the person who started this
        self._on_store = on_store  # told the address of the store when a process is ready that uses it
        self._on_offer = on_offer  # told what worker processes can do, whenever that has changed
        self._on_end = on_end  # told when it begins to end: how many seconds that may take, and the exit code
        self._offer: messages.Offer | None = None
        self._clock = StoreClock()
        self._fleet: dict[int, Process] = {}
        self._keeper: FleetHeart | None = None
        self._served = False  # some process was ready once: the command line is right
        self._code = 0
        self._signals = 0
        self._echoing: dict[signal.Signals, asyncio.TimerHandle] = {}  # signals whose like are the same one
        self._recoveries: set[asyncio.Task[None]] = set()
        self._spare = Spare(self._start_spare)
        self._suspects = Suspects(self._start_waiting, lambda: self._keeper, plan.processes)

    def run(self) -> int:
        """Until a signal ends it; answers the exit code. No signal changes that any more."""
        signals = SupervisorSignals(self._on_signal, self._reap, lambda number: tell(SignalIgnored(number.name)))
        signals.take()
        try:
            return asyncio.run(self._main(signals))
        finally:
            signals.end()

    async def _main(self, signals: SupervisorSignals) -> int:
        self._ending, self._changed = asyncio.Event(), asyncio.Event()
        self._slots = [RestartLoop(number, self._clock, self._start) for number in range(self._plan.processes)]
        signals.attach(asyncio.get_running_loop())
        probes = Probes(self._report, self._plan)
        try:
            await probes.start()
        except Unusable as error:
            self._complain(str(error))
            return 2
        running = [asyncio.create_task(slot.run()) for slot in self._slots]
        watching = asyncio.create_task(self._watch(probes))
        ended = asyncio.ensure_future(self._ending.wait())
        try:
            await asyncio.wait((ended, watching, *running), return_when=asyncio.FIRST_COMPLETED)
            await self._end()
        finally:
            for number in list(self._echoing):
                self._tell_signal(number)
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
        return await self._launch(Process(number, self._clock, self._plan.max_jobs), self._setup)

    async def _start_waiting(self) -> Process:
        """One that waits for its order: the spare if there is one."""
        return self._spare.give() or await self._start_spare()

    async def _start_spare(self) -> Process:
        process = Process(0, self._clock, self._plan.max_jobs)
        process.state = "spare"
        return await self._launch(process, msgspec.structs.replace(self._setup, waits=True))

    async def _launch(self, process: Process, setup: messages.Setup) -> Process:
        def on_ready(ready: messages.Ready) -> None:
            self._served = True
            self._slots[process.number].waits_for_change = False
            if self._keeper is None and ready.dsn is not None:
                settings = self._plan.settings
                self._keeper = FleetHeart(
                    ready.dsn,
                    self._fleet.values,
                    lease=settings.lease,
                    every=settings.heartbeat,
                    elsewhere=self._suspects.tokens,
                )
                if self._on_store is not None:
                    self._on_store(ready.dsn)
            if self._on_offer is not None and ready.offer is not None and ready.offer != self._offer:
                self._offer = ready.offer
                self._on_offer(ready.offer)
            tell(ProcessStarted(process.pid, process.number, ready.worker))

        def on_suspect(lease: messages.TakenLease) -> None:
            self._recover(self._suspects.take(process, lease, ending=self._ending.is_set()))

        process.on_suspect = on_suspect
        try:
            await process.connect(setup, on_ready)
            process.spawn(self._command)
        except OSError as error:
            tell(ProcessNotStarted(process.number, error))
            process.not_started()
            await process.finish()
            return process
        self._fleet[process.pid] = process  # in the same breath: it may end before anything else happens here
        if self._ending.is_set():
            process.stop()
        return process

    def _give_up(self, failure: messages.StartFailed) -> None:
        """It cannot start, and starting it again would not help."""
        if not self._ending.is_set():
            self._complain(failure.text)
            self._code = failure.code
            self._ending.set()

    # Signals -------------------------------------------------------------------------------------------------

    def _on_signal(self, number: signal.Signals) -> None:
        """Stop, or hurry. The same signal again within a moment is no second one: `timeout` sends it to us and to our
        group, and so do others that pass signals on. It is told when that moment is over."""
        if number in self._echoing:
            return
        self._signals = max(self._signals + 1, 2 if number is signal.SIGQUIT else 1)
        self._ending.set()
        self._changed.set()
        self._echoing[number] = asyncio.get_running_loop().call_later(ECHO, self._tell_signal, number)

    def _tell_signal(self, number: signal.Signals) -> None:
        self._echoing.pop(number).cancel()
        tell(SupervisorStopping(number.name))

    def _reap(self) -> None:
        """Every child that ended, stopped or went on; also those that are ours only because we are process 1."""
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
                tell(ProcessStopped(pid, process.number))
            elif os.WIFCONTINUED(status):
                process.stopped = False
                tell(ProcessContinued(pid, process.number))
            else:
                del self._fleet[pid]
                process.ended(os.waitstatus_to_exitcode(status))
                self._recover(self._on_gone(process))

    def _recover(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done beside everything else; the end waits for it."""
        task = asyncio.create_task(work)
        self._recoveries.add(task)
        task.add_done_callback(self._recoveries.discard)

    async def _on_gone(self, process: Process) -> None:
        await process.finish()
        if process.failure is not None:
            self._on_failure(process, process.failure)
        if process is self._spare.process:
            self._spare.died(self._clock.monotonic())
            if not process.told_to_end:
                tell(SpareDied(process.pid, process.cause))
        process.state = "gone"
        process.gone.set()
        self._changed.set()
        if process in self._suspects:
            await self._suspects.gone(process)
        if self._keeper is not None:
            await self._keeper.recover(process)

    def _on_failure(self, process: Process, failure: messages.StartFailed) -> None:
        if process in self._suspects:
            self._complain(failure.text)
        elif self._plan.reload is not None:
            self._slots[process.number].waits_for_change = True
            self._complain(failure.text)
        elif self._served:
            self._complain(failure.text)  # it could start before: a file may be half written, a deploy half done
        else:
            self._give_up(failure)

    # Watching ------------------------------------------------------------------------------------------------

    async def _watch(self, probes: Probes) -> None:
        sources = SourceWatch(self._plan.reload) if self._plan.reload is not None else None
        while True:
            await asyncio.sleep(LOOK)
            self._reap()
            now = self._clock.monotonic()
            for process in list(self._fleet.values()):
                self._look_at(process, now)
            path = await asyncio.to_thread(sources.changed) if sources is not None else None
            if path is not None and not self._ending.is_set():
                tell(SourcesChanged(path))
                for slot in self._slots:
                    slot.anew()
            # Its store must be one from which the keeper can give back: else nothing would be won by being quick.
            if self._plan.spare and sources is None and self._keeper is not None and not self._ending.is_set():
                await self._spare.keep(self._slots, now)
            await probes.write()

    def _look_at(self, process: Process, now: float) -> None:
        process.check()
        if process.lingers(now):
            tell(ProcessKilled(process.pid, process.number, "it had stopped, and did not exit"))
            process.kill()
            return
        silent = now - process.heard_at
        if silent > SILENT and process.ready.is_set() and not process.stopped and not process.silence_told:
            process.silence_told = True
            jobs = tuple(held.lease.job_id for held in list(process.leases.values())[:SHOWN])
            tell(ProcessSilent(process.pid, process.number, round(silent, 1), jobs))
        limit = self._plan.max_memory
        # One that has not taken a job yet is as small as it can be: replacing it would go on for ever.
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
        return describe(self._slots, serving, self._clock.monotonic(), self._plan.health_within, self._ending.is_set())

    # Ending --------------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        """Drain, hurry, kill; then give back what is left."""
        self._ending.set()
        grace = self._plan.settings.shutdown_timeout
        if self._on_end is not None:
            self._on_end(grace + PROMISED, self._code)
        for slot in self._slots:
            slot.close()
        for process in self._fleet.values():
            process.stop()
        if not await self._gone_within(grace + MARGIN, signals=1):
            for process in self._fleet.values():
                process.stop(hurry=True)
            await self._gone_within(HURRY, signals=2)
        for process in self._fleet.values():
            tell(ProcessKilled(process.pid, process.number, "it did not stop in time"))
            process.kill()
        begun = self._clock.monotonic()
        await self._gone_within(LAST)  # what the system itself holds up cannot be killed: it is left behind
        if self._keeper is not None:
            self._keeper.end()
        if self._recoveries:
            await asyncio.wait(self._recoveries, timeout=max(0.0, begun + LAST - self._clock.monotonic()))
        last = set(self._recoveries)
        for task in last:
            task.cancel()
        if self._keeper is not None:
            last.add(asyncio.create_task(self._keeper.stop()))
        if last:
            await asyncio.wait(last, timeout=CLOSE)

    async def _gone_within(self, seconds: float, *, signals: float = math.inf) -> bool:
        """Whether every process has ended, before the time is over or a further signal has come."""
        try:
            async with asyncio.timeout(seconds):
                while self._fleet and self._signals <= signals:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        return not self._fleet
