"""Schedules that come, go and move between the hash slots of a Cluster, while clients die, wait or send again."""

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor.drivers import BackendUnavailable, JobRecord, ScheduleChange, StoredSchedule
from taskharbor.drivers.redis import RedisDriver, cluster_schedules, schedule_index
from taskharbor.drivers.redis.cluster_router import ClusterRouter
from taskharbor.drivers.redis.cluster_schedules import ClusterSchedules
from taskharbor.drivers.redis.schedule_index import INDEX
from tests import lanes
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
QUEUES = ("a", "b", "c")  # on different nodes
STEPS = {
    "add": ["prepare", "claim", "arrive"],
    "delete": ["leave", "release"],
    "move": ["prepare", "leave", "claim", "left", "arrive"],
}
DECIDING = {"add": "claim", "delete": "leave", "move": "leave"}


class Died(BaseException):
    """The client was killed."""


def row(queue: str, revision: str, *, name: str = "s", at: datetime | None = NOW) -> StoredSchedule:
    return StoredSchedule(name=name, queue=queue, revision=revision, next_at=at, body=revision.encode())


def job(id: str, queue: str) -> JobRecord:
    return JobRecord(id=id, type="t", queue=queue, created_at=NOW)


def change(old: StoredSchedule | None, new: StoredSchedule | None, *jobs: JobRecord) -> ScheduleChange:
    name = next(row.name for row in (new, old) if row is not None)
    return ScheduleChange(name=name, expect=None if old is None else old.revision, to=new, jobs=jobs)


OLD, NEW = row("a", "old"), row("b", "new")
CHANGES = {
    "add": change(None, NEW, job("fired", "b")),
    "delete": change(OLD, None),
    "move": change(OLD, NEW, job("fired", "b")),
}
RESULTS = {"add": [NEW], "delete": [], "move": [NEW]}


def live(story: Any, clients: int = 2) -> None:
    async def run() -> None:
        servers.shared_cluster().empty()
        drivers = [RedisDriver(f"{servers.shared_cluster().url}?checks=0") for _ in range(clients)]
        for driver in drivers:
            await driver.open()
        try:
            await story(*drivers)
        finally:
            for driver in drivers:
                await driver.close()

    asyncio.run(run())


def schedules_of(driver: RedisDriver) -> ClusterSchedules:
    assert isinstance(driver.store.router, ClusterRouter)
    return driver.store.router.schedules


def dies_at(driver: RedisDriver, step: str, when: str) -> None:
    """The client dies before or after this step."""
    schedules: Any = schedules_of(driver)
    real = getattr(schedules, step)

    async def last_breath(*args: Any, **named: Any) -> None:
        if when == "after":
            await real(*args, **named)
        raise Died

    setattr(schedules, step, last_breath)


async def stopped(driver: RedisDriver, what: str, step: str, when: str) -> None:
    """Make a change with a client that dies at a step."""
    if what != "add":
        assert await driver.change_schedules([change(None, OLD)], NOW) == [True]
    dies_at(driver, step, when)
    with pytest.raises(Died):
        await driver.change_schedules([CHANGES[what]], NOW)


def is_decided(what: str, step: str, when: str) -> bool:
    steps = STEPS[what]
    return (steps.index(step), when) >= (steps.index(DECIDING[what]), "after") and (step, when) != (
        DECIDING[what],
        "before",
    )


async def seen(driver: RedisDriver) -> list[StoredSchedule]:
    """What listings show, which all agree."""
    by_name = list((await driver.schedules()).items)
    assert list((await driver.schedules(names=["s"])).items) == by_name
    assert [one for queue in QUEUES for one in (await driver.schedules(queue=queue)).items] == by_name
    assert list((await driver.due_schedules(QUEUES, NOW)).items) == by_name
    return by_name


async def fired(driver: RedisDriver) -> list[str]:
    """The jobs that changes have stored."""
    return [held.job.id for held in await driver.reserve(QUEUES, NOW, timedelta(seconds=9), 99)]


def remains() -> dict[str, int]:
    """What is left beside rows, index and jobs."""
    with servers.shared_cluster().client() as client:
        found = {name: sum(client.hlen(f"{{{q}}}:th:schedules:{name}") for q in QUEUES) for name in ("coming", "left")}
        return found | {"entries": client.zcard(INDEX)}


