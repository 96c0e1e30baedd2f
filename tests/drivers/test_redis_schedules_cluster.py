"""Schedules that come, go and move between the hash slots of a Cluster, while clients die, wait or send again."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from taskharbor.drivers import BackendUnavailable, JobRecord, ScheduleChange, StoredSchedule
from taskharbor.drivers.redis import RedisDriver, cluster_schedules, schedule_index
from taskharbor.drivers.redis.cluster_router import ClusterRouter
from taskharbor.drivers.redis.cluster_schedules import ClusterSchedules
from taskharbor.drivers.redis.schedule_index import INDEX
from tests.drivers.redis_stores import with_cluster_clients as live
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


NUMBERS = msgspec.msgpack.encode([1, "s", "a", 3, 4])
OLD, NEW = row("a", "old"), row("b", "new")
CHANGES = {
    "add": change(None, NEW, job("fired", "b")),
    "delete": change(OLD, None),
    "move": change(OLD, NEW, job("fired", "b")),
}
RESULTS = {"add": [NEW], "delete": [], "move": [NEW]}


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


async def half_finished(driver: RedisDriver) -> None:
    """Another client finishes what it finds, and dies before the row arrives."""
    dies_at(driver, "arrive", "before")
    with pytest.raises(Died):
        await driver.schedules()


def test_a_reply_is_lost_and_another_client_removes_the_note_meanwhile():
    """The repeat finds neither the row nor the note: what was prepared must not be dropped."""

    async def story(one, two, three):
        await one.change_schedules([change(None, OLD)], NOW)
        schedules: Any = schedules_of(one)
        real = schedules.leave

        async def repeated(*args: Any) -> Any:
            assert await real(*args) == 1
            await half_finished(two)
            return await real(*args)

        schedules.leave = repeated
        assert await one.change_schedules([CHANGES["move"]], NOW) == [True]
        assert await seen(three) == [NEW]
        assert await fired(three) == ["fired"]

    live(story, clients=3)


def test_what_is_finished_meanwhile_is_not_dropped(monkeypatch):
    """A client that checks an old row sees the note or the claim, whenever another client writes them."""
    monkeypatch.setattr(schedule_index, "SLOW_MS", -1000)
    monkeypatch.setattr(cluster_schedules, "DROPPED_AFTER_MS", -1000)

    async def story(one, two, three, four):
        await stopped(one, "move", "leave", "after")
        schedules: Any = schedules_of(three)
        looks: list[str] = []

        def disturbed(name: str, real: Any) -> Any:
            async def call(*args: Any) -> Any:
                found = await real(*args)
                looks.append(name)
                if len(looks) == 2:  # the first finds what is prepared, the next whether that is decided
                    await half_finished(two)
                return found

            return call

        for name in ("_look", "_entry"):
            setattr(schedules, name, disturbed(name, getattr(schedules, name)))
        await three.due_schedules(["b"], NOW)
        assert len(looks) > 2
        assert await seen(four) == [NEW]

    live(story, clients=4)


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


def test_due_ones_are_fired_while_the_node_of_the_index_is_away(monkeypatch):
    async def story(one, two):
        await one.change_schedules([change(None, OLD)], NOW)
        endpoint: Any = two.store.endpoint
        real = endpoint.run

        async def away(args: Any, **how: Any) -> Any:
            if args.home == schedule_index.HOME:
                raise BackendUnavailable("the node is away")
            return await real(args, **how)

        monkeypatch.setattr(endpoint, "run", away)
        assert list((await two.due_schedules(QUEUES, NOW)).items) == [OLD]
        new = row("a", "new")
        assert await two.change_schedules([change(OLD, new, job("fired", "a"))], NOW) == [True]
        assert list((await two.schedules(queue="a")).items) == [new]
        assert await fired(two) == ["fired"]
        for refused in (change(None, row("b", "x", name="other")), change(new, row("b", "x")), change(new, None)):
            with pytest.raises(BackendUnavailable):
                await two.change_schedules([refused], NOW)
        assert await seen(one) == [new]

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


def test_a_client_dies_and_its_queue_is_listed(monkeypatch):
    monkeypatch.setattr(schedule_index, "SLOW_MS", -1000)

    async def story(one, two):
        await stopped(one, "move", "leave", "after")
        assert list((await two.schedules(queue="a")).items) == []
        assert list((await two.schedules(queue="b")).items) == [NEW]
        assert remains() == {"coming": 0, "left": 0, "entries": 1}

    live(story)


@pytest.mark.parametrize("step", ["leave", "claim"])
@pytest.mark.parametrize("key", ["{a}:th:schedules:left", "{b}:th:schedules:coming"])
@pytest.mark.parametrize("damage", ["type", "bytes", "array", "numbers"])
def test_what_is_on_its_way_is_damaged(key, step, damage, monkeypatch):
    """It is lost. But nothing fails, and the name is free again."""
    monkeypatch.setattr(schedule_index, "SLOW_MS", -1000)

    async def story(one, two):
        await stopped(one, "move", step, "after")
        with servers.shared_cluster().client() as client:
            for field in client.hkeys(key):
                values = {"bytes": b"\xff\n\xff", "array": msgspec.msgpack.encode([1]), "numbers": NUMBERS}
                client.hset(key, field, values.get(damage, b""))
            if damage == "type":
                client.delete(key)
                client.set(key, "damaged")
        for asked in ({}, {"names": ["s"]}, {"queue": "a"}, {"queue": "b"}):
            await two.schedules(**asked)
        await two.due_schedules(QUEUES, NOW)
        other = row("a", "other")
        (is_added,) = await two.change_schedules([change(None, other)], NOW)
        assert await seen(two) == [other if is_added else NEW]
        assert await two.change_schedules([change(other if is_added else NEW, None)], NOW) == [True]
        assert await seen(two) == []

    live(story)
