"""The world: processes on one store, a workload, and everything that goes wrong; then calm, until all is drained.

active (faults) ──► draining (no more faults; the dead are started again) ──► stopped gracefully ──► checked
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

from taskharbor.client import Client
from taskharbor.drivers import Driver
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.model.events import Event, OutcomeRefused
from taskharbor.model.schedule import ScheduleChange
from taskharbor.policy.retry import Exponential
from taskharbor.worker import Worker
from tests.simulation.handlers import make_handler
from tests.simulation.invariants import check_at_the_end, drained, held_by
from tests.simulation.journal import Journal
from tests.simulation.loop import Stuck, VirtualLoop
from tests.simulation.machine import OwnClock, Process, machines
from tests.simulation.network import Network, RemoteDriver
from tests.simulation.plan import Plan, WorkerPlan, stream
from tests.simulation.producer import produce
from tests.simulation.trouble import administer, disturb

STEPS = 400_000
DRAIN = 900.0  # virtual seconds: of two idle workers one that does not know a type may often be the first


class Listener:
    """An observer that notes which outcomes a worker has given up."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def wants(self, event_type: type[Event]) -> bool:
        return event_type is OutcomeRefused

    def __call__(self, event: Event) -> None:
        if isinstance(event, OutcomeRefused):
            self._journal.given_up(event.job)


