"""The driver in its process: its library and settings, its calls, its threads, and forks."""

import asyncio
import gc
import os
import re
import sqlite3
import threading
from pathlib import Path

import pytest

from taskharbor.drivers import Ack, BackendUnavailable
from taskharbor.drivers.sqlite import SqliteDriver, database, reading, schema
from taskharbor.drivers.sqlite.connection import unavailable
from taskharbor.drivers.sqlite.wait import FileWatch
from taskharbor.drivers.wait_calls import WaitCalls
from tests.drivers.sqlite_files import LEASE, NOW, job, on, opened, opened_driver

pytestmark = pytest.mark.lane("sqlite")
driver = opened_driver


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


def test_a_library_that_is_too_old_is_named(path, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 2))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.37.2")
    with pytest.raises(BackendUnavailable, match=r"3\.38\.0 or later; this Python uses 3\.37\.2") as refused:
        on(path, lambda driver: driver.queues())
    assert refused.value.lasting
    assert not path.exists()


def test_settings_of_the_connection(path):
    async def scenario(driver):
        shared = driver.database
        mode = await shared.write(lambda session: session.one("PRAGMA journal_mode"))
        return mode, await shared.write(lambda session: session.one("PRAGMA synchronous")), shared.writer.durable

    # With full too: then WalSync syncs, see test_sqlite_wal.
    assert on(path, scenario) == (("wal",), (1,), True)
    assert on(path, scenario, synchronous="normal") == (("wal",), (1,), False)


def test_no_parameter_is_numbered():
    """Python 3.12.0 to 3.12.3 warn of `?1` with a sequence; `?` and `:name` are understood everywhere."""
    folder = Path(schema.__file__).parent
    sources = [*folder.glob("*.py"), *folder.glob("sql/*.sql")]
    assert len(sources) > 40
    assert [path.name for path in sources if re.search(r"\?\d", path.read_text(encoding="utf-8"))] == []


def test_errors_are_described_in_words():
    error = sqlite3.OperationalError("attempt to write a readonly database")
    error.sqlite_errorname = "SQLITE_READONLY"
    error_shown = unavailable("/x/jobs.db", error)
    assert str(error_shown) == "/x/jobs.db: it may only be read (SQLITE_READONLY)"
    assert error_shown.__cause__ is error


async def test_a_read_that_sqlite_rolled_back_itself_reports_its_own_cause(path):
    def fails(session):
        session.execute("ROLLBACK")  # as SQLite does after some errors
        raise sqlite3.OperationalError("disk I/O error")

    async with opened(path) as driver:
        with pytest.raises(BackendUnavailable) as refused:
            await driver.database.read(fails)
        assert str(refused.value.__cause__) == "disk I/O error"
        assert await driver.queues() == []


async def test_one_call_that_fails_spoils_no_other(driver):
    bad = job("bad", depends_on=("nobody",))
    answers = await asyncio.gather(
        *(driver.enqueue([bad if number % 3 == 1 else job(f"j{number}")], NOW) for number in range(9)),
        return_exceptions=True,
    )
    assert [type(answer).__name__ for answer in answers] == ["list", "InvalidJob", "list"] * 3
    assert len(await driver.reserve(["default"], NOW, LEASE, 50)) == 6


async def test_results_that_are_not_text_come_back(driver):
    await driver.enqueue([job(f"j{n}") for n in range(5)], NOW)
    held = await driver.reserve(["default"], NOW, LEASE, 5)
    results = [b"\x00", b"\xff\xfe", '"ü€"'.encode(), None, b""]
    acks = [Ack(item.lease, result) for item, result in zip(held, results, strict=True)]
    assert await driver.settle(acks, NOW) == [None] * 5
    found = await driver.results([item.job.id for item in held])
    assert list(found.values()) == results


