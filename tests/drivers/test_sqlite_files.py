"""The file itself: its address, its mode, its schema, and everything that can go wrong with it."""

import asyncio
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from taskharbor.drivers import BackendUnavailable, DriverError, Enqueued, open_driver
from taskharbor.drivers.sqlite import SqliteDriver, database, schema
from taskharbor.drivers.sqlite.connection import network_mount
from tests.drivers.sqlite_files import LEASE, NOW, job, on, opened, opened_driver

pytestmark = pytest.mark.lane("sqlite")
driver = opened_driver
ROOT = Path(__file__).parents[2]
CANARY = b"canary-5f1d"


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
def test_a_wrong_address_is_refused(dsn, word):
    with pytest.raises(ValueError, match=word):
        SqliteDriver(dsn)


def test_a_right_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    driver = open_driver("sqlite:///a%20b.db?retention=1h&max_payload=10&synchronous=normal&migrate=manual")
    assert isinstance(driver, SqliteDriver)
    monkeypatch.chdir("/")
    assert driver.options.path == str(tmp_path / "a b.db")
    assert driver.retention == timedelta(hours=1)
    assert driver.sibling().options == driver.options
    assert SqliteDriver("sqlite:////x/y.db").options.path == "/x/y.db"
    assert SqliteDriver("sqlite:////x/y.db").options.synchronous == "full"


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


# The schema


def test_a_newer_or_older_schema_is_refused(path, monkeypatch):
    on(path, lambda driver: driver.enqueue([job("a")], NOW))
    newest = schema.SCHEMA
    monkeypatch.setattr(schema, "SCHEMA", 0)
    with pytest.raises(DriverError, match=rf"schema is number {newest}.*knows 0.*taskharbor migrate"):
        on(path, lambda driver: driver.queues())
    monkeypatch.setattr(schema, "SCHEMA", newest + 1)
    with pytest.raises(DriverError, match=rf"needs {newest + 1}.*taskharbor migrate"):
        on(path, lambda driver: driver.queues(), migrate="manual")


def test_an_older_schema_is_upgraded(path, monkeypatch, tmp_path):
    on(path, lambda driver: driver.enqueue([job("a")], NOW))
    folder = tmp_path / "migrations"
    folder.mkdir()
    newer = schema.SCHEMA + 1
    (folder / f"{newer:04d}_more.sql").write_text("-- more\nCREATE TABLE taskharbor_more (id TEXT);\n")
    monkeypatch.setattr(schema, "SCHEMA", newer)
    monkeypatch.setattr(schema, "FOLDER", folder)
    assert on(path, lambda driver: driver.queues()) == ["default"]
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT version FROM taskharbor_meta").fetchone() == (newer,)
    connection.close()


@pytest.mark.parametrize(("number", "oldest"), [(1, 1), (3, 1)])
@pytest.mark.parametrize("mode", ["auto", "manual"])
def test_a_schema_of_an_unreleased_version_is_refused(path, number, oldest, mode):
    """Its numbers mean other tables. It is known by the column that held its number."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE taskharbor_meta (one INTEGER, schema INTEGER, oldest INTEGER, number INTEGER)")
        connection.execute("INSERT INTO taskharbor_meta VALUES (1, ?, ?, 0)", (number, oldest))
        connection.commit()
    words = (
        r"jobs\.db: its schema was made by an unreleased version before 0\.2\.0, expected number 1 of a release; .*file"
    )
    with pytest.raises(DriverError, match=words) as raised:
        on(path, lambda driver: driver.queues(), migrate=mode)
    assert not isinstance(raised.value, BackendUnavailable)


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


def test_a_missing_folder_and_a_file_that_is_not_a_database_are_reported(tmp_path):
    with pytest.raises(BackendUnavailable, match="does not exist; create it first"):
        on(tmp_path / "no" / "jobs.db", lambda driver: driver.queues())
    other = tmp_path / "text.db"
    other.write_text("this is no database, however long one looks at it" * 50)
    with pytest.raises(BackendUnavailable, match="not an SQLite database") as caught:
        on(other, lambda driver: driver.queues())
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
    with pytest.raises(BackendUnavailable):
        on(tmp_path, lambda driver: driver.queues())


async def test_a_full_disk_loses_nothing_that_was_acknowledged(driver):
    kept: list[str] = []
    await driver.database.write(lambda session: None)
    pages = await driver.database.read(lambda session: session.one("PRAGMA page_count")[0])
    connection = driver.database.writer.file.get()
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


async def test_a_deleted_file_is_reported_and_never_made_again_in_silence(driver, path):
    await driver.enqueue([job("a")], NOW)
    for name in ("", "-wal", "-shm"):
        os.unlink(f"{path}{name}")
    with pytest.raises(BackendUnavailable, match="No such file"):
        await driver.enqueue([job("b")], NOW)
    with pytest.raises(BackendUnavailable, match="No such file"):
        await driver.inspect("a", NOW)
    assert not path.exists()


async def test_a_file_that_is_refused_stays_refused(path, tmp_path, monkeypatch):
    on(tmp_path / "newer.db", lambda driver: driver.enqueue([job("a")], NOW))
    connection = sqlite3.connect(tmp_path / "newer.db")
    connection.execute("UPDATE taskharbor_meta SET version = 99, oldest = 99")
    connection.commit()
    connection.close()
    async with opened(path) as driver:
        for name in ("", "-wal", "-shm"):
            os.unlink(f"{path}{name}")
        os.rename(tmp_path / "newer.db", path)
        for _ in range(3):
            with pytest.raises(DriverError, match="schema is number 99"):
                await driver.enqueue([job("b")], NOW)


async def test_a_file_that_was_replaced_is_used(path, tmp_path):
    on(tmp_path / "backup.db", lambda driver: driver.enqueue([job("restored")], NOW))
    async with opened(path) as driver:
        await driver.enqueue([job("a")], NOW)
        for name in ("", "-wal", "-shm"):
            os.unlink(f"{path}{name}")
        os.rename(tmp_path / "backup.db", path)
        assert (await driver.inspect("restored", NOW)).state == "ready"
        assert len(await driver.reserve(["default"], NOW, LEASE, 5)) == 1


def test_a_restored_file_is_never_overlaid_by_an_old_wal_file(path, tmp_path):
    """Also if the old -wal file was left there; also by a process that starts afterwards."""
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


def test_a_file_that_was_moved_with_its_wal_file_is_used(path, tmp_path):
    async def scenario(driver):
        await driver.enqueue([job("a")], NOW)
        elsewhere = tmp_path / "elsewhere"
        shutil.copytree(tmp_path, elsewhere)  # as from a snapshot of a disk: all files, and other numbers
        return elsewhere / path.name

    assert on(on(path, scenario), lambda driver: driver.counts(NOW)) == {"default": {"ready": 1}}


def test_the_wal_file_of_a_killed_process_is_for_its_own_database_only(path, tmp_path):
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


def test_a_network_mount_is_warned_of(path, tmp_path, monkeypatch, caplog):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\nbroken\n")
    assert network_mount(str(path), str(mounts)) == "nfs4"
    assert network_mount("/somewhere/else.db", str(mounts)) is None
    assert network_mount(str(path), str(tmp_path / "none")) is None
    monkeypatch.setattr(database, "network_mount", lambda path: "cifs")
    on(path, lambda driver: driver.queues())
    assert "lies on a network file system (cifs)" in caplog.text
