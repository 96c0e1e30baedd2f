"""Steps of the machine's clock: no lease is lost, nothing runs twice, whichever process notices first."""

import glob
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from taskharbor import Client, JobRequest
from taskharbor.drivers import Ack, Lease
from taskharbor.drivers.sqlite import SqliteDriver, store_clock
from taskharbor.model.times import to_us
from tests.drivers.sqlite_files import LEASE, job, opened

pytestmark = pytest.mark.lane("sqlite")
HOUR = timedelta(hours=1)


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> list[timedelta]:
    """By how much the machine's clock is set: the last of these."""
    steps = [timedelta(0)]
    read = store_clock._read

    def stepped() -> tuple[int, int]:
        ms, apart = read()
        microseconds = steps[-1] // timedelta(microseconds=1)
        return ms + microseconds // 1000, apart + microseconds

    monkeypatch.setattr(store_clock, "_read", stepped)
    return steps


@asynccontextmanager
async def two_processes(path: Path) -> AsyncIterator[tuple[SqliteDriver, SqliteDriver]]:
    """Drivers that read the clock each for itself."""
    async with opened(path) as first, opened(path) as second:
        yield first, second


@pytest.mark.parametrize("by", [HOUR, -HOUR])
async def test_a_step_loses_no_lease_in_a_process_that_has_followed_nor_in_one_that_has_not(
    tmp_path: Path, step: list[timedelta], by: timedelta
) -> None:
    async with two_processes(tmp_path / "jobs.db") as (early, late):
        now = await early.server_time()
        await late.server_time()
        await early.enqueue([job("a"), job("b"), job("c1", group="g"), job("c2", group="g")], now)
        [[mine], [theirs], [_]] = [
            await driver.reserve(["default"], now, LEASE, 1, worker)
            for driver, worker in ((early, "early"), (late, "late"), (early, "early"))
        ]
        held = {early: mine.lease, late: theirs.lease}
        step.append(by)
        after = await early.server_time()
        assert abs(after - now - by) < LEASE
        assert await early.reserve(["default"], after, LEASE, 9, "early") == []
        assert await late.reserve(["default"], now + LEASE / 3, LEASE, 9, "late") == []  # its clock is the old one
        for driver, moment in ((early, after), (late, now)):
            [renewed] = await driver.extend([held[driver]], moment + LEASE / 2, LEASE)
            assert isinstance(renewed, Lease)
            assert renewed.expires_at == moment + LEASE / 2 + LEASE  # as its own clock shows it
        assert await late.server_time() >= after
        [renewed] = await late.extend([held[late]], after + LEASE, LEASE)
        assert isinstance(renewed, Lease)
        assert await early.settle([Ack(held[early])], after + LEASE) == [None]
        assert await late.settle([Ack(held[late])], after + LEASE) == [None]


@pytest.mark.parametrize("by", [HOUR, -HOUR])
async def test_a_clock_that_follows_later_than_its_driver_loses_no_lease(
    tmp_path: Path, step: list[timedelta], by: timedelta
) -> None:
    """The store's clock was read for something else: a page, a metric. The worker's own clock follows seconds later."""
    async with two_processes(tmp_path / "jobs.db") as (ours, others):
        now = await ours.server_time()
        await others.server_time()
        await ours.enqueue([job("a"), job("b"), job("c"), job("d")], now)
        [[mine], [acked], [_]] = [
            await driver.reserve(["default"], now, LEASE, 1, worker)
            for driver, worker in ((ours, "w"), (ours, "w"), (others, "x"))
        ]
        step.append(by)
        after = await ours.server_time()
        assert [each.job.id for each in await ours.reserve(["default"], now, LEASE, 9, "w")] == ["d"]
        assert await others.reserve(["default"], now, LEASE, 9, "x") == []
        [renewed] = await ours.extend([mine.lease], now + LEASE / 2, LEASE)
        assert isinstance(renewed, Lease)
        assert await ours.settle([Ack(acked.lease)], now + LEASE / 2) == [None]
        assert await ours.reserve(["default"], after + LEASE / 2, LEASE, 9, "w") == []  # it has followed
        assert await ours.settle([Ack(mine.lease)], after + LEASE) == [None]


@pytest.mark.parametrize("by", [HOUR, -HOUR])
async def test_a_clock_that_blocking_calls_have_moved_is_added_up_once(
    tmp_path: Path, step: list[timedelta], by: timedelta
) -> None:
    async with two_processes(tmp_path / "jobs.db") as (ours, others):
        now = await ours.server_time()
        await others.server_time()
        await ours.enqueue([job("a"), job("b"), job("c")], now)
        [mine] = await ours.reserve(["default"], now, LEASE, 1, "w")
        [_] = await others.reserve(["default"], now, LEASE, 1, "x")
        step.append(by)
        blocking = ours.blocking()
        driver = blocking.until(time.monotonic() + 60)
        await driver.open()
        after = await driver.server_time()  # as a handler's enqueue does
        blocking.close()
        assert [each.job.id for each in await ours.reserve(["default"], after, LEASE, 9, "w")] == ["c"]
        assert await others.reserve(["default"], now, LEASE, 9, "x") == []
        assert isinstance((await ours.extend([mine.lease], after + LEASE / 2, LEASE))[0], Lease)


