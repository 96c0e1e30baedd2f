"""The file itself: its address, its mode, its schema, and everything that can go wrong with it."""

import asyncio
import gc
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from taskharbor.drivers import Ack, BackendUnavailable, DriverError, Enqueued, JobRecord, open_driver
from taskharbor.drivers.sqlite import SqliteDriver, hub, migrate
from taskharbor.drivers.sqlite.connect import network_mount, unavailable
from taskharbor.drivers.sqlite.watch import Watch
from tests.drivers.sqlite_files import damage

pytestmark = pytest.mark.lane("sqlite")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROOT = Path(__file__).parents[2]
LEASE = timedelta(seconds=30)
CANARY = b"canary-5f1d"


def job(id, **fields):
    return JobRecord(id=id, type="t", **fields)


def on(path, scenario, **options):
    """Run a scenario on an opened driver."""
    query = "&".join(f"{name}={value}" for name, value in options.items())

    async def live():
        driver = SqliteDriver(f"sqlite:///{path}?{query}")
        await driver.open()
        try:
            async with asyncio.timeout(30):
                return await scenario(driver)
        finally:
            await driver.close()

    return asyncio.run(live())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


# The address


@pytest.mark.parametrize(
    ("dsn", "word"),
    [
        ("sqlite://", "memory://"),
        ("sqlite:///", "memory://"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite://:memory:", "memory://"),
        ("sqlite://jobs.db", "three slashes"),
        ("sqlite:jobs.db", "three slashes"),
        ("sqlite:///folder/", "path of a file"),
        ("sqlite:///jobs.db?synchronous=off", "full or normal"),
        ("sqlite:///jobs.db?migrate=never", "auto or manual"),
        ("sqlite:///jobs.db?max_payload=-1", "number of bytes"),
        ("sqlite:///jobs.db?colour=red", "colour"),
    ],
)
def test_a_wrong_address_is_told(dsn, word):
    with pytest.raises(ValueError, match=word):
        SqliteDriver(dsn)


def test_a_right_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    driver = open_driver("sqlite:///a%20b.db?retention=1h&max_payload=10&synchronous=normal&migrate=manual")
    assert isinstance(driver, SqliteDriver)
    monkeypatch.chdir("/")
    assert driver.address.path == str(tmp_path / "a b.db")
    assert driver.retention == timedelta(hours=1)
    assert driver.sibling().address == driver.address
    assert SqliteDriver("sqlite:////x/y.db").address.path == "/x/y.db"
    assert SqliteDriver("sqlite:////x/y.db").address.synchronous == "full"


def test_only_the_owner_may_read(path):
    old = os.umask(0o000)
    try:

        async def scenario(driver):
            await driver.enqueue([job("a")], NOW)
            return {name: stat.S_IMODE(os.stat(f"{path}{name}").st_mode) for name in ("", "-wal", "-shm", "-lock")}

        assert on(path, scenario) == {"": 0o600, "-wal": 0o600, "-shm": 0o600, "-lock": 0o600}
    finally:
        os.umask(old)


def test_opening_a_file_that_exists_opens_no_descriptor_of_it(path, monkeypatch):
    """Closing one would drop the locks that SQLite holds on the file for the whole process."""
    on(path, lambda driver: driver.enqueue([job("a")], NOW))
    real, opened = os.open, []

    def noted(name, *rest, **more):
        opened.append(str(name))
        return real(name, *rest, **more)

    monkeypatch.setattr(os, "open", noted)
    on(path, lambda driver: driver.queues())
    assert str(path) not in opened


def test_a_symbolic_link_is_the_file_that_it_names(path, tmp_path):
    link = tmp_path / "link.db"
    link.symlink_to(path)  # nothing is there yet
    on(link, lambda driver: driver.enqueue([job("a")], NOW))
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert not os.path.exists(f"{link}-lock")
    assert on(path, lambda driver: driver.counts(NOW)) == {"default": {"ready": 1}}


def test_a_folder_in_place_of_the_file_is_never_waited_for(tmp_path):
    with pytest.raises(BackendUnavailable, match="EISDIR") as refused:
        on(tmp_path, lambda driver: driver.queues())
    assert refused.value.lasting


def test_a_library_that_is_too_old_is_named(path, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 2))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.37.2")
    with pytest.raises(BackendUnavailable, match=r"3\.38\.0 or later; this Python uses 3\.37\.2") as refused:
        on(path, lambda driver: driver.queues())
    assert refused.value.lasting
    assert not path.exists()


