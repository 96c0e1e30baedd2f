"""Schedules on virtual time: two versions of a program, deployed one after the other, under every kind of fault.

    fleet of version 1 ───────────────────────────► stopped          people: add, edit, pause, resume, run
                 fleet of version 2 ─────────────────────────────────────────────► calm ──► checked

A fleet is what one `worker run` is: several processes, of which the first one stores the declarations, once.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from taskharbor import Harbor
from taskharbor.drivers import Driver
from taskharbor.model.errors import BackendUnavailable, ScheduleNotFound, WrongState
from taskharbor.model.schedule import ScheduleChange
from taskharbor.schedules.body import read_body
from tests.schedules.watch import Watch
from tests.simulation.journal import Journal
from tests.simulation.machine import START, Process
from tests.simulation.network import RemoteDriver
from tests.simulation.plan import Plan, stream
from tests.simulation.trouble import disturb
from tests.simulation.world import World

FAULTS = ("kill", "fail", "lose", "duplicate", "slow", "outage", "freeze", "clock", "stop")
CALM = 30.0  # virtual seconds


@dataclass(frozen=True)
class ScheduleSpec:
    """One schedule of a run. `versions`: its options in each version of the code; None: that version has none."""

    name: str
    versions: tuple[dict[str, Any] | None, ...]
    declared: bool
    host: tuple[str, str] = ("a", "a")  # its argument, by version


@dataclass(frozen=True)
class SchedulePlan(Plan):
    """A whole run."""

    schedules: tuple[ScheduleSpec, ...] = ()
    children: int = 2
    deploy_at: float = 20.0
    replaced_at: float = 30.0
    people: float = 0.1  # how often one of them acts, a second
    seconds: tuple[float, ...] = field(default=(0.0, 0.3))
    failing: float = 0.0


def make_plan(seed: int) -> SchedulePlan:
    rng = stream(seed, "schedules")
    faults = () if rng.random() < 0.1 else tuple(name for name in FAULTS if rng.random() < 0.45)
    active = rng.uniform(40, 90)
    deploy = rng.uniform(10, active * 0.5)
    return SchedulePlan(
        seed=seed,
        faults=faults,
        workers=(),
        batches=(),
        lease=rng.choice([3.0, 6.0]),
        active=active,
        own_clock="clock" in faults and rng.random() < 0.3,
        shuffle=rng.random() < 0.5,
        trouble=rng.choice([0.3, 1.0, 1.0, 2.0]),
        latency=rng.choice([0.001, 0.01, 0.1]),
        schedules=tuple(_spec(rng, number) for number in range(rng.choice([1, 2, 4]))),
        children=rng.choice([1, 2, 3]),
        deploy_at=deploy,
        replaced_at=deploy + rng.uniform(0, 20),
        people=rng.choice([0.0, 0.1, 0.3]),
        seconds=rng.choice([(0.0, 0.3), (0.0, 4.0), (2.0, 9.0)]),
        failing=rng.choice([0.0, 0.0, 0.4]),
    )


def _spec(rng: random.Random, number: int) -> ScheduleSpec:
    first = _options(rng)
    dice = rng.random()
    second: dict[str, Any] | None = dict(first)
    if dice < 0.3:
        second = {**first, **_timing(rng)}
    elif dice < 0.45:
        second = {**first, "overlap": "allow", "catch_up": "all"}
    elif dice < 0.5:
        second = None
    return ScheduleSpec(f"s{number}", (first, second), rng.random() < 0.7, ("a", rng.choice(["a", "b"])))


def _options(rng: random.Random) -> dict[str, Any]:
    return {
        **_timing(rng),
        "catch_up": rng.choice(["latest", "none", "all", "all"]),
        "overlap": rng.choice(["skip", "allow"]),
        "jitter": rng.choice([0, 0, 0.5]),
    }


def _timing(rng: random.Random) -> dict[str, Any]:
    if rng.random() < 0.2:
        return {"cron": rng.choice(["* * * * *", "*/2 * * * *"]), "every": None}
    return {"every": rng.choice([1, 1, 2.5, 7, 20]), "cron": None}


class Fleet:
    """What one `worker run` is."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.declared = False
        self.retired = False