class World:
    """One run of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.loop = VirtualLoop(stream(plan.seed, "schedule"), shuffle=plan.shuffle, steps=STEPS)
        self.journal = Journal(plan, self.loop.time)
        self.store = MemoryDriver("memory://")
        self.network = Network(self, stream(plan.seed, "network"))
        self.chaos = stream(plan.seed, "chaos")
        self.faulty = True
        self.closing = False
        self.processes: list[Process] = []  # the living ones
        self.workers: dict[Process, tuple[Worker, asyncio.Task[Any]]] = {}
        self.calls: list[asyncio.Task[Any]] = []  # of clients, to be cancelled
        self._snoozes: dict[str, int] = {}

    def run(self) -> Journal:
        """Play it to the end; problems are in the journal."""
        state = random.getstate()
        random.seed(f"{self.plan.seed}/core")
        logger = logging.getLogger("taskharbor")
        level = logger.level
        logger.setLevel(logging.CRITICAL + 1)
        asyncio.set_event_loop(None)
        self.loop.set_exception_handler(self._on_exception)
        try:
            with machines(stream(self.plan.seed, "ids")):
                try:
                    self.loop.run_until_complete(self._main())
                except Stuck as stuck:
                    self.journal.wrong(f"{type(stuck).__name__}: {stuck}")
                finally:
                    self.journal.over = True
                    self.loop.dispose()
        finally:
            random.setstate(state)
            logger.setLevel(level)
        return self.journal

    def _on_exception(self, loop: Any, context: dict[str, Any]) -> None:
        self.journal.wrong(f"unhandled: {context.get('message')}: {context.get('exception')!r}")

    async def _main(self) -> None:
        for index, each in enumerate(self.plan.workers):
            self.loop.create_task(self._keep_up(index, each), name=f"keeper of worker {index}")
        producers = [self.loop.create_task(produce(self, batch)) for batch in self.plan.batches]
        disturbing = self.loop.create_task(disturb(self))
        administering = self.loop.create_task(administer(self))
        await asyncio.sleep(self.plan.active)
        self.faulty = False
        self.network.down_until = 0.0
        self.journal.say("world", "no more faults")
        disturbing.cancel()
        administering.cancel()
        await asyncio.gather(*producers)
        await self._calm()
        await self._drain()
        await self._close()
        await check_at_the_end(self)

    async def _calm(self) -> None:
        """What was stopped goes on."""
        for process in list(self.processes):
            if process.frozen:
                process._thaw()
            if process.name == "admin":  # or a slow call of it would come after ours
                process.kill("the calm")
        admin = self.process("admin")
        for queue in ("a", "b"):
            await RemoteDriver(self, admin).resume(queue)

    async def _drain(self) -> None:
        limit = self.loop.time() + DRAIN
        while not self.journal.problems and not drained(self.journal):
            if self.loop.time() > limit:
                left = [f"{known} ({known.state})" for known in self.journal.jobs.values() if not known.terminal]
                self.journal.wrong(f"not drained after {DRAIN:g} s: {', '.join(left)}\n{self.loop.describe()}")
                return
            await asyncio.sleep(0.5)

    async def _close(self) -> None:
        """Stop all workers gracefully; no job may be left under a lease."""
        self.closing = True
        ends = []
        for process, (worker, task) in list(self.workers.items()):
            process.stopping = True
            worker.stop()
            ends.append(task)
        if ends:
            _, late = await asyncio.wait(ends, timeout=60)
            if late:
                self.journal.wrong(f"{len(late)} workers did not stop within a minute\n{self.loop.describe()}")

    # Processes -------------------------------------------------------------------------------------------------

    def process(self, name: str) -> Process:
        rng, wrong = self.chaos, "clock" in self.plan.faults
        offset, drift = rng.uniform(-3600, 3600), rng.uniform(-2e-4, 2e-4)
        if self.plan.own_clock:
            offset /= 2400  # a second and a half: with more, no worker could keep a lease
        process = Process(name, self.loop, offset=offset if wrong else 0.0, drift=drift if wrong else 0.0)
        process.own_clock = self.plan.own_clock
        self.processes.append(process)
        return process

    def clock(self, process: Process) -> Any:
        return OwnClock(process) if self.plan.own_clock else None  # None: core's own, which follows the store's

    async def _keep_up(self, index: int, plan: WorkerPlan) -> None:
        """A supervisor: whenever the worker is gone, another one is started after a while."""
        rng = stream(self.plan.seed, f"keeper {index}")
        for life in range(1, 1000):
            process = self.process(f"worker{index}.{life}")
            process.types = plan.types
            task = process.spawn(self._work(process, plan, rng), name="worker")
            died = asyncio.ensure_future(process.died.wait())
            await asyncio.wait((task, died), return_when=asyncio.FIRST_COMPLETED)
            died.cancel()
            self.workers.pop(process, None)
            self.processes.remove(process)
            if process.dead:
                self.journal.say(process, f"dead: {process.killed_by}")
                self.journal.count(f"killed by {process.killed_by}")
            else:
                self._look_at_stopped(process, task)
            if self.closing:
                return
            await asyncio.sleep(rng.uniform(0.05, 2.0))

    async def _work(self, process: Process, plan: WorkerPlan, rng: random.Random) -> None:
        client = Client(RemoteDriver(self, process), clock=self.clock(process))
        worker = Worker(
            RemoteDriver(self, process),
            queues=plan.queues,
            concurrency=plan.concurrency,
            lease=self.plan.lease,
            shutdown_timeout=rng.choice([0.0, 1.0, 10.0]),
            max_lost=self.plan.max_lost,
            retry=Exponential(base=0.2, factor=2, maximum=5),
            clock=self.clock(process),
            name=process.name,
            observers=(Listener(self.journal),),
            heart="loop",
        )
        handler = make_handler(self, process, client, rng)
        for type in plan.types:
            worker.register(type, handler)
        task = asyncio.current_task()
        assert task is not None
        self.workers[process] = (worker, task)
        self.journal.say(process, "up")
        await worker.arun()

    def _look_at_stopped(self, process: Process, task: asyncio.Task[Any]) -> None:
        self.journal.say(process, "stopped")
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.journal.wrong(f"{process} ended with {error!r}")
        elif not process.stopping:
            self.journal.wrong(f"{process} ended by itself")
        left = held_by(self.journal, process)
        if left:
            self.journal.wrong(f"{process} stopped gracefully, but still holds {', '.join(map(str, left))}")

    async def changed_schedules(
        self, process: Process, store: Driver, changes: Sequence[ScheduleChange], now: datetime
    ) -> list[bool]:
        """A change of schedules arrives. These plans have none; tests/schedules has a world that has."""
        self.journal.wrong(f"{process} changes schedules: {changes}")
        return await store.change_schedules(changes, now)

    # For handlers and the network ------------------------------------------------------------------

    def snoozed(self, id: str) -> int:
        """How often a job was executed before; counts up."""
        self._snoozes[id] = self._snoozes.get(id, -1) + 1
        return self._snoozes[id]

    def later(self, seconds: float, do: Callable[[], Awaitable[Any]], what: str) -> None:
        """A delayed request arrives, also if its sender is gone."""

        async def arrive() -> None:
            await asyncio.sleep(seconds)
            if not self.closing:
                self.journal.say("network", what)
                self.journal.count("late duplicate")
                await do()

        self.loop.create_task(arrive())

    def suffer_at_the_end(self, process: Process, rng: random.Random) -> None:
        """Between the end of a handler and its settle."""
        dice = rng.random()
        if self.faulty and "freeze" in self.plan.faults and dice < 0.05:
            self.journal.count("frozen before a settle")
            process.freeze(rng.uniform(0.5, 3.0) * self.plan.lease)
        elif self.faulty and "kill" in self.plan.faults and dice > 0.96:
            process.kill("a crash before a settle")
