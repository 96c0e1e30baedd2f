"""Schedules on PostgreSQL: many clients for the same slots, server processes that are killed in the middle of a change,
calls that meet, large calls, and rows that another program damaged."""

import asyncio
import random
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from taskharbor.drivers import BackendUnavailable, InvalidJob, JobRecord, ScheduleChange, SchedulePage, StoredSchedule
from taskharbor.drivers.postgres import schedules, wait
from tests import lanes
from tests.drivers.postgres_recount import mistakes
from tests.drivers.postgres_stores import deadlocks, emptied, opened, store_test

pytestmark = pytest.mark.lane("postgres")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
EVERY = timedelta(seconds=1)
NAMES = ("one", "two", "three")
PATIENCE_S = 60.0
WAITS_FOR_LOCK = "select 1 from pg_locks where not granted"
OTHERS = "datname = current_database() and application_name = 'taskharbor'"


def row(name: str, revision: str = "1", queue: str = "q", next_at: datetime | None = NOW) -> StoredSchedule:
    return StoredSchedule(name=name, queue=queue, revision=revision, next_at=next_at, body=b"body")


def added(name: str, revision: str = "1", *jobs: str) -> ScheduleChange:
    return ScheduleChange(name=name, expect=None, to=row(name, revision), jobs=stored(*jobs))


def stored(*ids: str) -> tuple[JobRecord, ...]:
    return tuple(JobRecord(id=id, type="t", queue="q") for id in ids)


async def until(address: str, query: str) -> None:
    async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
        async with asyncio.timeout(PATIENCE_S):
            while not await (await connection.execute(query.encode())).fetchall():
                await asyncio.sleep(0)


@asynccontextmanager
async def held_back(address: str, id: str):
    """A transaction that has stored a job: who stores the same one has to wait. Yields what lets it go."""
    async with await psycopg.AsyncConnection.connect(address) as connection:
        await connection.execute("insert into taskharbor.jobs (id, queue, state) values (%s, 'q', 2)", (id,))
        yield connection.rollback
        await connection.rollback()


class Fleet:
    """Clients that all fire what is due: each slot of each schedule is one job."""

    def __init__(self, slots: int, seed: int) -> None:
        self.chance = random.Random(seed)
        self.last = NOW + EVERY * (slots - 1)
        self.fired = 0

    def fire(self, due: StoredSchedule) -> ScheduleChange:
        assert due.next_at is not None
        slot = round((due.next_at - NOW) / EVERY)
        job = JobRecord(id=f"{due.name} {slot:05}", type="t", queue=due.queue, group=due.name, group_limit=2)
        after = due.next_at + EVERY if due.next_at < self.last else None
        revision = f"{self.chance.getrandbits(64):x}"
        to = StoredSchedule(name=due.name, queue=due.queue, revision=revision, next_at=after, body=due.body)
        return ScheduleChange(name=due.name, expect=due.revision, to=to, jobs=(job,))

    async def work(self, driver) -> None:
        while True:
            with suppress(BackendUnavailable):
                page = await driver.due_schedules(["q"], self.last)
                if not page.items:
                    return
                changes = [self.fire(due) for due in page.items]
                self.chance.shuffle(changes)
                made = await driver.change_schedules(changes, self.last)
                self.fired += sum(made)


def race(clients: int, slots: int, killer=None) -> int:
    """How many changes were made, as the clients saw it, while `killer` ran. Every slot of a schedule has one job."""
    address, seed = emptied(), lanes.seed()
    fleet = Fleet(slots, seed)

    async def live() -> None:
        async with opened(address, clients) as drivers:
            await drivers[0].change_schedules([added(name) for name in NAMES], NOW)
            beside = None if killer is None else asyncio.create_task(killer(address))
            async with asyncio.timeout(lanes.figure(test=120, full=1800)):
                await asyncio.gather(*(fleet.work(driver) for driver in drivers))
            if beside is not None:
                beside.cancel()
                with suppress(asyncio.CancelledError):
                    await beside

    asyncio.run(live())
    with psycopg.connect(address) as connection:
        found = [id for (id,) in connection.execute("select id from taskharbor.jobs order by id").fetchall()]
    assert found == sorted(f"{name} {slot:05}" for name in NAMES for slot in range(slots)), f"TASKHARBOR_SEED={seed}"
    assert deadlocks(address) == 0
    assert mistakes(address) == []
    return fleet.fired


def test_many_clients_for_the_same_slots():
    slots = lanes.figure(test=20, full=200)
    assert race(lanes.figure(test=8, full=64), slots) == slots * len(NAMES)