async def test_where_the_system_does_not_name_its_start_only_a_living_process_tells_a_step(
    tmp_path: Path, step: list[timedelta], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_clock, "_boot", lambda: store_clock.UNKNOWN_BOOT)
    async with opened(tmp_path / "jobs.db") as driver:
        now = await driver.server_time()
        await driver.enqueue([job("a")], now)
        [_] = await driver.reserve(["default"], now, LEASE, 1, "w")
        step.append(HOUR)  # the machine starts anew: the clock that counts begins at 0
        async with opened(tmp_path / "jobs.db") as later:
            after = await later.server_time()
            assert len(await later.reserve(["default"], after, LEASE, 9, "w")) == 1  # not an hour later
            step.append(2 * HOUR)
            assert await later.reserve(["default"], await later.server_time(), LEASE, 9, "w") == []


async def test_what_is_due_follows_the_corrected_time(tmp_path: Path, step: list[timedelta]) -> None:
    async with two_processes(tmp_path / "jobs.db") as (driver, _):
        now = await driver.server_time()
        due = now + timedelta(minutes=30)
        await driver.enqueue([job("g", run_at=due, group="g"), job("h", run_at=due, group="h"), job("first")], now)
        [first] = await driver.reserve(["default"], now, LEASE, 9, "w")
        step.append(HOUR)
        ahead = await driver.server_time()
        assert [each.job.id for each in await driver.reserve(["default"], ahead, LEASE, 1, "w")] == ["g"]
        step.append(timedelta(0))
        back = await driver.server_time()
        assert await driver.reserve(["default"], back, LEASE, 9, "w") == []
        assert await driver.settle([Ack(first.lease)], back) == [None]
        assert await driver.counts(back) == {"default": {"done": 1, "inflight": 1, "scheduled": 1}}
        assert (
            await driver.reserve(["default"], due - timedelta(seconds=1), LEASE, 9, "x") != []
        )  # the lease on "g" has ended
        assert [each.job.id for each in await driver.reserve(["default"], due, LEASE, 9, "x")] == ["h"]


LIBRARY = next(iter(glob.glob("/usr/lib/*/faketime/libfaketime.so.1")), "")
START = datetime.now(UTC)


def until(condition: Callable[[], object]) -> None:
    for _ in range(12000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not come within two minutes")


@pytest.mark.may_skip("libfaketime is for Linux: `tests/servers/provision faketime` installs it")
@pytest.mark.skipif(not LIBRARY, reason="no libfaketime")
@pytest.mark.parametrize("set_to", ["+3600", pytest.param("-3600", marks=pytest.mark.left_to("full"))])
def test_workers_whose_machine_has_its_clock_set_run_each_job_once(tmp_path: Path, set_to: str) -> None:
    dsn = f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"
    (clock := tmp_path / "clock").write_text("+0\n")
    environment = {
        **os.environ,
        "LD_PRELOAD": LIBRARY,
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    (starts := tmp_path / "starts").touch()
    (ticks := tmp_path / "ticks").touch()
    os.mkfifo(tmp_path / "go")
    with closing(Client(dsn)) as client:
        handles = [client.enqueue(JobRequest(type="hold")) for _ in range(4)]
        command = [sys.executable, "-m", "tests.drivers.clock_child", dsn, str(tmp_path)]
        workers = [subprocess.Popen(command, env=environment) for _ in range(2)]
        try:
            until(lambda: len(starts.read_text().split()) == 4 and ticks.read_text())
            clock.write_text(f"{set_to}\n")
            with closing(sqlite3.connect(tmp_path / "jobs.db")) as file:
                # Each worker has followed once its heartbeat bears the new time.
                ahead = START + timedelta(seconds=int(set_to) / 2)
                query = f"SELECT count(*) FROM taskharbor_workers WHERE seen_at {'<' if set_to[0] == '-' else '>'} ?"
                until(lambda: file.execute(query, (to_us(ahead),)).fetchone() == (2,))
                assert file.execute(
                    "SELECT count(*) FROM taskharbor_jobs WHERE state = 2 AND type = 'hold'"
                ).fetchone() == (4,)
            # The schedule follows the corrected time, at the latest within a minute.
            middle, late = ahead.timestamp(), set_to[0] == "+"
            until(lambda: sum((int(slot) > middle) is late for slot in ticks.read_text().split()) > 2)
            with (tmp_path / "go").open("wb"):  # all readers go on when it is closed
                pass
            for handle in handles:
                handle.wait(timeout=60)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        assert sorted(starts.read_text().split()) == sorted(handle.id for handle in handles)
        assert {handle.info().job.deliveries for handle in handles} == {1}
        slots = ticks.read_text().split()
        assert len(set(slots)) == len(slots)