def test_a_read_that_sqlite_rolled_back_itself_tells_its_own_cause(path):
    def fails(tx):
        tx.execute("ROLLBACK")  # as SQLite does after some errors
        raise sqlite3.OperationalError("disk I/O error")

    async def scenario(driver):
        with pytest.raises(BackendUnavailable) as refused:
            await driver.hub.read(fails)
        assert str(refused.value.__cause__) == "disk I/O error"
        assert await driver.queues() == []

    on(path, scenario)


def test_settings_of_the_connection(path):
    async def scenario(driver):
        shared = driver.hub
        mode = await shared.write(lambda tx: tx.one("PRAGMA journal_mode"))
        return mode, await shared.write(lambda tx: tx.one("PRAGMA synchronous")), shared.writer.durable

    # With full too: then the flusher syncs, see test_sqlite_flush.
    assert on(path, scenario) == (("wal",), (1,), True)
    assert on(path, scenario, synchronous="normal") == (("wal",), (1,), False)


# The schema


def test_a_newer_or_older_schema_is_refused(path, monkeypatch):
    on(path, lambda driver: driver.enqueue([job("a")], NOW))
    monkeypatch.setattr(migrate, "SCHEMA", 0)
    with pytest.raises(DriverError, match=r"schema is number 1.*knows 0.*taskharbor migrate"):
        on(path, lambda driver: driver.queues())
    monkeypatch.setattr(migrate, "SCHEMA", 2)
    with pytest.raises(DriverError, match=r"needs 2.*taskharbor migrate"):
        on(path, lambda driver: driver.queues(), migrate="manual")


def test_an_older_schema_is_upgraded(path, monkeypatch, tmp_path):
    on(path, lambda driver: driver.enqueue([job("a")], NOW))
    folder = tmp_path / "migrations"
    folder.mkdir()
    (folder / "0002_more.sql").write_text("-- more\nCREATE TABLE taskharbor_more (id TEXT);\n")
    monkeypatch.setattr(migrate, "SCHEMA", 2)
    monkeypatch.setattr(migrate, "FOLDER", folder)
    assert on(path, lambda driver: driver.queues()) == ["default"]
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT schema FROM taskharbor_meta").fetchone() == (2,)
    connection.close()