def test_server_processes_that_are_killed_meanwhile():
    """A change whose reply was lost is sent again: it may find that another client was quicker since."""
    chance = random.Random(lanes.seed())
    kills = 0

    async def kill(address: str) -> None:
        nonlocal kills
        query = f"select pid from pg_stat_activity where {OTHERS} and state = 'active' order by pid"
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
            while True:
                found = await (await connection.execute(query.encode())).fetchall()
                if found:
                    await connection.execute("select pg_terminate_backend(%s)", chance.choice(found))
                    kills += 1
                await asyncio.sleep(0)

    assert race(lanes.figure(test=4, full=16), lanes.figure(test=15, full=150), kill) > 0
    assert kills > 0


@store_test(2)
async def test_a_call_that_is_killed_half_way_leaves_nothing(address, driver, other):
    """It has changed its rows and waits for a job: the server process ends, and the call is sent again by itself."""
    changes = [ScheduleChange(name="a", expect="1", to=row("a", "2"), jobs=stored("x", "y")), added("b", "2", "z")]
    await driver.change_schedules([added("a")], NOW)
    async with held_back(address, "z") as let_go:
        call = asyncio.create_task(driver.change_schedules(changes, NOW))
        await until(address, WAITS_FOR_LOCK)
        (old,) = await other._execute(f"select pid from pg_stat_activity where {OTHERS} and wait_event_type = 'Lock'")
        await other._execute("select pg_terminate_backend(cast(? as integer))", *old)
        await until(address, f"{WAITS_FOR_LOCK} and pid <> {old[0]}")
        assert (await other.schedules()).items == (row("a"),)
        assert (await other.list(now=NOW)).items == ()
        await let_go()
        assert await call == [True, True]
    assert (await other.schedules()).items == (row("a", "2"), row("b", "2"))
    assert [item.job.id for item in (await other.list(now=NOW)).items] == ["x", "y", "z"]
    assert await driver.change_schedules(changes, NOW) == [True, True]


@pytest.mark.parametrize("first", ["ends well", "is cancelled"])
@store_test(3)
async def test_two_clients_add_the_same_schedule(address, driver, second, other, first):
    """The second waits for the first, and finds what came of it: no exception, and never two."""
    async with held_back(address, "x") as let_go:
        adding = asyncio.create_task(driver.change_schedules([added("a", "1", "x")], NOW))
        await until(address, WAITS_FOR_LOCK)
        (pid,) = await other._execute(f"select pid from pg_stat_activity where {OTHERS} and wait_event_type = 'Lock'")
        again = asyncio.create_task(second.change_schedules([added("a", "2", "y")], NOW))
        await until(address, f"{WAITS_FOR_LOCK} and pid <> {pid[0]}")
        if first == "is cancelled":
            adding.cancel()
            with suppress(asyncio.CancelledError):
                await adding
            assert await again == [True]
        else:
            await let_go()
            assert await adding == [True]
            assert await again == [False]
    (found,) = (await other.schedules()).items
    (job,) = (await other.list(now=NOW)).items
    assert (found.revision, job.job.id) == (("2", "y") if first == "is cancelled" else ("1", "x"))


@store_test(3)
async def test_a_change_waits_for_one_that_deletes(address, driver, second, third):
    """What is added behind a delete that is under way is there afterwards. A delete behind an add is refused."""
    await driver.change_schedules([added("a")], NOW)
    async with held_back(address, "x") as let_go:
        gone = [ScheduleChange(name="a", expect="1", to=None), added("b", "1", "x")]
        first = asyncio.create_task(driver.change_schedules(gone, NOW))
        await until(address, WAITS_FOR_LOCK)
        later = [
            asyncio.create_task(second.change_schedules([added("a", "2")], NOW)),
            asyncio.create_task(third.change_schedules([ScheduleChange(name="b", expect="0", to=None)], NOW)),
        ]
        await until(address, "select count(*) from pg_locks where not granted having count(*) > 2")
        await let_go()
        assert await first == [True, True]
        assert await asyncio.gather(*later) == [[True], [False]]
    assert (await driver.schedules()).items == (row("a", "2"), row("b"))


@store_test()
async def test_a_call_of_many_changes_is_sent_in_parts(address, driver, monkeypatch):
    """As many as one statement should hold. What cannot be stored is refused before the first of them."""
    monkeypatch.setattr(schedules, "BATCH_CHANGES", 3)
    monkeypatch.setattr(schedules, "BATCH_BYTES", 10)
    monkeypatch.setattr(schedules, "MAX_CALL_BYTES", 20)
    sizes = [len(batch) for batch in schedules.change_batches([added(f"{n}") for n in range(5)], 1000)]
    assert sizes == [2, 2, 1]
    gone = [ScheduleChange(name=f"{n}", expect=None, to=None) for n in range(7)]
    assert [len(batch) for batch in schedules.change_batches(gone, 1000)] == [3, 3, 1]
    many = [added(f"{n}", "1", f"job{n}") for n in range(5)]
    large = JobRecord(id="x", type="t", queue="q", payload=b"x" * 11)
    for wrong in (
        ScheduleChange(name="x", expect=None, to=row("x"), jobs=(large, large)),
        ScheduleChange(name="x", expect=None, to=row("y")),
    ):
        with pytest.raises(InvalidJob):
            await driver.change_schedules([*many, wrong], NOW)
    assert (await driver.schedules()).items == ()
    assert await driver.change_schedules([*many, added("0", "2")], NOW) == [True] * 5 + [False]
    assert len((await driver.list(now=NOW)).items) == 5
    assert await driver.change_schedules([], NOW) == []


