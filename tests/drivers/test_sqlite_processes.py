"""Many processes on one file: started at once, waking each other, killed. Real processes, waited for by signals."""

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from taskharbor import Client, JobRequest, Worker
from taskharbor.drivers import Ack, DriverError, JobRecord
from taskharbor.drivers.sqlite import SqliteDriver, schema
from tests import lanes
from tests.drivers.crash import killed_at_the_end, line
from tests.drivers.sqlite_child import LEASE, now

pytestmark = pytest.mark.lane("sqlite")
PATIENCE = 280  # seconds of real time after which a test gives up; never a figure
EARLY = datetime(2020, 1, 1, tzinfo=UTC)
ROOT = Path(__file__).parents[2]


def children(*commands):
    """Processes of sqlite_child."""
    return killed_at_the_end(
        [
            subprocess.Popen(
                [sys.executable, "-m", "tests.drivers.sqlite_child", *map(str, command)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for command in commands
        ]
    )


def opened(path, scenario):
    async def live():
        driver = SqliteDriver(f"sqlite:///{path}?synchronous=normal")
        await driver.open()
        try:
            async with asyncio.timeout(PATIENCE):
                return await scenario(driver)
        finally:
            await driver.close()

    return asyncio.run(live())


def test_many_processes_start_at_once(tmp_path):
    path, many = tmp_path / "jobs.db", lanes.figure(test=8, full=20)
    with children(*[("open_when_told", path)] * many) as started:
        assert [line(child) for child in started] == ["ready"] * many
        for child in started:
            child.stdin.write("go\n")
            child.stdin.flush()
        assert [line(child) for child in started] == ["False"] * many
        assert [child.wait(PATIENCE) for child in started] == [0] * many
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM taskharbor_jobs").fetchone() == (many,)
    connection.close()


@pytest.mark.left_to("full")
def test_a_process_that_opens_the_file_again_keeps_it_while_others_come_and_go(tmp_path):
    """Workers and applications open several drivers on one file; commands of the shell open it and close it."""
    path = tmp_path / "jobs.db"

    async def scenario(first):
        client = Client(first)
        await client.aenqueue(JobRequest(type="t"))
        log = os.stat(f"{path}-wal").st_ino
        for stored in range(1, 4):
            second = first.sibling()
            await second.open()
            with children(("look", path)) as (child,):
                assert await asyncio.to_thread(line, child) == str(stored)
                assert await asyncio.to_thread(child.wait, 60) == 0
            assert os.stat(f"{path}-wal").st_ino == log, "the other process took itself for the last one"
            await client.aenqueue(JobRequest(type="t"))
            await second.close()
        await client.aclose()

    opened(path, scenario)
    with children(("look", path)) as (child,):
        assert line(child) == "4"
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_a_migration_that_was_killed_in_the_middle_is_done_again(tmp_path):
    path = tmp_path / "jobs.db"
    with children(("die_in_the_migration", path)) as (child,):
        assert child.wait(30) == -signal.SIGKILL
    assert opened(path, lambda driver: driver.queues()) == []


def migrations_and(tmp_path, more):
    """Our migrations and one more, as a newer version has them."""
    folder = tmp_path / "newer"
    shutil.copytree(schema.FOLDER, folder)
    (folder / f"{schema.SCHEMA + 1:04d}_more.sql").write_text(more)
    return folder


def test_old_and_new_programs_use_a_file_side_by_side(tmp_path):
    """A deploy: a newer program upgrades the file while an older one works, stops and starts again."""
    path = tmp_path / "jobs.db"
    newer = migrations_and(
        tmp_path,
        "CREATE TABLE taskharbor_more (id TEXT);\n"
        "ALTER TABLE taskharbor_jobs ADD COLUMN more TEXT;\n"
        "CREATE INDEX taskharbor_jobs_more ON taskharbor_jobs (more) WHERE more IS NOT NULL;\n",
    )

    async def scenario(old):
        for started_again in (False, True):
            with children(("upgrade", path, newer)) as (new,):
                assert await asyncio.to_thread(line, new) == "upgraded"
                second = SqliteDriver(f"sqlite:///{path}?synchronous=normal&migrate=manual") if started_again else old
                if started_again:
                    await second.open()
                await old.enqueue([JobRecord(id=f"old-{started_again}", type="t")], now())
                new.stdin.write("go\n")
                new.stdin.flush()
                assert await asyncio.to_thread(line, new) == "[None]"
                (held,) = await second.reserve(["default"], now(), LEASE, 1, "old")
                assert await second.settle([Ack(held.lease)], now()) == [None]
                if started_again:
                    await second.close()
        assert await old.counts(now()) == {"default": {"done": 4}}

    opened(path, scenario)


def test_a_file_that_is_for_newer_programs_only_says_so(tmp_path):
    path = tmp_path / "jobs.db"
    newer = migrations_and(tmp_path, f"UPDATE taskharbor_meta SET oldest = {schema.SCHEMA + 1};\n")
    opened(path, lambda driver: driver.queues())
    with children(("upgrade", path, newer)) as (new,):
        assert line(new) == "upgraded"
    wanted = rf"for programs that know number {schema.SCHEMA + 1} or later; this version .* knows {schema.SCHEMA}"
    with pytest.raises(DriverError, match=wanted):
        opened(path, lambda driver: driver.queues())


def test_many_processes_never_see_a_locked_database(tmp_path):
    path, many, rounds = tmp_path / "jobs.db", lanes.figure(test=8, full=16), lanes.figure(test=25, full=150)
    with children(*[("hammer", path, rounds)] * many) as started:
        said = [child.communicate(timeout=PATIENCE)[0].splitlines() for child in started]
    assert [text for lines in said for text in lines if not text.startswith("done")] == []
    counts = opened(path, lambda driver: driver.counts(now()))
    assert counts == {"default": {"done": many * rounds * 3}}


def test_a_job_of_a_killed_process_runs_after_its_lease(tmp_path):
    path = tmp_path / "jobs.db"

    async def scenario(driver):
        client = Client(driver)
        await client.aenqueue(JobRequest(type="t"))
        with children(("reserve_and_hang", path)) as (child,):
            id = await asyncio.to_thread(line, child)
            child.kill()
            child.wait()
        held = await driver.inspect(id, EARLY)
        assert (held.state, held.worker) == ("inflight", "doomed")
        last = held.lease_expires_at - timedelta(milliseconds=1)
        assert await driver.reserve(["default"], last, LEASE, 1, "w") == []
        ran = asyncio.Event()
        worker = Worker(driver, poll_interval=0.05)

        async def handler() -> None:
            ran.set()

        worker.register("t", handler)
        running = asyncio.create_task(worker.arun())
        await ran.wait()
        worker.stop()
        await running
        info = await driver.inspect(id, now())
        assert (ran.is_set(), info.state, info.job.deliveries) == (True, "done", 2)
        await client.aclose()

    opened(path, scenario)


@pytest.mark.parametrize("inotify", [True, False])
def test_another_process_wakes_a_waiting_call(tmp_path, monkeypatch, inotify):
    if not inotify:
        monkeypatch.setattr("taskharbor.drivers.sqlite.wait.inotify", lambda: None)

    async def scenario(driver):
        with children(("enqueue_on_command", tmp_path / "jobs.db")) as (child,):
            await asyncio.to_thread(line, child)
            for _ in range(3):
                assert await driver.reserve(["default"], now(), LEASE, 9, "w") == []
                waiting = asyncio.create_task(driver.wait(["default"], 50))
                assert (await asyncio.wait([waiting], timeout=0.05))[1] == {waiting}
                child.stdin.write("now\n")
                child.stdin.flush()
                assert await waiting is True
                assert len(await driver.reserve(["default"], now(), LEASE, 9, "w")) == 1

    opened(tmp_path / "jobs.db", scenario)


def test_killed_workers_lose_nothing(tmp_path):
    """Each job runs at least once, and again only if a worker that had begun it was killed."""
    path, journal = tmp_path / "jobs.db", tmp_path / "journal"
    jobs, kills = lanes.figure(test=400, full=4_000), lanes.figure(test=4, full=15)

    async def scenario(driver):
        client = Client(driver)
        killed: list[int] = []
        with children(*[("work", path, journal)] * 3) as started:
            for number in range(jobs):
                await client.aenqueue(JobRequest(type="t", payload={"n": number}))
                if number % (jobs // kills) == jobs // kills // 2:
                    victim = started[len(killed) % len(started)]
                    victim.kill()
                    killed.append(victim.pid)
                    await asyncio.to_thread(victim.communicate)
                    with children(("work", path, journal)) as (other,):
                        await asyncio.to_thread(line, other)
                        killed.append(other.pid)
            with children(("work", path, journal)):
                while (await driver.counts(now())).get("default") != {"done": jobs}:
                    await driver.wait(["nothing comes here"], 0.05)
        await client.aclose()
        runs = [text.split() for text in journal.read_text().splitlines()]
        seen = Counter(number for number, _ in runs)
        by_killed = {number for number, pid in runs if int(pid) in killed}
        assert len(seen) == jobs
        assert {number for number, count in seen.items() if count > 1} <= by_killed

    opened(path, scenario)
