"""Stores for the tests of `heads`: one of each kind, emptied; and a crowd that nobody arranged, with its truth."""

import functools
import itertools
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from taskharbor.conformance.model import ContractModel
from taskharbor.drivers import Ack, Driver, Fail, JobRecord, Outcome, Retry, State, replace
from tests.servers import postgres
from tests.servers import redis as servers

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
QUEUES = ["mail", "mail ", "%_*'\"", "☃" * 85, "q" * 255, "Mail"]
GROUPS = [None, None, None, "g", "g" * 255, "☃ %'", "full"]
_number = itertools.count()


@functools.cache
def _database() -> str:
    return postgres.shared().address(postgres.shared().store())


def _postgres(folder: Path) -> str:
    postgres.empty(_database())
    return _database()


def _redis(folder: Path) -> str:
    servers.shared().empty()
    return servers.shared().url


def _cluster(folder: Path) -> str:
    servers.shared_cluster().empty()
    return f"{servers.shared_cluster().url}?checks=0"


class Place(NamedTuple):
    lane: str
    empty: Callable[[Path], str]
    """An empty store: its DSN."""


PLACES = {
    "memory": Place("threads-memory", lambda folder: f"memory://heads-{next(_number)}"),
    "sqlite": Place("sqlite", lambda folder: f"sqlite:///{folder}/jobs.db?synchronous=normal"),
    "postgres": Place("locks-postgres", _postgres),
    "redis": Place("redis", _redis),
    "cluster": Place("races-cluster", _cluster),
}
on_every_store = pytest.mark.parametrize(
    "place", [pytest.param(name, marks=pytest.mark.lane(place.lane)) for name, place in PLACES.items()]
)


class Crowd:
    """Random calls on a driver, and the model beside it, which believes what the driver reserved."""

    def __init__(self, driver: Driver, seed: int) -> None:
        self.driver, self.pick, self.model = driver, random.Random(seed), ContractModel()
        self.now = NOW
        self.made = 0
        self.dependents: dict[str, str] = {}

    async def come(self, jobs: int) -> None:
        """Enqueue jobs of every kind in random order, and run some of them, until there are this many."""
        while self.made < jobs:
            self.now += self.pick.choice([timedelta(0), SECOND, 20 * SECOND])
            await self._enqueue(min(200, jobs - self.made))
            await self._work(self.pick.sample(QUEUES, 2))
        for queue in QUEUES[:2]:
            await self.driver.pause(queue)
            self.model.paused.add(queue)
        self.now += 45 * SECOND  # more became due, and leases ended, and no reserve has come since

    async def _enqueue(self, count: int) -> None:
        records = [self._record() for _ in range(count)]
        for place in self.pick.sample(range(1, count), count // 20):
            before = records[place - 1].id
            records[place] = replace(records[place], depends_on=(before,))
            self.dependents[before] = records[place].id
        await self.driver.enqueue(records, self.now)
        self.model.store({record.id: record for record in records}, self.now)

    def _record(self) -> JobRecord:
        self.made += 1
        group = self.pick.choice(GROUPS)
        run_at = self.pick.choice([None, None, None, -1, 5, 30, 60, 9000])
        return JobRecord(
            id=f"{self.made * 7919 % 999_983:06d}",
            type="t",
            queue=self.pick.choice(QUEUES),
            payload=b"x" * self.pick.choice([2, 2, 5000]),
            group=group,
            group_limit=self.pick.choice([0, 0, 2]) if group not in (None, "full") else 0,
            priority=self.pick.choice([0, 0, 0, -3, 7]),
            run_at=None if run_at is None else self.now + run_at * SECOND,
            created_at=self.now,
        )

    async def _work(self, queues: list[str]) -> None:
        lease = self.pick.choice([5, 30, 9000]) * SECOND
        held = await self.driver.reserve(queues, self.now, lease, self.pick.choice([10, 100]), "w")
        for each in held:
            self.model.grant(self.model.jobs[each.job.id], each.lease, self.now, "w")
        outcomes: list[Outcome] = []
        for each in held:
            run_at = self.now + self.pick.choice([-5, 40, 9000]) * SECOND
            outcomes += self.pick.choice(
                [
                    [],
                    [Ack(each.lease)],
                    [Fail(each.lease, "no", 1, self.now)],
                    [Retry(each.lease, run_at, 1, "no", self.now)],
                ]
            )
        assert await self.driver.settle(outcomes, self.now) == [None] * len(outcomes)
        for outcome in outcomes:
            self._settle(outcome)
        dead = [outcome.lease.job_id for outcome in outcomes if isinstance(outcome, Fail)][:2]
        await self.driver.requeue(dead, self.now)
        self.model.requeue(dead, self.now, None, reset_attempts=False)

    def _settle(self, outcome: Outcome) -> None:
        """An ack without the model's search for dependents among all jobs: there may be many."""
        job = self.model.jobs[outcome.lease.job_id]
        if not isinstance(outcome, Ack):
            self.model.settle([outcome], self.now)
            return
        self.model.finish(job, State.DONE, self.now, lost=0)
        dependent = self.model.jobs.get(self.dependents.get(job.record.id, ""))
        if dependent is not None and dependent.lasting is State.BLOCKED:
            self.model.join(dependent, self.now)

    async def truth(self) -> dict[str, tuple[int, datetime | None]]:
        """Of each queue how many are ready, by a listing of everything, and since when the oldest is, by the model."""
        ready = dict.fromkeys(QUEUES, 0)
        for queue in QUEUES:
            cursor = None
            while True:
                page = await self.driver.list(now=self.now, queue=queue, state="ready", limit=1000, cursor=cursor)
                ready[queue] += len(page.items)
                cursor = page.cursor
                if cursor is None:
                    break
        return {queue: (ready[queue], self.model.oldest(queue, self.now)) for queue in QUEUES}
