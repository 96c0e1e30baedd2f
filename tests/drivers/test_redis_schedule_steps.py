"""Changes of schedules by several clients on a Cluster, each of whose steps may wait, fail, or arrive twice."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from taskharbor.drivers import ScheduleChange, StoredSchedule
from taskharbor.drivers.redis import RedisDriver
from tests import lanes
from tests.drivers.test_redis_schedules_cluster import NOW, QUEUES, Died, job, row, schedules_of
from tests.servers import redis as servers


class Shaky:
    """Steps of a client that waits before each of them, dies at some, repeats some because their replies were lost, and
    whose packets may arrive a second time much later."""

    def __init__(self, driver: RedisDriver, seed: int) -> None:
        self._random = random.Random(seed)
        self.late: list[asyncio.Task[None]] = []
        schedules: Any = schedules_of(driver)
        for step in ("prepare", "claim", "leave", "left", "arrive", "release", "drop"):
            setattr(schedules, step, self._shaken(step, getattr(schedules, step)))

    async def _wait(self) -> None:
        for _ in range(self._random.choice((0, 0, 1, 5, 40))):
            await asyncio.sleep(0)

    def _shaken(self, step: str, real: Any) -> Any:
        async def call(*args: Any, **named: Any) -> Any:
            await self._wait()
            if self._random.random() < 0.05:
                raise Died
            found = await real(*args, **named)
            if step != "prepare" and self._random.random() < 0.2:
                await self._wait()
                found = await real(*args, **named)
            if step != "prepare" and self._random.random() < 0.2:
                self.late.append(asyncio.create_task(self._again(real, args, named)))
            if self._random.random() < 0.05:
                raise Died
            return found

        return call

    async def _again(self, real: Any, args: Any, named: Any) -> None:
        for _ in range(self._random.randrange(200)):
            await asyncio.sleep(0)
        await real(*args, **named)


class History:
    """Who changed what: each change has a job of its own, which tells whether it happened."""

    def __init__(self) -> None:
        self.made = 0
        self.changes: dict[str, ScheduleChange] = {}
        self.answers: dict[str, bool] = {}

    def change(self, chance: random.Random, known: StoredSchedule | None, name: str) -> ScheduleChange:
        self.made += 1
        to = None
        if known is None or chance.random() < 0.8:
            queue = chance.choice(QUEUES) if known is None or chance.random() < 0.6 else known.queue
            to = row(queue, f"r{self.made:05}", name=name)
        jobs = () if to is None else (job(f"j{self.made:05}", to.queue),)
        return ScheduleChange(name=name, expect=None if known is None else known.revision, to=to, jobs=jobs)


async def client_of(driver: RedisDriver, history: History, seed: int, turns: int) -> None:
    chance = random.Random(seed)
    for _ in range(turns):
        try:
            await turn(driver, history, chance)
        except Died:  # another client begins in its place
            continue


async def turn(driver: RedisDriver, history: History, chance: random.Random) -> None:
    """Read a row, and change it."""
    name = chance.choice("st")
    if chance.random() < 0.7:
        found = (await driver.schedules(names=[name])).items
    else:
        found = tuple(one for one in (await driver.due_schedules(QUEUES, NOW)).items if one.name == name)
    wanted = history.change(chance, found[0] if found else None, name)
    id = wanted.jobs[0].id if wanted.jobs else f"d{history.made:05}"
    history.changes[id] = wanted
    (history.answers[id],) = await driver.change_schedules([wanted], NOW)


async def told(seed: int, clients: int, turns: int) -> Counter[str]:
    drivers = [RedisDriver(f"{servers.shared_cluster().url}?checks=0") for _ in range(clients + 1)]
    for driver in drivers:
        await driver.open()
    history = History()
    shaky = [Shaky(driver, seed * 100 + number) for number, driver in enumerate(drivers[:-1])]
    try:
        await asyncio.gather(
            *(client_of(driver, history, seed * 1000 + number, turns) for number, driver in enumerate(drivers[:-1]))
        )
        await asyncio.gather(*(task for one in shaky for task in one.late), return_exceptions=True)
        return await judged(drivers[-1], history)
    finally:
        for driver in drivers:
            await driver.close()


async def judged(driver: RedisDriver, history: History) -> Counter[str]:
    """What happened fits together: a row has one successor, a refused change stored nothing, all listings agree."""
    listed = list((await driver.schedules()).items)
    assert len({one.name for one in listed}) == len(listed)
    due = (await driver.due_schedules(QUEUES, NOW)).items
    assert sorted(due, key=lambda one: one.name) == listed
    by_queue = [one for queue in QUEUES for one in (await driver.schedules(queue=queue)).items]
    assert sorted(by_queue, key=lambda one: one.name) == listed
    stored = {info.job.id for info in (await driver.list(now=NOW, limit=10_000)).items}
    happened: Counter[tuple[str, str | None]] = Counter()  # name and the revision that was replaced
    rows = {one.revision for one in listed}
    gone: set[str | None] = set()  # revisions that were deleted, perhaps
    tally: Counter[str] = Counter()
    for id, wanted in history.changes.items():
        answer = history.answers.get(id)
        tally[str(answer)] += 1
        if wanted.to is None:  # True also if another client deleted the row; False if it was added again since
            gone.add(wanted.expect)
            continue
        assert answer is None or (id in stored) is answer, f"{id} was answered {answer}"
        happened[wanted.name, wanted.expect] += id in stored
    for id, wanted in history.changes.items():
        if id in stored and wanted.to is not None:
            revision = wanted.to.revision
            after = happened[wanted.name, revision]
            assert after < 2, f"{after} changes from {revision}"
            assert after or revision in rows or revision in gone, f"{revision} was lost"
    return tally


@pytest.mark.lane("races-cluster")
@pytest.mark.timeout(3600)
def test_steps_of_several_clients_in_any_order() -> None:
    tally: Counter[str] = Counter()
    for seed in range(lanes.seed(), lanes.seed() + lanes.figure(test=4, full=100)):
        servers.shared_cluster().empty()
        try:
            tally += asyncio.run(told(seed, clients=5, turns=25))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert tally["True"] > tally.total() / 5
    assert tally["None"] > tally.total() / 50