@store_test(2)
async def test_a_job_of_a_schedule_sends_a_hint(address, driver, other, monkeypatch):
    """To those who wait for its queue; nobody polls here."""
    monkeypatch.setattr(wait, "SWEEP_S", 600.0)
    monkeypatch.setattr(wait, "LISTENING_S", 600.0)
    waiting = asyncio.create_task(other.wait(["q"], 600))
    await until(address, "select 1 from taskharbor.waiting where queue = 'q'")
    await driver.change_schedules([added("a")], NOW)
    assert await driver._execute("select queue from taskharbor.waiting") == [("q",)]
    change = ScheduleChange(name="a", expect="1", to=row("a", "2"), jobs=stored("x"))
    assert await driver.change_schedules([added("b"), change, added("c")], NOW) == [True] * 3
    async with asyncio.timeout(PATIENCE_S):
        assert await waiting is True


@store_test()
async def test_a_job_of_a_schedule_sets_the_limit_of_its_group(address, driver):
    """The first job that is stored does: not one of a change that is refused."""
    jobs = [JobRecord(id=f"{n}", type="t", queue="q", group="g", group_limit=n + 1) for n in range(5)]
    await driver.change_schedules([added("a")], NOW)
    refused = ScheduleChange(name="a", expect="0", to=row("a", "2"), jobs=(jobs[4],))
    made = ScheduleChange(name="a", expect="1", to=row("a", "2"), jobs=(jobs[2], jobs[4], jobs[1]))
    assert await driver.change_schedules([refused, made], NOW) == [False, True]
    held = await driver.reserve(["q"], NOW, EVERY, 10)
    assert [each.job.id for each in held] == ["2", "4", "1"]
    assert len({each.lease.token for each in held}) == 3
    more = [JobRecord(id=f"m{n}", type="t", queue="q", group="g") for n in range(3)]
    await driver.enqueue(more, NOW)
    assert await driver.reserve(["q"], NOW, EVERY, 10) == []


@store_test()
async def test_rows_that_stand_for_none_do_not_stay(address, driver):
    """A call stores one for a name that is not there, and for what it deletes."""
    absent = ScheduleChange(name="absent", expect=None, to=None)
    refused = ScheduleChange(name="b", expect="0", to=row("b"))
    gone = ScheduleChange(name="a", expect="1", to=None)
    assert await driver.change_schedules([added("a"), added("c"), absent, refused], NOW) == [True] * 3 + [False]
    assert await driver.change_schedules([gone], NOW) == [True]
    with psycopg.connect(address) as connection:
        assert connection.execute("select name from taskharbor.schedules").fetchall() == [("c",)]


DAMAGES = {
    "queue": ("''", "repeat('x', 300)"),
    "revision": ("''", "repeat('x', 300)", "E'a\\nb'"),
    "next_at": (-1, -(2**63), 2**63 - 1, 253_402_300_800_000_000),
    "name": ("''", "repeat('x', 300)", "'{b}'"),
    "body": ("''", "'\\xff00'"),
}


@pytest.mark.parametrize(("column", "value"), [(column, value) for column in DAMAGES for value in DAMAGES[column]])
@store_test()
async def test_a_damaged_row_fails_no_call(address, driver, column, value):
    await driver.change_schedules([added("a"), added("b"), added("c")], NOW)
    await driver.change_schedules([ScheduleChange(name="c", expect="1", to=row("c", "2"))], NOW)
    with psycopg.connect(address, autocommit=True) as connection:
        query = f"update taskharbor.schedules set {column} = {value} where name = 'b'"
        connection.execute(query.encode())
    cursor, seen, due = None, list[StoredSchedule](), list[StoredSchedule]()
    for limit in (1, 10):
        while True:
            page: SchedulePage = await driver.schedules(cursor=cursor, limit=limit)
            seen += page.items
            if (cursor := page.cursor) is None:
                break
        while True:
            page = await driver.due_schedules(["q"], NOW + EVERY, cursor=cursor, limit=limit)
            due += page.items
            if (cursor := page.cursor) is None:
                break
    for found in (seen, due):
        assert [each for each in found if each.name in "ac"] == [row("a"), row("c", "2")] * 2
    for each in seen:  # what is listed can be changed
        change = ScheduleChange(name=each.name, expect=each.revision, to=None)
        assert (await driver.change_schedules([change], NOW)) == [True]