CRASHES = [(what, step, when) for what, steps in STEPS.items() for step in steps for when in ("before", "after")]


@pytest.mark.parametrize("asked", [{}, {"names": ["s"]}], ids=["all", "by name"])
@pytest.mark.parametrize(("what", "step", "when"), CRASHES)
def test_a_client_dies_and_another_lists(what, step, when, asked):
    """The name, all names: each of them finishes what was decided, and shows nothing else."""

    async def story(one, two):
        await stopped(one, what, step, when)
        expected = RESULTS[what] if is_decided(what, step, when) else [] if what == "add" else [OLD]
        assert list((await two.schedules(**asked)).items) == expected
        assert await seen(two) == expected
        assert await fired(two) == (["fired"] if expected == [NEW] else [])
        undecided = what != "delete" and not is_decided(what, step, when) and (step, when) != ("prepare", "before")
        assert remains() == {"coming": int(undecided), "left": 0, "entries": len(expected)}

    live(story)


@pytest.mark.parametrize(("what", "step", "when"), CRASHES)
def test_a_client_dies_and_the_change_is_sent_again(what, step, when):
    async def story(one, two):
        await stopped(one, what, step, when)
        assert await two.change_schedules([CHANGES[what]], NOW) == [True]
        assert await seen(two) == RESULTS[what]
        assert await fired(two) == (["fired"] if what != "delete" else [])

    live(story)


@pytest.mark.parametrize(("what", "step", "when"), CRASHES)
def test_a_client_dies_and_another_changes_the_same_row(what, step, when):
    """From the revision before, and from the one behind: one of the two happens. An add needs a free name."""

    async def story(one, two):
        await stopped(one, what, step, when)
        before = None if what == "add" else OLD
        behind = None if what == "delete" else NEW
        other, third = row("c", "other"), row("a", "third")
        answers = await two.change_schedules([change(before, other), change(behind, third)], NOW)
        assert answers == ([False, True] if is_decided(what, step, when) else [True, False])
        assert await seen(two) == ([third] if answers[1] else [other])

    live(story)


@pytest.mark.parametrize(("what", "step", "when"), [crash for crash in CRASHES if crash[0] != "delete"])
def test_a_client_dies_and_a_worker_looks_for_what_is_due(what, step, when, monkeypatch):
    """It finishes what was decided, though nobody names the schedule; and drops what was not, after a day."""
    monkeypatch.setattr(schedule_index, "SLOW_MS", -1000)

    async def story(one, two):
        await stopped(one, what, step, when)
        await two.due_schedules(["b"], NOW)
        found = list((await two.due_schedules(QUEUES, NOW)).items)
        assert found == (RESULTS[what] if is_decided(what, step, when) else [] if what == "add" else [OLD])
        assert remains()["left"] == 0
        schedules_of(two)._undecided.clear()
        monkeypatch.setattr(cluster_schedules, "DROPPED_AFTER_MS", -1000)
        await two.due_schedules(["b"], NOW)
        assert remains()["coming"] == 0
        assert await seen(two) == found

    live(story)


@pytest.mark.parametrize("step", ["claim", "leave"])
def test_nothing_is_decided_that_may_have_been_dropped(step, monkeypatch):
    """A client that stood still for half a day between its steps begins again."""
    monkeypatch.setattr(cluster_schedules, "DECIDED_WITHIN_MS", -1000)

    async def story(one, two):
        with pytest.raises(BackendUnavailable, match="again and again"):
            await one.change_schedules([change(None, NEW)], NOW)
        assert await seen(two) == []
        assert remains() == {"coming": 0, "left": 0, "entries": 0}

    async def move(one, two):
        monkeypatch.setattr(cluster_schedules, "DECIDED_WITHIN_MS", 1_000_000)
        await one.change_schedules([change(None, OLD)], NOW)
        monkeypatch.setattr(cluster_schedules, "DECIDED_WITHIN_MS", -1000)
        with pytest.raises(BackendUnavailable, match="again and again"):
            await one.change_schedules([change(OLD, NEW)], NOW)
        assert await seen(two) == [OLD]
        assert remains() == {"coming": 0, "left": 0, "entries": 1}

    live(story if step == "claim" else move)