def test_it_lives_beside_the_applications_own_tables(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE jobs (id INTEGER)")
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    on(path, lambda driver: driver.enqueue([job("a")], NOW))
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (7,)
    connection.close()


# Trouble


def test_a_missing_folder_and_no_database_are_told(tmp_path):
    with pytest.raises(BackendUnavailable, match="does not exist; create it first"):
        on(tmp_path / "no" / "jobs.db", lambda driver: driver.queues())
    other = tmp_path / "text.db"
    other.write_text("this is no database, however long one looks at it" * 50)
    with pytest.raises(BackendUnavailable, match="not an SQLite database") as caught:
        on(other, lambda driver: driver.queues())
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
    with pytest.raises(BackendUnavailable):
        on(tmp_path, lambda driver: driver.queues())


def test_a_full_disk_loses_nothing_that_was_acknowledged(path):
    async def scenario(driver):
        kept: list[str] = []
        await driver.hub.write(lambda tx: None)
        pages = await driver.hub.read(lambda tx: tx.one("PRAGMA page_count")[0])
        connection = driver.hub.writer.connection()
        connection.execute(f"PRAGMA max_page_count = {pages + 8}")

        async def fill():
            for number in range(1000):
                answers = await asyncio.gather(
                    *(driver.enqueue([job(f"{number}-{n}", payload=CANARY * 300)], NOW) for n in range(3))
                )
                kept.extend(answer[0].id for answer in answers)

        with pytest.raises(BackendUnavailable, match="disk is full") as caught:
            await fill()
        assert CANARY.decode() not in str(caught.value)
        # The connection is a new one from here on, as if the disk had been freed.
        assert await driver.enqueue([job("after")], NOW) == [Enqueued("after", False)]
        found = {item.job.id for item in (await driver.list(now=NOW, limit=5000)).items}
        assert set(kept) <= found

    on(path, scenario)


def test_a_deleted_file_is_told_and_never_made_again_in_silence(path):
    async def scenario(driver):
        await driver.enqueue([job("a")], NOW)
        for name in ("", "-wal", "-shm"):
            os.unlink(f"{path}{name}")
        with pytest.raises(BackendUnavailable, match="No such file"):
            await driver.enqueue([job("b")], NOW)
        with pytest.raises(BackendUnavailable, match="No such file"):
            await driver.inspect("a", NOW)
        assert not path.exists()

    on(path, scenario)


def test_a_file_that_is_refused_stays_refused(path, tmp_path, monkeypatch):
    on(tmp_path / "newer.db", lambda driver: driver.enqueue([job("a")], NOW))
    connection = sqlite3.connect(tmp_path / "newer.db")
    connection.execute("UPDATE taskharbor_meta SET schema = 99, oldest = 99")
    connection.commit()
    connection.close()

    async def scenario(driver):
        for name in ("", "-wal", "-shm"):
            os.unlink(f"{path}{name}")
        os.rename(tmp_path / "newer.db", path)
        for _ in range(3):
            with pytest.raises(DriverError, match="schema is number 99"):
                await driver.enqueue([job("b")], NOW)

    on(path, scenario)


def test_a_file_that_was_replaced_is_used(path, tmp_path):
    on(tmp_path / "backup.db", lambda driver: driver.enqueue([job("restored")], NOW))

    async def scenario(driver):
        await driver.enqueue([job("a")], NOW)
        for name in ("", "-wal", "-shm"):
            os.unlink(f"{path}{name}")
        os.rename(tmp_path / "backup.db", path)
        assert (await driver.inspect("restored", NOW)).state == "ready"
        assert len(await driver.reserve(["default"], NOW, LEASE, 5)) == 1

    on(path, scenario)


def test_a_restored_file_is_never_overlaid_by_an_old_log(path, tmp_path):
    """Also where nobody took the old -wal file away; also by a process that starts afterwards."""
    on(tmp_path / "backup.db", lambda driver: driver.enqueue([job("restored")], NOW))

    async def scenario(driver):
        waiting = asyncio.create_task(driver.wait(["default"], 60))  # the watch has a connection of its own
        await driver.enqueue([job("old")], NOW)
        await waiting
        os.rename(tmp_path / "backup.db", path)
        for verb in (driver.queues, lambda: driver.enqueue([job("lost?")], NOW)):
            with pytest.raises(BackendUnavailable, match=r"jobs\.db was replaced, but .*-wal still belongs to"):
                await verb()
        os.rename(f"{path}-wal", tmp_path / "set-aside-wal")
        os.rename(f"{path}-shm", tmp_path / "set-aside-shm")
        assert (await driver.inspect("restored", NOW)).state == "ready"
        await driver.enqueue([job("new")], NOW)
        assert await driver.counts(NOW) == {"default": {"ready": 2}}

    on(path, scenario)
    assert on(path, lambda driver: driver.counts(NOW)) == {"default": {"ready": 2}}


def test_a_file_that_was_moved_with_its_log_is_used(path, tmp_path):
    async def scenario(driver):
        await driver.enqueue([job("a")], NOW)
        elsewhere = tmp_path / "elsewhere"
        shutil.copytree(tmp_path, elsewhere)  # as from a snapshot of a disk: all files, and other numbers
        return elsewhere / path.name

    assert on(on(path, scenario), lambda driver: driver.counts(NOW)) == {"default": {"ready": 1}}


def test_the_log_of_a_killed_process_is_for_its_own_file_only(path, tmp_path):
    on(tmp_path / "backup.db", lambda driver: driver.enqueue([job("restored")], NOW))
    for id in ("first", "second"):  # the second finds the log of the first
        subprocess.run([sys.executable, "-m", "tests.drivers.sqlite_child", "store_and_die", path, id], cwd=ROOT)
    assert os.stat(f"{path}-wal").st_size > 0
    os.unlink(path)
    shutil.copyfile(tmp_path / "backup.db", path)  # often under the number of the file that was removed
    with pytest.raises(BackendUnavailable, match="was replaced"):
        on(path, lambda driver: driver.queues())
    os.unlink(f"{path}-wal")
    assert on(path, lambda driver: driver.counts(NOW)) == {"default": {"ready": 1}}


@pytest.mark.parametrize("column", ["created_at", "failed_at", "finished_at", "run_at", "timeout", "time", "moment"])
@pytest.mark.parametrize("value", [2**62, -(2**62), "soon", 1.5])
def test_a_damaged_moment_costs_nobody_else_a_lease(path, column, value):
    async def scenario(driver):
        await driver.enqueue([job("a"), job("damaged"), job("b")], NOW)
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute(f"UPDATE taskharbor_jobs SET {column} = ? WHERE id = 'damaged'", (value,))
        connection.close()
        taken = {item.job.id: item.job.lost for item in await driver.reserve(["default"], NOW, LEASE, 5)}
        assert {"a": 0, "b": 0}.items() <= taken.items()
        assert len((await driver.list(now=NOW)).items) == 3
        await driver.inspect("damaged", NOW)
        assert await driver.delete(["damaged"]) == [None]

    on(path, scenario)


def test_errors_are_told_in_words():
    error = sqlite3.OperationalError("attempt to write a readonly database")
    error.sqlite_errorname = "SQLITE_READONLY"
    told = unavailable("/x/jobs.db", error)
    assert str(told) == "/x/jobs.db: it may only be read (SQLITE_READONLY)"
    assert told.__cause__ is error


def test_a_network_mount_is_told(path, tmp_path, monkeypatch, caplog):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\nbroken\n")
    assert network_mount(str(path), str(mounts)) == "nfs4"
    assert network_mount("/somewhere/else.db", str(mounts)) is None
    assert network_mount(str(path), str(tmp_path / "none")) is None
    monkeypatch.setattr(hub, "network_mount", lambda path: "cifs")
    on(path, lambda driver: driver.queues())
    assert "lies on a network file system (cifs)" in caplog.text


def test_one_call_that_fails_spoils_no_other(path):
    async def scenario(driver):
        bad = job("bad", depends_on=("nobody",))
        answers = await asyncio.gather(
            *(driver.enqueue([bad if number % 3 == 1 else job(f"j{number}")], NOW) for number in range(9)),
            return_exceptions=True,
        )
        assert [type(answer).__name__ for answer in answers] == ["list", "InvalidJob", "list"] * 3
        assert len(await driver.reserve(["default"], NOW, LEASE, 50)) == 6

    on(path, scenario)


def test_not_open_is_told(path):
    driver = SqliteDriver(f"sqlite:///{path}")
    with pytest.raises(RuntimeError, match="not open"):
        asyncio.run(driver.queues())


def test_closing_ends_every_thread(path):
    import threading

    async def scenario(driver):
        await driver.wait(["default"], 0.01)
        await driver.inspect("a", NOW) if await driver.queues() else None

    def ours():
        gc.collect()
        return {thread for thread in threading.enumerate() if thread.name.startswith("taskharbor-sqlite")}

    before, known = ours(), len(hub._HUBS)  # of drivers that other tests left open
    on(path, scenario)
    assert ours() <= before
    assert len(hub._HUBS) <= known


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # since 3.12, of any fork beside threads
def test_a_forked_child_opens_the_file_anew(path):
    async def scenario(driver):
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
        told = await asyncio.to_thread(os.read, reading, 1000)
        os.close(reading)
        await asyncio.to_thread(os.waitpid, child, 0)
        assert told == b"refused, then reserved a"
        held = await driver.inspect("a", NOW)
        assert held.worker == "child"
        await driver.enqueue([job("b")], NOW)

    on(path, scenario)


def _in_the_child(driver):
    asyncio.events._set_running_loop(None)
    try:
        asyncio.run(driver.queues())
    except BackendUnavailable:
        said = "refused"
    held = on(driver.address.path, lambda other: other.reserve(["default"], NOW, LEASE, 5, "child"))
    return f"{said}, then reserved {held[0].job.id}".encode()


def test_results_that_are_no_text_come_back(path):
    async def scenario(driver):
        await driver.enqueue([job(f"j{n}") for n in range(5)], NOW)
        held = await driver.reserve(["default"], NOW, LEASE, 5)
        results = [b"\x00", b"\xff\xfe", '"ü€"'.encode(), None, b""]
        acks = [Ack(item.lease, result) for item, result in zip(held, results, strict=True)]
        assert await driver.settle(acks, NOW) == [None] * 5
        found = await driver.results([item.job.id for item in held])
        assert list(found.values()) == results

    on(path, scenario)


def test_an_unknown_state_gives_its_slot_back(path):
    async def scenario(driver):
        await driver.enqueue([job("a", group="g"), job("b", group="g"), job("c", run_at=NOW + LEASE)], NOW)
        assert [item.job.id for item in await driver.reserve(["default"], NOW, LEASE, 5)] == ["a"]
        damage(str(path), "a", "state")
        damage(str(path), "c", "state")
        assert [item.job.id for item in await driver.reserve(["default"], NOW, LEASE, 5)] == ["b"]
        states = await driver.hub.read(lambda tx: tx.all("SELECT id, state, reason FROM taskharbor_jobs ORDER BY id"))
        assert states == [
            ("a", 4, "damaged record: unknown state"),
            ("b", 2, ""),
            ("c", 4, "damaged record: unknown state"),
        ]

    on(path, scenario)


@pytest.mark.parametrize("column", ["metadata", "depends_on", "created_at", "rank", "run_at", "idempotency_key"])
def test_any_field_may_be_damaged(path, column):
    async def scenario(driver):
        await driver.enqueue([job("a"), job("b")], NOW)
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute(f"UPDATE taskharbor_jobs SET {column} = x'ff' WHERE id = 'a'")
        connection.close()
        assert len((await driver.list(now=NOW)).items) == 2
        held = await driver.reserve(["default"], NOW, LEASE, 5)
        assert "b" in [item.job.id for item in held]
        await driver.inspect("a", NOW)
        assert await driver.delete(["a", "b"]) == [None, None]
        assert await driver.counts(NOW) == {}

    on(path, scenario)


def test_an_empty_queue_is_forgotten_with_its_last_record(path):
    async def scenario(driver):
        await driver.enqueue([job("a", queue="once", payload=b"x" * 5000), job("b", queue="kept")], NOW)
        (held,) = await driver.reserve(["once"], NOW, LEASE, 1)
        await driver.settle([Ack(held.lease)], NOW)
        assert await driver.prune(NOW + LEASE, 10) == 1
        assert await driver.queues() == ["kept"]
        assert await driver.hub.read(lambda tx: tx.all("SELECT name FROM taskharbor_queues")) == [("kept",)]
        await driver.enqueue([job("c", queue="once")], NOW)
        assert len(await driver.reserve(["once", "kept"], NOW, LEASE, 5)) == 2

    on(path, scenario)


@pytest.mark.parametrize("how", ["delete", "prune"])
def test_a_number_is_never_given_again_when_the_job_that_kept_it_goes(path, how):
    """An arrival of a number that was told before would wake nobody."""

    async def scenario(driver):
        await driver.enqueue([job("a", queue="q")], NOW)
        await driver.cancel(["a"], NOW)
        assert await driver.reserve(["q"], NOW, LEASE, 1) == []  # whatever arrived until now is known
        if how == "delete":
            assert await driver.delete(["a"]) == [None]
        else:
            assert await driver.prune(NOW + LEASE, 10) == 1
        await driver.enqueue([job("b", queue="q")], NOW)
        assert await driver.wait(["q"], 0.01)

    on(path, scenario)


def test_no_parameter_is_numbered():
    """Python 3.12.0 to 3.12.3 warn of `?1` with a sequence; `?` and `:name` are understood everywhere."""
    folder = Path(migrate.__file__).parent
    sources = [*folder.glob("*.py"), *folder.glob("sql/*.sql")]
    assert len(sources) > 40
    assert [path.name for path in sources if re.search(r"\?\d", path.read_text(encoding="utf-8"))] == []


# Who watches the file for other processes


class EndsEarly(Watch):
    """Its thread is gone by the time it is rung for: it saw by itself that it is to stop."""

    def ring(self):
        super().ring()
        self._thread.join(30)
        super().ring()


def test_a_watch_whose_thread_ended_first_is_stopped_all_the_same(path):
    """The second ring went to a closed file, or to whatever had been opened under its number since."""
    watch = EndsEarly(str(path), f"{path}-lock", list, lambda arrived: None)
    watch.stop()
