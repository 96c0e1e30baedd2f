"""A store that nobody arranged: every state in every queue, hostile and long names, flows of every shape, dead workers.

It is filled through the calls of the contract, in an order drawn from a seed, so any driver can be filled. What is true
of it is read from the records, one by one (`Truth`), and from what the filling itself knows: since when a job is due.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from taskharbor import Harbor, JobRequest
from taskharbor.drivers import Driver, JobRecord, Reserved
from taskharbor.model.job import OPERATIONS_QUEUE, Figures, JobInfo, State, WorkerInfo
from taskharbor.model.outcome import Ack, Cancelled, Fail, Outcome, Retry
from taskharbor.policy.trail import with_trail
from taskharbor.store.pages import read_items
from tests.dashboard.hostile import OTHERS

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
BATCH = 1_000
MAX_ALONE = 5_000  # jobs that are read one by one
CAUSES = 33
SCHEDULES = 30
FIRST = (0.1, 0.6, 0.95)  # of each call: one is done, one dies, one is cancelled; then chance decides
HOSTILE = (
    "<b onclick=alert(1)>queue</b>",
    "--all; rm -rf /",
    "a/b//c",
    "naïve 队列 😀",
    "%2e%2e?x=1&y=2#z",
    "'\"; drop table",
    OTHERS[0][:200],
    "q" * 255,
    "ü" * 127,
)
TYPES = (*(f"app.tasks.kind_{number}" for number in range(9)), "<i>type</i>", "t" * 255, "send; reboot")
ERRORS = tuple(f"app.errors.Error{number}" for number in range(CAUSES))
MAX_CHAIN, WIDE, TYPES_OF_ONE = 10_000, 60, 70


@dataclass
class Truth:
    """Every job as `inspect` returns it, and since when each is due."""

    now: datetime
    infos: dict[str, JobInfo]
    due: dict[str, datetime]

    def where(self, accepts: Callable[[JobInfo], bool]) -> list[str]:
        """The ids of these jobs, in their order."""
        return sorted(id for id, info in self.infos.items() if accepts(info))

    @cached_property
    def counts(self) -> dict[str, dict[str, int]]:
        """By queue and state, without zeros."""
        found: dict[str, Counter[str]] = {}
        for info in self.infos.values():
            found.setdefault(info.job.queue, Counter())[info.state.value] += 1
        return {queue: dict(states) for queue, states in found.items()}

    @cached_property
    def oldest(self) -> dict[str, datetime]:
        """Since when the job of each queue is due that has been ready for longest."""
        found: dict[str, datetime] = {}
        for id, info in self.infos.items():
            if info.state is State.READY:
                queue, due = info.job.queue, self.due[id]
                found[queue] = min(found.get(queue, due), due)
        return found

    @cached_property
    def flows(self) -> dict[str, list[JobInfo]]:
        """The jobs of each flow."""
        found: dict[str, list[JobInfo]] = {}
        for info in self.infos.values():
            if info.job.flow_id is not None:
                found.setdefault(info.job.flow_id, []).append(info)
        return found


@dataclass
class Unarranged:
    """Fills a store. `due`: since when each job may run; `paused`: queues; `flows`: ids by shape."""

    driver: Driver
    now: datetime
    jobs: int
    queues: int = 45
    seed: int = 1
    due: dict[str, datetime] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    flows: dict[str, str] = field(default_factory=dict)
    figures: list[Figures] = field(default_factory=list)
    alive: list[str] = field(default_factory=list)  # workers
    served: set[str] = field(default_factory=set)  # their queues
    schedules: list[str] = field(default_factory=list)
    paused_schedules: int = 0
    operation: str = ""  # a bulk operation that no worker has begun
    _number: int = 0
    _behind: dict[str, list[str]] = field(default_factory=dict)  # job → those that wait for it, outside of flows

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def names(self) -> list[str]:
        """The queues. Each holds jobs in every state."""
        plain = [f"tenant-{number:03}.mail" for number in range(self.queues - len(HOSTILE))]
        return [*HOSTILE, *plain]

    async def fill(self, harbor: Harbor | None = None) -> Truth:
        """Fill the store, and return what is true of it."""
        names = self.names()
        for at, name in enumerate(names):
            share = 1 if at % 5 else 5  # a few large queues between many small ones
            await self._queue(name, max(30, self.jobs * share // (len(names) * 9 // 5)))
        await self._flows()
        await self._surroundings(names)
        if harbor is not None:
            await self._schedules(harbor, names)
            await self._operation(harbor)
        return await self.truth()

    async def truth(self) -> Truth:
        """Each job by itself; of very many, pages without any filter, and some by themselves."""
        ids = list(self.due)
        some = ids if len(ids) <= MAX_ALONE else self._random.sample(ids, MAX_ALONE)
        infos = {id: await self.driver.inspect(id, self.now) for id in some}
        if len(ids) > MAX_ALONE:
            pages, _ = await read_items(self.driver.list, page=5_000, now=self.now)
            listed = {info.job.id: info for info in pages}
            assert not (apart := listed.keys() ^ self.due.keys()), sorted(apart)[:5]
            assert {id: listed[id] for id in some} == infos
            infos = listed
        return Truth(self.now, infos, self.due)

    # Jobs of one queue: ids grow with time, so what is done or dead stands before what waits -------------------------

    def _record(self, queue: str, at: datetime, **fields: Any) -> JobRecord:
        self._number += 1
        draw = self._random
        id = fields.pop("id", None) or f"{self._number:08}-{draw.choice(('a', 'B <b>', 'ü', '$(x)'))}"
        record = JobRecord(
            id=id,
            type=fields.pop("type", None) or draw.choice(TYPES),
            queue=queue,
            payload=b'{"to": "someone-%d@example.org"}' % self._number,
            priority=draw.choice((0, 0, 0, 5, -3)),
            max_attempts=3,
            metadata={"tenant": f"someone-{self._number}@example.org"} if draw.random() < 0.1 else {},
            idempotency_key=f"key {self._number}" if draw.random() < 0.1 else None,
            **fields,
        )
        self.due[id] = max(at, record.run_at or at)
        for each in record.depends_on:
            self._behind.setdefault(each, []).append(id)
        return record

    async def _enqueue(self, records: Sequence[JobRecord], at: datetime) -> None:
        for start in range(0, len(records), BATCH):
            await self.driver.enqueue(records[start : start + BATCH], at)

    async def _queue(self, queue: str, number: int) -> None:
        draw, began = self._random, self.now - 150 * MINUTE
        stored: list[JobRecord] = []
        for part in range(3):  # what came early was taken early
            at = began + part * HOUR
            fields: list[dict[str, Any]] = []
            for count in range(number // 3):
                chance = draw.random()
                if count == 0 or chance < 0.08:
                    fields.append({"run_at": self.now + draw.randint(1, 40) * HOUR})
                elif chance < 0.12:
                    fields.append({"run_at": at + draw.randint(1, 25) * MINUTE})
                elif chance < 0.3:
                    fields.append({"group": f"customer {draw.randint(1, 5)}", "group_limit": 3})
                elif stored and chance < 0.36:
                    fields.append({"depends_on": (draw.choice(stored).id,)})
                else:
                    fields.append({})
            records = [self._record(queue, at, **each) for each in fields]
            records.append(self._record(queue, at, depends_on=(records[0].id,)))  # which is due another day
            await self._enqueue(records, at)
            stored += records
            taken = number // 3 * (9 - 3 * part) // 10
            while taken > 0:
                held = await self.driver.reserve((queue,), at + 10 * MINUTE, HOUR, min(taken, BATCH), "web-1")
                if not held:
                    break
                taken -= len(held)
                await self._settle(held, at + 12 * MINUTE)
        await self._leases(queue, number)
        await self._by_hand(queue)
        if draw.random() < 0.15:
            await self.driver.pause(queue)
            self.paused.add(queue)

    async def _settle(self, held: Sequence[Reserved], at: datetime) -> None:
        outcomes: list[Outcome] = []
        for each in held:
            chance = FIRST[len(outcomes)] if len(outcomes) < len(FIRST) else self._random.random()
            cause = int(self._random.paretovariate(0.6)) % CAUSES
            fault: dict[str, Any] = {
                "last_error": f"{ERRORS[cause]}: someone was refused",
                "error_class": ERRORS[cause],
                "fingerprint": f"cause-{cause}",
                "failed_at": at,
            }
            if chance < 0.5:
                outcomes.append(Ack(each.lease, b'"ok"'))
                self.due |= {id: max(self.due[id], at) for id in self._behind.get(each.job.id, ())}
            elif chance < 0.72:
                outcomes.append(Fail(each.lease, "all 3 attempts failed", 3, **fault))
            elif chance < 0.82:
                outcomes.append(Retry(each.lease, self.now + HOUR, each.job.attempts + 1, **fault))
                self.due[each.job.id] = self.now + HOUR
            elif chance < 0.9:
                outcomes.append(Retry(each.lease, at, each.job.attempts + 1, **fault))
                self.due[each.job.id] = at
            else:
                outcomes.append(Cancelled(each.lease, "not wanted"))
        outcomes = [with_trail(each.job, outcome, at) for each, outcome in zip(held, outcomes, strict=True)]
        assert not any(await self.driver.settle(outcomes, at))

    async def _leases(self, queue: str, number: int) -> None:
        """Some that run, and some whose lease ended without a word."""
        gone = await self.driver.reserve((queue,), self.now - 15 * MINUTE, 5 * MINUTE, max(1, number // 50), "gone-1")
        for each in gone:
            self.due[each.job.id] = self.now - 10 * MINUTE
        running = await self.driver.reserve((queue,), self.now - 12 * MINUTE, 2 * HOUR, max(1, number // 40), "web-2")
        assert not {each.job.id for each in running} & {each.job.id for each in gone}

    async def _by_hand(self, queue: str) -> None:
        """What operators did: requeued, cancelled, deleted."""
        ids = [info.job.id for info in await self._some(8, queue=queue, state=State.DLQ)]
        assert not any(await self.driver.requeue(ids[1:3], self.now - 8 * MINUTE))
        self.due |= dict.fromkeys(ids[1:3], self.now - 8 * MINUTE)
        unneeded = [id for id in ids[3:] if id not in self._behind][:1]
        assert not any(await self.driver.delete(unneeded))
        for id in unneeded:
            del self.due[id]
        ready = await self._some(3, queue=queue, state=State.READY)
        await self.driver.cancel([info.job.id for info in ready[1:] if not info.worker], self.now - 5 * MINUTE)

    async def _some(self, most: int, **query: Any) -> list[JobInfo]:
        found, _ = await read_items(self.driver.list, page=most, most=most, now=self.now, payloads=False, **query)
        return found

    # Flows -----------------------------------------------------------------------------------------------------------

    async def _flows(self) -> None:
        at, long = self.now - 2 * HOUR, min(MAX_CHAIN, max(120, self.jobs // 20))
        wide = [f"part{number:04}" for number in range(WIDE)]
        shapes: dict[str, list[tuple[str, Sequence[str]]]] = {
            "chain": [(f"{n:05}", [f"{n - 1:05}"] if n else []) for n in range(long)],
            "wide": [("root", []), *((part, ["root"]) for part in wide), ("join", wide)],
            "mixed": [("root", []), *((f"{n % TYPES_OF_ONE:02} {n}", ["root"]) for n in range(2 * TYPES_OF_ONE))],
            "diamond": [("a", []), ("b", ["a"]), ("c", ["a"]), ("d", ["b", "c"])],
            "alone": [("only", [])],
            "dead": [("a", []), ("b", ["a"]), ("c", ["b"])],
            "done": [("a", []), ("b", ["a"])],
            "cancelled": [("a", []), ("b", ["a"])],
            "<b>odd</b>": [("a", []), ("b", ["a"])],
            "o" * 200: [("a", []), ("b", ["a"])],
        }
        stored = {}
        for shape, steps in shapes.items():
            self.flows[shape] = f"flow-{shape}"
            stored[shape] = [
                self._record(
                    f"flow {shape}",
                    at,
                    id=f"{shape}.{name}",
                    type=f"app.{shape}.{name[:2]}",
                    flow_id=self.flows[shape],
                    depends_on=tuple(f"{shape}.{each}" for each in after),
                )
                for name, after in steps
            ]
            await self._enqueue(stored[shape], at)
        for shape, rounds in {"chain": 24, "wide": 2, "mixed": 2, "diamond": 2, "done": 2, "dead": 2}.items():
            for number in range(rounds):
                moment = at + (number + 1) * MINUTE
                held = await self.driver.reserve((f"flow {shape}",), moment, HOUR, WIDE // 2, "web-1")
                dies = shape == "dead" and number == 1
                outcomes: list[Outcome] = [
                    Fail(each.lease, "no", 3, moment, "app.errors.Error1: no", (), ERRORS[1], "cause-1")
                    if dies
                    else Ack(each.lease, b"1")
                    for each in held
                ]
                assert not any(await self.driver.settle(outcomes, moment))
                ended = {each.job.id for each in held}
                self.due |= {each.id: moment for each in stored[shape] if not ended.isdisjoint(each.depends_on)}
        await self.driver.cancel_flow("flow-cancelled", self.now - HOUR)

    # Workers, schedules, figures -------------------------------------------------------------------------------------

    async def _surroundings(self, names: Sequence[str]) -> None:
        await self.beat(self.now)
        minute = self.now.replace(second=0, microsecond=0)
        self.figures = [
            Figures(minute - ago * MINUTE, name, {"done": 3 + at, "failed": at % 3, "dead": 0})
            for ago in range(1, 4)
            for at, name in enumerate(names)
        ]
        await self.driver.add_figures(self.figures, self.now)

    async def beat(self, now: datetime) -> None:
        """Three workers that live, and two that are gone."""
        names, self.alive, self.served = self.names(), [], set()
        for number, ago in enumerate((1, 20, 40, 500, 90_000)):
            worker, queues, seen = f"web-{number} <b>", names[number : number + 12], now - timedelta(seconds=ago)
            if ago < 60:
                self.alive.append(worker)
                self.served.update(queues)
            info = WorkerInfo(worker, tuple(queues), 2, self.now - 9 * HOUR, 8, "host", 100, seen)
            await self.driver.beat(info, seen)

    async def _schedules(self, harbor: Harbor, names: Sequence[str]) -> None:
        for number in range(SCHEDULES):
            name = f"{HOSTILE[number % 6]} {number}" if number < 12 else f"nightly-{number:02}"
            await harbor.schedules.aadd(
                name, JobRequest(type=TYPES[number % 9], queue=names[number]), every=3600, by="ada"
            )
            self.schedules.append(name)
            if number % 7 == 0:
                self.paused_schedules += 1
                await harbor.schedules.apause(name, by="ada")

    async def _operation(self, harbor: Harbor) -> None:
        self.operation = (await harbor.dead(error=ERRORS[1]).arequeue(by="ada")).id
        slices = await self._some(1_000, queue=OPERATIONS_QUEUE)
        self.due |= {info.job.id: self.now for info in slices}
