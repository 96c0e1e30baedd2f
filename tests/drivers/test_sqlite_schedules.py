"""Schedules on SQLite: names in files of any encoding, damaged rows, a full disk, what a change waits for and whom it
wakes, and blocking calls."""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskharbor.drivers import BackendUnavailable, InvalidJob, ScheduleChange, SchedulePage, StoredSchedule
from taskharbor.drivers.sqlite import SqliteDriver, schedules
from taskharbor.drivers.sqlite.wait import FileWatch
from taskharbor.model.bounds import check_schedule_changes
from taskharbor.model.schedule import MAX_SCHEDULE_BYTES
from taskharbor.model.times import to_us
from tests.drivers.blocking_calls import run
from tests.drivers.sqlite_files import LEASE, NOW, job, on, opened, opened_driver
from tests.drivers.test_sqlite_wal import Disk

pytestmark = pytest.mark.lane("sqlite")
driver = opened_driver
SECOND = timedelta(seconds=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def schedule(name: str, seconds: float | None = 0, *, queue: str = "q", revision: str = "1", body: bytes = b"body"):
    next_at = None if seconds is None else NOW + seconds * SECOND
    return StoredSchedule(name=name, queue=queue, revision=revision, next_at=next_at, body=body)


def added(*rows: StoredSchedule) -> list[ScheduleChange]:
    return [ScheduleChange(name=row.name, expect=None, to=row) for row in rows]


def fired(row: StoredSchedule, revision: str, *ids: str, **fields: Any) -> ScheduleChange:
    """A change that stores jobs, and is due a minute later."""
    to = schedule(row.name, 60, queue=row.queue, revision=revision, **fields)
    return ScheduleChange(name=row.name, expect=row.revision, to=to, jobs=tuple(job(id, queue="q") for id in ids))


async def walked(ask: Callable[..., Awaitable[SchedulePage]], *given: Any, **named: Any) -> list[StoredSchedule]:
    """All pages of a listing."""
    found, cursor, pages = list[StoredSchedule](), None, 0
    while not pages or cursor is not None:
        page = await ask(*given, cursor=cursor, **named)
        found += page.items
        cursor, pages = page.cursor, pages + 1
        assert pages < 50
    return found


async def ids(driver: SqliteDriver) -> list[str]:
    return [item.job.id for item in (await driver.list(now=NOW)).items]


# Names


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
async def test_names_are_in_the_order_of_code_points_in_a_file_of_any_encoding(path, encoding):
    """In UTF-16 the emoji would come before U+FFFD."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA encoding = '{encoding}'")
        connection.execute("CREATE TABLE theirs (id INTEGER)")
        connection.commit()
    rows = [schedule(name, queue="ü") for name in ("Z", "a", "é", "日", "\ufffd", "😀")]
    async with opened(path) as driver:
        assert await driver.change_schedules(added(*reversed(rows)), NOW) == [True] * len(rows)
        assert await walked(driver.schedules, limit=2) == rows
        assert await walked(driver.schedules, queue="ü", limit=2) == rows
        assert await walked(driver.schedules, names=["😀", "a"], limit=1) == [
            rows[1],
            rows[-1],
        ]
        assert await walked(driver.due_schedules, ["ü"], NOW, limit=2) == rows


async def test_a_page_of_due_schedules_is_merged_from_many_looks(path, monkeypatch):
    monkeypatch.setattr(schedules, "PLACES_PER_LOOK", 2)
    rows = [schedule(f"{n:02}", n // 4, queue="abc"[n * 7 % 3]) for n in range(20)]
    async with opened(path) as driver:
        await driver.change_schedules(added(*rows), NOW)
        for limit in (1, 3, 5, 20):
            assert await walked(driver.due_schedules, "cab", NOW + 3 * SECOND, limit=limit) == rows[:16]
        assert (await driver.due_schedules(["a"], NOW + 3 * SECOND)).upcoming == NOW + 4 * SECOND


# Damage

VALUES = (
    *("'many'", "-1", "1.5", "9e999", f"{to_us(NOW) - 10}.5", f"{2**62}"),
    *("''", "char(10)", "CAST(x'fffe' AS TEXT)", "x''", "x'0a'", "x'fffe'"),
)


def damage_schedule(path: Path, column: str, value: str, name: str = "c") -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        changed = connection.execute(
            f"UPDATE taskharbor_schedules SET {column} = {value} WHERE name = ?", (name.encode(),)
        )
        assert changed.rowcount == 1


@pytest.mark.parametrize("column", ["name", "queue", "revision", "next_at", "body"])
@pytest.mark.parametrize("value", VALUES)
async def test_a_damaged_row_spoils_no_page(path, column, value):
    """It is left out, or shown if it can be; the others are all there. Adding the schedule again replaces it."""
    rows = [schedule(name, n) for n, name in enumerate("abcde")]
    others = [row for row in rows if row.name != "c"]
    async with opened(path) as driver:
        await driver.change_schedules(added(*rows), NOW)
        damage_schedule(path, column, value)
        for found in (
            await walked(driver.schedules, limit=1),
            await walked(driver.schedules, queue="q", limit=1),
            await walked(driver.schedules, names="abcde", limit=1),
            await walked(driver.due_schedules, ["q"], NOW + LEASE, limit=1),
        ):
            assert [row for row in found if row in rows] == others
            assert len(found) <= len(rows)
            check_schedule_changes(added(*found))  # what is shown can be stored again
        assert (await driver.due_schedules(["q"], NOW - LEASE)).upcoming == NOW
        assert await driver.change_schedules([fired(rows[0], "2", "job")], NOW) == [True]
        assert await ids(driver) == ["job"]
        shown = (await driver.schedules(names=["c"])).items
        again = schedule("c", 7, revision="2")
        change = ScheduleChange(name="c", expect=shown[0].revision if shown else None, to=again)
        assert await driver.change_schedules([change], NOW) == [True]
        assert (await driver.schedules(names=["c"])).items == (again,)


@pytest.mark.parametrize(("column", "value"), [("queue", "''"), ("revision", "''"), ("next_at", "-1"), ("body", "1")])
async def test_a_deletion_removes_the_remains_of_a_damaged_row(driver, path, column, value):
    await driver.change_schedules(added(schedule("c")), NOW)
    damage_schedule(path, column, value)
    assert (await driver.schedules()).items == ()
    assert await driver.change_schedules([ScheduleChange(name="c", expect="1", to=None)], NOW) == [True]
    assert await driver.database.read(lambda session: session.all("SELECT * FROM taskharbor_schedules")) == []


async def test_a_body_that_is_too_large_is_not_read(driver, path):
    whole = schedule("a", body=bytes(MAX_SCHEDULE_BYTES))
    await driver.change_schedules(added(whole, schedule("c")), NOW)
    damage_schedule(path, "body", f"zeroblob({MAX_SCHEDULE_BYTES + 1})")
    assert (await driver.schedules()).items == (whole,)
    assert (await driver.due_schedules(["q"], NOW)).items == (whole,)
    assert await driver.change_schedules(added(schedule("c", revision="2")), NOW) == [True]


# A change that fails, or waits


def fail_by_full_disk(driver: SqliteDriver) -> None:
    (pages,) = driver.database.writer.file.get().execute("PRAGMA page_count").fetchone()
    driver.database.writer.file.get().execute(f"PRAGMA max_page_count = {pages + 8}")


def fail_by_read_only(driver: SqliteDriver) -> None:
    driver.database.writer.file.get().execute("PRAGMA query_only = 1")


@pytest.mark.parametrize(
    ("fail", "reason"), [(fail_by_full_disk, "the disk is full"), (fail_by_read_only, "it may only be read")]
)
async def test_a_change_that_cannot_be_written_leaves_nothing(path, fail, reason):
    """The job would fit on the disk, the row that goes with it does not."""
    row = schedule("a")
    async with opened(path) as driver:
        await driver.change_schedules(added(row, schedule("b")), NOW)
        changes = [fired(row, "2", "x"), fired(schedule("b"), "2", "y", body=b"secret" * 20_000)]
        fail(driver)
        with pytest.raises(BackendUnavailable, match=reason) as caught:
            await driver.change_schedules(changes, NOW)
        assert "secret" not in str(caught.value)
        assert await ids(driver) == []
        assert (await driver.schedules()).items == (row, schedule("b"))
        # The connection is a new one from here on, as if the disk had been freed.
        assert await driver.change_schedules(changes, NOW) == [True, True]
        assert await ids(driver) == ["x", "y"]


async def test_a_call_that_is_refused_spoils_no_other_in_its_transaction(driver):
    good, bad = added(schedule("good")), added(schedule("bad"), schedule("worse", queue=""))
    calls = [driver.change_schedules(good, NOW), driver.change_schedules(bad, NOW)]
    done, refused = await asyncio.gather(*calls, return_exceptions=True)
    assert done == [True]
    assert isinstance(refused, InvalidJob)
    assert (await driver.schedules()).items == (schedule("good"),)


async def test_a_change_returns_when_it_is_on_the_disk(path, monkeypatch):
    disk = Disk(monkeypatch)
    async with opened(path) as driver:
        before = disk.syncs
        await driver.change_schedules(added(schedule("a")), NOW)
        assert disk.syncs == before + 1
        disk.asked = threading.Semaphore(0)
        disk.goes.clear()
        change = asyncio.create_task(driver.change_schedules([fired(schedule("a"), "2", "job")], NOW))
        await disk.is_asked()
        assert await ids(driver) == ["job"]  # others see the commit on its way to the disk
        assert not change.done()
        disk.goes.set()
        assert await change == [True]


def test_a_change_is_written_by_the_writer_thread(path, monkeypatch):
    """An event loop never waits for one, however large its jobs are."""
    threads, change_schedules = list[str](), schedules.change_schedules

    def seen(*given: Any) -> list[bool]:
        threads.append(threading.current_thread().name)
        return change_schedules(*given)

    monkeypatch.setattr(schedules, "change_schedules", seen)
    on(path, lambda driver: driver.change_schedules(added(schedule("a")), NOW))
    assert threads == ["taskharbor-sqlite-writer"]


async def test_a_change_wakes_those_who_wait_for_its_jobs(path, monkeypatch):
    monkeypatch.setattr(FileWatch, "_check", lambda self: True)  # as for another process: it would wake the call too
    async with opened(path) as driver:
        await driver.change_schedules(added(schedule("a")), NOW)
        assert await driver.reserve(["q"], NOW, LEASE, 1, "w") == []
        waiting = asyncio.create_task(driver.wait(["q"], 50))
        await asyncio.sleep(0)
        assert await driver.change_schedules([fired(schedule("a"), "2", "job")], NOW) == [True]
        assert await waiting
        assert [held.job.id for held in await driver.reserve(["q"], NOW, LEASE, 1, "w")] == ["job"]


# Blocking calls


def test_blocking_calls_change_and_list_schedules(path):
    driver = SqliteDriver(f"sqlite:///{path}")
    calls, before = driver.blocking(), {thread.name for thread in threading.enumerate()}
    row = schedule("a")
    try:
        run(calls, lambda driver: driver.open())
        assert run(calls, lambda driver: driver.change_schedules(added(row), NOW)) == [True]
        assert run(calls, lambda driver: driver.schedules(names=["a", "\ud800"])) == SchedulePage((row,))
        change, moved = fired(row, "2", "job"), schedule("a", 60, revision="2")
        assert run(calls, lambda driver: driver.change_schedules([change, change], NOW)) == [True, True]
        assert run(calls, lambda driver: driver.due_schedules(["q"], NOW)) == SchedulePage((), None, NOW + 60 * SECOND)
        assert [item.job.id for item in run(calls, lambda driver: driver.list(now=NOW)).items] == ["job"]
        assert {thread.name for thread in threading.enumerate()} <= before
        assert calls._database is not None
        calls._database.writer.file.get().execute("PRAGMA query_only = 1")
        with pytest.raises(BackendUnavailable, match="it may only be read"):
            run(calls, lambda driver: driver.change_schedules([fired(moved, "3", "more")], NOW))
        assert run(calls, lambda driver: driver.schedules()).items == (moved,)
    finally:
        calls.close()