async def test_an_empty_queue_is_forgotten_with_its_last_record(driver):
    await driver.enqueue([job("a", queue="once", payload=b"x" * 5000), job("b", queue="kept")], NOW)
    (held,) = await driver.reserve(["once"], NOW, LEASE, 1)
    await driver.settle([Ack(held.lease)], NOW)
    assert await driver.prune(NOW + LEASE, 10) == 1
    assert await driver.queues() == ["kept"]
    assert await driver.database.read(lambda session: session.all("SELECT name FROM taskharbor_queues")) == [("kept",)]
    await driver.enqueue([job("c", queue="once")], NOW)
    assert len(await driver.reserve(["once", "kept"], NOW, LEASE, 5)) == 2


@pytest.mark.parametrize("how", ["delete", "prune"])
async def test_a_number_is_never_given_again_when_the_job_that_kept_it_goes(driver, how):
    """An arrival with a number that was given out before would wake no waiting call."""
    await driver.enqueue([job("a", queue="q")], NOW)
    await driver.cancel(["a"], NOW)
    assert await driver.reserve(["q"], NOW, LEASE, 1) == []  # whatever arrived until now is known
    if how == "delete":
        assert await driver.delete(["a"]) == [None]
    else:
        assert await driver.prune(NOW + LEASE, 10) == 1
    await driver.enqueue([job("b", queue="q")], NOW)
    assert await driver.wait(["q"], 0.01)


def test_a_driver_that_is_not_open_says_so(path):
    driver = SqliteDriver(f"sqlite:///{path}")
    with pytest.raises(RuntimeError, match="not open"):
        asyncio.run(driver.queues())


def test_closing_ends_every_thread(path):
    async def scenario(driver):
        await driver.wait(["default"], 0.01)
        await driver.inspect("a", NOW) if await driver.queues() else None

    def ours():
        gc.collect()
        return {thread for thread in threading.enumerate() if thread.name.startswith("taskharbor-sqlite")}

    before, known = ours(), len(database._DATABASES)  # of drivers that other tests left open
    on(path, scenario)
    assert ours() <= before
    assert len(database._DATABASES) <= known


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # since 3.12, of any fork beside threads
async def test_a_forked_child_opens_the_file_anew(driver):
    await driver.enqueue([job("a")], NOW)
    await driver.wait(["other"], 0.01)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # no event loop of the parent's is used here
        said = b"nothing"
        try:
            said = _in_the_child(driver)
        finally:
            os.write(writing, said)
            os._exit(0)
    os.close(writing)
    written = await asyncio.to_thread(os.read, reading, 1000)
    os.close(reading)
    await asyncio.to_thread(os.waitpid, child, 0)
    assert written == b"refused, then reserved a"
    held = await driver.inspect("a", NOW)
    assert held.worker == "child"
    await driver.enqueue([job("b")], NOW)


def _in_the_child(driver):
    asyncio.events._set_running_loop(None)
    try:
        asyncio.run(driver.queues())
    except BackendUnavailable:
        said = "refused"
    held = on(driver.options.path, lambda other: other.reserve(["default"], NOW, LEASE, 5, "child"))
    return f"{said}, then reserved {held[0].job.id}".encode()


class EndsEarly(FileWatch):
    """Its thread is gone by the time it is woken: it saw by itself that it is to stop."""

    def wake(self):
        super().wake()
        self._thread.join(30)
        super().wake()


def test_a_watch_whose_thread_ended_first_is_stopped_all_the_same(path):
    """The second ring went to a closed file, or to whatever had been opened under its number since."""
    watch = EndsEarly(str(path), f"{path}-lock", WaitCalls())
    watch.stop()


async def test_a_read_that_lasts_holds_up_no_short_one(driver, monkeypatch):
    begun, goes_on = threading.Event(), threading.Event()

    def counts(*_):
        begun.set()
        return {"read": goes_on.wait(10)}

    monkeypatch.setattr(reading, "counts", counts)
    await driver.enqueue([job("a")], NOW)
    counting = asyncio.create_task(driver.counts(NOW))
    await asyncio.to_thread(begun.wait)
    assert (await driver.inspect("a", NOW)).job.id == "a"
    assert not counting.done()
    goes_on.set()
    assert await counting == {"read": True}