class ScheduleWorld(World):
    """One run of a plan."""

    plan: SchedulePlan

    def __init__(self, plan: SchedulePlan) -> None:
        super().__init__(plan)
        self.journal = _Notes(plan, self.loop.time)
        self.watch = Watch(self.journal)
        self.hashes: dict[str, str] = {}  # of what version 2 declares

    async def _main(self) -> None:
        plan, disturbing = self.plan, self.loop.create_task(disturb(self))
        old, new = Fleet(0), Fleet(1)
        people = self.loop.create_task(self._people())
        self._start(old)
        await asyncio.sleep(plan.deploy_at)
        while not old.declared:  # a program that never came up is not one that is replaced
            await asyncio.sleep(1)
        self._start(new)
        await asyncio.sleep(plan.replaced_at - plan.deploy_at)
        self.journal.say("world", "version 1 is stopped")
        self._stop(old)
        await asyncio.sleep(max(0.0, plan.active - self.loop.time()))
        self.faulty = False
        self.network.down_until = 0.0
        self.journal.say("world", "no more faults")
        disturbing.cancel()
        people.cancel()
        for process in list(self.processes):
            if process.frozen:
                process._thaw()
        await asyncio.sleep(CALM)
        if plan.own_clock or "clock" in plan.faults:
            await asyncio.sleep(3 * plan.lease)  # a clock that was ahead may have decided slots that come now
        times = [process.wall() for process in self.workers] if plan.own_clock else []
        behind = self.loop.time() - max(times, default=self.loop.time())  # the clocks that slots are fired by
        self._stop(new)
        await self._close()
        await self._check(timedelta(seconds=10 + max(behind, 0)))

    async def changed_schedules(
        self, process: Process, store: Driver, changes: Sequence[ScheduleChange], now: datetime
    ) -> list[bool]:
        answers = []
        for change in changes:
            page = await store.schedules(names=[change.name])
            before = page.items[0] if page.items else None
            (is_made,) = await store.change_schedules([change], now)
            answers.append(is_made)
            revision = None if change.to is None else change.to.revision
            if is_made and (before.revision if before else None) != revision:
                self.journal.say(process, f"change {change.name} jobs={len(change.jobs)}")
                await self.watch.changed(store, before, change, now)
        return answers

    # Processes -------------------------------------------------------------------------------------------------

    def _start(self, fleet: Fleet) -> None:
        for index in range(self.plan.children):
            self.loop.create_task(self._keep(fleet, index), name=f"keeper of {fleet.version}.{index}")

    def _stop(self, fleet: Fleet) -> None:
        fleet.retired = True
        for process, (worker, _) in list(self.workers.items()):
            if getattr(process, "fleet", None) is fleet:
                process.stopping = True
                worker.stop()

    async def _keep(self, fleet: Fleet, index: int) -> None:
        rng = stream(self.plan.seed, f"keeper {fleet.version}.{index}")
        for life in range(1, 1000):
            process = self.process(f"v{fleet.version + 1}.{index}.{life}")
            process.fleet = fleet  # type: ignore[attr-defined]  # for `_stop`
            task = process.spawn(self._serve(process, fleet, index, rng), name="worker")
            died = asyncio.ensure_future(process.died.wait())
            await asyncio.wait((task, died), return_when=asyncio.FIRST_COMPLETED)
            died.cancel()
            self.workers.pop(process, None)
            self.processes.remove(process)
            self.journal.count(f"killed by {process.killed_by}" if process.dead else "stopped")
            if not process.dead and not task.cancelled() and task.exception() is not None:
                self.journal.wrong(f"{process} ended with {task.exception()!r}")
            if fleet.retired or self.closing:
                return
            await asyncio.sleep(rng.uniform(0.05, 2.0))

    async def _serve(self, process: Process, fleet: Fleet, index: int, rng: random.Random) -> None:
        harbor = self._program(process, fleet.version)
        worker: Any = harbor.worker(heart="loop", lease=self.plan.lease, concurrency=4, shutdown_timeout=1)
        worker._has_declared = fleet.declared or index > 0

        def on_declared() -> None:
            worker._has_declared = fleet.declared = True
            self.journal.say(process, "declared")

        worker._on_declared = on_declared
        task = asyncio.current_task()
        assert task is not None
        self.workers[process] = (worker, task)
        await worker.arun()

    def _program(self, process: Process, version: int) -> Harbor:
        """One version of the code, in one process."""
        harbor = Harbor(RemoteDriver(self, process), clock=self.clock(process))
        rng, plan = stream(self.plan.seed, f"handlers of {process.name}"), self.plan

        @harbor.task(name="ping", max_attempts=3)
        async def ping(host: str) -> None:
            await asyncio.sleep(rng.uniform(*plan.seconds))
            if self.faulty and rng.random() < plan.failing:
                raise ValueError

        for spec in plan.schedules:
            options = spec.versions[version]
            if spec.declared and options is not None:
                harbor.schedule(spec.name, ping.s(host=spec.host[version]), **options)
                if version == 1:
                    self.hashes[spec.name] = harbor.handlers.schedules[spec.name].hash
        return harbor

    # People ------------------------------------------------------------------------------------------------------

    async def _people(self) -> None:
        rng = stream(self.plan.seed, "people")
        for spec in self.plan.schedules:
            if not spec.declared:
                await self._act("add", spec, rng)
        while self.plan.people and self.faulty:
            await asyncio.sleep(rng.expovariate(self.plan.people))
            await self._act(
                rng.choice(["edit", "edit", "pause", "resume", "reset", "run"]), rng.choice(self.plan.schedules), rng
            )

    async def _act(self, what: str, spec: ScheduleSpec, rng: random.Random) -> None:
        """A person does something, again and again until it is done, unless its process dies."""
        edit = rng.choice([_timing(rng), {"jitter": 0.2}, {"overlap": "allow"}, {"catch_up": "all"}])
        options = {name: value for name, value in edit.items() if value is not None}
        while self.faulty:
            process = self.process(f"person {what}")
            task = process.spawn(self._call(process, what, spec, options), name=what)
            died = asyncio.ensure_future(process.died.wait())
            await asyncio.wait((task, died), return_when=asyncio.FIRST_COMPLETED)
            died.cancel()
            self.processes.remove(process)
            error = task.exception() if task.done() and not task.cancelled() else None
            if task.done() and error is None:
                self.journal.count(f"person: {what}")
            if error is not None and not isinstance(error, BackendUnavailable | ScheduleNotFound | WrongState):
                self.journal.wrong(f"{what} raised {error!r}")
            if not isinstance(error, BackendUnavailable) and not (what == "add" and process.dead):
                return

    async def _call(self, process: Process, what: str, spec: ScheduleSpec, options: dict[str, Any]) -> None:
        self.journal.say(process, f"{what} {spec.name} {options if what == 'edit' else ''}")
        harbor = self._program(process, 0)
        schedules: Any = harbor.schedules
        first = spec.versions[0]
        assert first is not None
        if what == "add":
            await schedules.aadd(spec.name, harbor.tasks["ping"].s(host="a"), **first)
        elif what == "edit":
            await schedules.aedit(spec.name, **options)
        else:
            await getattr(schedules, f"a{what}")(spec.name)

    # The end -----------------------------------------------------------------------------------------------------

    async def _check(self, allowed: timedelta) -> None:
        """`allowed`: how late a slot may be, by the true time."""
        now = START + timedelta(seconds=self.loop.time())
        rows = {row.name: row for row in (await self.store.schedules(limit=100)).items}
        jobs, cursor = dict[str, Any](), None
        while True:
            page = await self.store.list(now=now, limit=1000, cursor=cursor)
            jobs |= {info.job.id: info.job for info in page.items}
            cursor = page.cursor
            if cursor is None:
                break
        for spec in self.plan.schedules:
            row = rows.get(spec.name)
            expected = not spec.declared or spec.versions[1] is not None
            self.journal.demand(row or not expected, f"schedule {spec.name} is not stored")
            if row is None or not expected:
                continue  # version 1 declared it, and nobody fires it any more
            self.watch.at_the_end(spec.name, row, jobs, now)
            late = row.next_at is not None and row.next_at < now - allowed
            self.journal.demand(not late, f"schedule {spec.name} was due at {row.next_at}, and it is {now}")
            if spec.declared:
                is_new = read_body(row.body).body.hash == self.hashes[spec.name]
                self.journal.demand(is_new, f"schedule {spec.name} is not what the newer code declares")


class _Notes(Journal):
    """A journal that leaves the jobs themselves to the other simulation."""

    def enqueued(self, *args: Any) -> None:
        return

    def reserved(self, *args: Any) -> list[Any]:
        return []

    def extended(self, *args: Any) -> None:
        return

    def told(self, *args: Any) -> None:
        return

    def settled(self, *args: Any) -> None:
        return


def play(plan: SchedulePlan) -> Journal:
    """Play it to its end."""
    return ScheduleWorld(plan).run()
