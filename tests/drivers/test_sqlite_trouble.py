"""Trouble with its real causes: a disk that is full, pages that are damaged, a process that stands still."""

import asyncio
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from taskharbor import Client, JobRequest, Worker
from taskharbor.drivers import BackendUnavailable, Enqueued, JobRecord
from taskharbor.drivers.sqlite import SqliteDriver, database, writer
from tests.drivers.crash import line
from tests.drivers.sqlite_child import LEASE, now
from tests.drivers.sqlite_files import foreign_transaction
from tests.drivers.test_sqlite_processes import PATIENCE, ROOT, children, opened

pytestmark = pytest.mark.lane("sqlite")
# Without its ballast the disk has room for the file and for a log of several times its size: a worker moves every job.
DISK, BALLAST = 32_000_000, 29_000_000


def job(id, **fields):
    return JobRecord(id=id, type="t", **fields)


# A full disk


def mounted(folder):
    """The beginning of a command that has a small disk, which goes with its process; None where none can be had."""
    mount = f"mount -t tmpfs -o size={DISK} tmpfs {shlex.quote(str(folder))}"
    for unshare in (["unshare", "-m"], ["unshare", "-rm"]):
        tried = subprocess.run([*unshare, "sh", "-c", mount], capture_output=True) if shutil.which("unshare") else None
        if tried is not None and tried.returncode == 0:
            return [*unshare, "sh", "-c", f'{mount} && exec "$@"', "sh"]
    return None