def test_an_entry_that_the_index_lost_comes_back():
    """When the row is changed, and when its queue is listed."""

    async def story(one, two):
        with servers.shared_cluster().client() as client:
            await one.change_schedules([change(None, OLD)], NOW)
            new = row("a", "new")
            for driver, call in (
                (one, lambda driver: driver.change_schedules([change(OLD, new)], NOW)),
                (two, lambda driver: driver.schedules(queue="a")),
            ):
                client.delete(INDEX)
                assert list((await driver.schedules()).items) == []
                await call(driver)
                assert list((await driver.schedules()).items) == [new]
                assert list((await driver.schedules(names=["s"])).items) == [new]

    live(story)


def test_an_entry_that_the_index_has_stays():
    """Another client moved the row after this one had met it."""

    async def story(one, two):
        await one.change_schedules([change(None, OLD), change(OLD, NEW)], NOW)
        await schedules_of(two).confirm([("a", "s"), ("c", "other")])
        assert await seen(two) == [NEW]
        assert remains() == {"coming": 0, "left": 0, "entries": 1}  # "other" has no row: listings remove it

    live(story)


def test_a_refused_change_leaves_nothing_behind():
    async def story(one, two):
        await one.change_schedules([change(None, OLD)], NOW)
        other = row("b", "other")
        refused = [change(None, other, job("x", "b")), change(NEW, other, job("x", "b")), change(NEW, None)]
        assert await two.change_schedules(refused, NOW) == [False] * 3
        assert await seen(two) == [OLD]
        assert await fired(two) == []
        assert remains() == {"coming": 0, "left": 0, "entries": 1}

    live(story)


def test_a_row_that_has_the_revision_already_stays_where_it_is():
    async def story(one, two):
        await one.change_schedules([change(None, OLD)], NOW)
        there = row("b", OLD.revision)
        assert await two.change_schedules([change(OLD, there), change(None, there)], NOW) == [True, True]
        assert await seen(two) == [OLD]

    live(story)


def test_jobs_of_a_queue_come_in_the_order_of_their_changes():
    """Of rows that are there, that are new, and that come from elsewhere."""

    async def story(one, two):
        names = "edfabc"
        old = [row("b" if name in "af" else "a", f"{name}1", name=name) for name in names if name in "abf"]
        await one.change_schedules([change(None, each) for each in old], NOW)
        known = {each.name: each for each in old}
        changes = [change(known.get(name), row("a", f"{name}2", name=name), job(f"{name}-job", "a")) for name in names]
        assert await two.change_schedules(changes, NOW) == [True] * 6
        assert await fired(two) == [f"{name}-job" for name in names]
        assert [each.revision for each in (await two.schedules(queue="a")).items] == [f"{name}2" for name in "abcdef"]

    live(story)


def test_a_step_that_arrives_late_does_nothing():
    """Each step of a move, long after it is over, while a client moves the same row again and dies half-way."""

    async def story(one, two):
        sent: list[Any] = []
        schedules: Any = schedules_of(one)

        def noted(real: Any) -> Any:
            async def call(*args: Any, **named: Any) -> Any:
                sent.append((real, args, named))
                return await real(*args, **named)

            return call

        for step in ("claim", "leave", "left", "arrive", "drop"):
            setattr(schedules, step, noted(getattr(schedules, step)))
        third, fourth = row("a", "third"), row("c", "fourth")
        await one.change_schedules([change(None, OLD), change(OLD, NEW), change(NEW, third)], NOW)
        assert len(sent) == 10
        dies_at(two, "leave", "after")
        with pytest.raises(Died):
            await two.change_schedules([change(third, fourth)], NOW)
        for real, args, named in sent:
            await real(*args, **named)
        assert remains()["left"] == 1
        assert await seen(one) == [fourth]

    live(story)


# Any steps of several clients, in any order


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
    for seed in range(lanes.seed(), lanes.seed() + lanes.figure(test=4, chaos=400)):
        servers.shared_cluster().empty()
        try:
            tally += asyncio.run(told(seed, clients=5, turns=25))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert tally["True"] > tally.total() / 5
    assert tally["None"] > tally.total() / 50