@pytest.mark.may_skip(
    "mounting takes root or user namespaces; test_sqlite_files has a full disk of SQLite's own making"
)
def test_a_full_disk_loses_nothing_and_goes_on_when_there_is_room(tmp_path):
    small = mounted(tmp_path)
    if small is None:
        pytest.skip("a small disk cannot be mounted here")
    command = [*small, sys.executable, "-m", "tests.drivers.sqlite_child", "fill_the_disk", str(tmp_path), str(BALLAST)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    refused, refused_too, lost, settled, ran = done.stdout.splitlines()
    assert "the disk is full (SQLITE_FULL)" in refused
    assert "the disk is full (SQLITE_FULL)" in refused_too
    assert lost.startswith("lost 0 of ")
    assert lost.endswith(", and 0 never acknowledged")
    assert int(lost.split()[3].rstrip(",")) > 5
    assert settled == "settled [None]"
    assert ran == "ran 0 more than were stored"


# Damage


def fill_and_damage(path, *tables):
    """A file with jobs in it, and the first page of each of these tables and indexes overwritten; returns a backup."""

    async def fill(driver):
        await driver.enqueue([job(f"j{number:03}", payload=b"{}") for number in range(500)], now())

    opened(path, fill)
    connection = sqlite3.connect(path)
    pages = dict(connection.execute("SELECT name, rootpage FROM sqlite_master"))
    size = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    backup = path.with_suffix(".backup")
    shutil.copy(path, backup)
    with open(path, "r+b") as file:
        for name in tables:
            file.seek((pages[name] - 1) * size)
            file.write(b"\xa5" * size)
    return backup


def put_back(backup, path):
    for name in ("", "-wal", "-shm"):
        Path(f"{path}{name}").unlink(missing_ok=True)
    backup.rename(path)


def test_a_damaged_file_is_reported_when_it_is_opened(tmp_path):
    path = tmp_path / "jobs.db"
    fill_and_damage(path, "taskharbor_meta")
    with pytest.raises(BackendUnavailable, match=r"it is damaged; restore it from a backup.*SQLITE_CORRUPT"):
        opened(path, lambda driver: driver.queues())


def test_a_worker_outlives_damage_and_goes_on_with_the_backup(tmp_path, caplog, monkeypatch):
    path = tmp_path / "jobs.db"
    backup = fill_and_damage(path, "taskharbor_jobs", "taskharbor_jobs_line", "taskharbor_jobs_id")

    async def scenario(driver):
        for call in (
            driver.reserve(["default"], now(), LEASE, 5, "w"),
            driver.enqueue([job("more")], now()),
            driver.list(now=now()),
            driver.inspect("j001", now()),
        ):
            with pytest.raises(BackendUnavailable, match="it is damaged"):
                await call
        ran: list[str] = []
        failed, finished = asyncio.Event(), asyncio.Event()
        worker = Worker(SqliteDriver(f"sqlite:///{path}?synchronous=normal"), poll_interval=0.05)

        async def handler() -> None:
            ran.append("")
            if len(ran) == 500:
                finished.set()

        worker.register("t", handler)
        failure = writer.Writer._failure
        failures = 0

        def counted(self, error):
            nonlocal failures
            failures += 1
            if failures == 4:
                loop.call_soon_threadsafe(failed.set)
            return failure(self, error)

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(writer.Writer, "_failure", counted)
        running = asyncio.create_task(worker.arun())
        await failed.wait()
        assert not running.done()
        put_back(backup, path)
        await finished.wait()
        worker.stop()
        await running
        assert (await driver.counts(now())) == {"default": {"done": 500}}

    opened(path, scenario)
    assert [record.getMessage() for record in caplog.records if "it is damaged" in record.getMessage()]


# A process that stands still


@contextmanager
def stopped(path):
    with children(("stop_with_the_lock", path)) as (child,):
        assert line(child) == "stopping"
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        yield child


@pytest.mark.parametrize("end", ["continued", "killed"])
def test_a_process_stopped_with_the_lock_is_named_and_waited_for(tmp_path, monkeypatch, end):
    path = tmp_path / "jobs.db"

    async def scenario(driver):
        monkeypatch.setattr(writer, "LOCK_TIMEOUT_S", 0.2)
        with stopped(path) as child:
            for number in range(3):
                with pytest.raises(
                    BackendUnavailable,
                    match=rf"process {child.pid} \(python.*\) has kept it locked for 0\.2 s: it was stop",
                ):
                    await driver.enqueue([job(f"refused-{number}")], now())
            assert await driver.queues() == []  # a reader does not wait
            shared = driver.transaction_sync(None)
            with pytest.raises(BackendUnavailable, match="has kept it locked"):
                shared.__enter__()
            monkeypatch.setattr(writer, "LOCK_TIMEOUT_S", PATIENCE)
            waiting = asyncio.create_task(driver.enqueue([job("patient")], now()))
            cancelled = asyncio.create_task(driver.enqueue([job("cancelled")], now()))
            assert (await asyncio.wait([waiting, cancelled], timeout=0.1))[1] == {waiting, cancelled}
            cancelled.cancel()
            os.kill(child.pid, signal.SIGCONT if end == "continued" else signal.SIGKILL)
            assert await waiting == [Enqueued("patient", False)]
            if end == "continued":
                assert await asyncio.to_thread(line, child) == "committed"
        await driver.enqueue([job("last")], now())
        assert [item.job.id for item in (await driver.list(now=now())).items] == ["last", "patient"]

    opened(path, scenario)


def test_the_log_says_that_a_caller_waits_for_its_own_transaction(tmp_path, caplog):
    """A transaction of a connection that it made itself, of which nothing is known here."""
    path = tmp_path / "jobs.db"
    with Client(f"sqlite:///{path}") as client, closing(sqlite3.connect(path)) as own:
        client.enqueue(JobRequest(type="t"))
        own.execute("BEGIN IMMEDIATE")
        with pytest.raises(BackendUnavailable):
            client.within(0.2).enqueue(JobRequest(type="t"))
        [said] = [each.getMessage() for each in caplog.records]
        assert re.search(r"a transaction of this process, .* enqueue in it with options\(connection=", said)
        own.rollback()
        client.enqueue(JobRequest(type="t"))


def test_a_foreign_program_that_keeps_the_file_locked_is_named(tmp_path, monkeypatch):
    """One process of ours waits for it with our lock: it is not to blame for those that wait behind it."""
    path = tmp_path / "jobs.db"

    async def scenario(driver):
        with foreign_transaction(path, "BEGIN IMMEDIATE") as foreign:
            waiting = asyncio.create_task(driver.enqueue([job("waiting")], now()))
            while not driver.database.writer.turns._is_taken:
                await asyncio.sleep(0)
            monkeypatch.setattr(writer, "LOCK_TIMEOUT_S", 0.05)
            blamed = rf"process {foreign.pid} \(python.*\), a program that writes to the file past TaskHarbor, has"
            behind = SqliteDriver(f"sqlite:///{path}?retention=1h")
            with pytest.raises(BackendUnavailable, match=blamed):
                await behind.open()
        assert await waiting == [Enqueued("waiting", False)]

    opened(path, scenario)


def test_a_forked_child_does_not_keep_the_lock_of_a_killed_parent(tmp_path, monkeypatch):
    path = tmp_path / "jobs.db"

    async def scenario(driver):
        monkeypatch.setattr(writer, "LOCK_TIMEOUT_S", 5.0)
        with children(("die_with_the_lock", path)) as (child,):
            assert await asyncio.to_thread(child.wait, PATIENCE) == -signal.SIGKILL
            assert await driver.enqueue([job("a")], now()) == [Enqueued("a", False)]

    opened(path, scenario)


def test_a_wait_that_begins_during_a_fork_leaves_no_lock_behind(tmp_path):
    """The loop's thread goes on while another one forks: what it begins then was not kept still, and is not let go."""

    async def scenario(driver):
        database._before_fork()
        waiting = asyncio.ensure_future(driver.wait(["default"], PATIENCE))
        await asyncio.sleep(0)
        database._after_fork_in_parent()
        assert not database._LOCK.locked()
        assert await driver.enqueue([job("a")], now()) == [Enqueued("a", False)]
        assert await waiting

    opened(tmp_path / "jobs.db", scenario)
