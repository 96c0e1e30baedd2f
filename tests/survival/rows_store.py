"""Rows that hurt the store itself: killed and started again, opened by many at once, full."""

import asyncio
import logging
import os
import shlex
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from taskharbor.drivers import Ack, JobRecord, WorkerInfo, open_driver
from tests import lanes
from tests.drivers.test_sqlite_trouble import BALLAST, mounted
from tests.servers import postgres
from tests.survival.field import ROOT, Field, field_on
from tests.survival.figures import Figures, of_verdict
from tests.survival.full_postgres import DISK
from tests.survival.registry import row
from tests.survival.stores import Store, own_store, shared_store


@row("store-restart", stores=("postgres", "redis", "cluster"), seconds=240)
def store_restart(store: str, folder: Path) -> Figures:
    """kill -9 of the server under load, again and again; the workers go on by themselves."""
    seconds = lanes.figure(test=0, chaos=180)
    jobs = lanes.figure(test=60, chaos=9000)
    with own_store(store, folder) as found, field_on(found, folder, lease=20.0, concurrency=4) as field:
        alive = [field.worker() for _ in range(3)]
        pause = seconds / (jobs / 10)
        sending = field.spawn("producer", first=0, count=jobs, pause=pause)
        field.ready(*alive, sending)
        begin, restarts = time.monotonic(), 0
        while time.monotonic() < begin + seconds * 0.85 or not restarts:
            if seconds:
                time.sleep(field.chance.uniform(5, 30))
            field.goes_on(jobs)
            with field.fault("store restart"):
                found.restart()
            restarts += 1
        field.ended(sending, patience=300)
        verdict = field.verdict(field.settled(jobs, patience=300))
        died = [pid for pid in alive if not os.path.exists(f"/proc/{pid}")]
        assert not died, "a worker did not survive its store"
        return of_verdict(verdict, restarts, "kill -9 of the server", "the same 3 workers went on")


def fresh(store: str, folder: Path, turn: int) -> Store:
    """A store in which nothing was made yet."""
    if store == "postgres":
        server = postgres.shared()
        return Store(store, server.address(server.database()), [server], [server.port])
    if store == "sqlite":
        return Store(store, f"sqlite:///{folder}/fresh{turn}.db")
    return shared_store(store, folder)


@row("migrations", seconds=90)
def migrations(store: str, folder: Path) -> Figures:
    """Processes that open an empty store at once; some are killed in the middle."""
    rounds, processes = lanes.figure(test=1, chaos=8), lanes.figure(test=4, chaos=20)
    total, killed, verdict = 0, 0, None
    for turn in range(rounds):
        place = folder / str(turn)
        place.mkdir()
        with field_on(fresh(store, place, turn), place, lease=5.0) as field:
            opening = [field.spawn("opener", first=n) for n in range(processes)]
            for pid in field.chance.sample(opening, processes // 4):
                time.sleep(field.chance.uniform(0, 0.03))
                field.kill(pid)
            killed += processes // 4
            field.ended(*opening)
            again = [field.spawn("opener", first=processes + n) for n in range(2)]
            field.ended(*again)
            helper = field.worker()
            acknowledged = sum(len(note.data[0]) for note in field.notes("stored"))
            assert acknowledged >= processes - processes // 4 + 2, field.log()
            stored = field.settled(acknowledged)
            field.stop(helper)
            verdict = field.verdict(stored)
            total += verdict.jobs
    assert verdict is not None
    verdict.jobs = verdict.executions = total
    verdict.recovery = None
    what = f"{rounds} × {processes} processes open an empty store at once, {killed} killed in the middle"
    return of_verdict(verdict, killed, what)


@row("full", stores=("redis", "cluster"), seconds=40)
def full(store: str, folder: Path) -> Figures:
    """Redis reaches its maxmemory: an enqueue raises, running jobs end, and all goes on when there is room."""
    times, jobs = lanes.figure(test=1, chaos=5), lanes.figure(test=200, chaos=5000)
    with field_on(found := shared_store(store, folder), folder, lease=10.0) as field:
        alive = [field.worker() for _ in range(2)]
        sending = field.spawn("producer", first=0, count=jobs, timeout=1, pause=0.002)
        field.ready(*alive, sending)
        try:
            for _ in range(times):
                refused = len(field.notes("unknown"))
                with field.fault("full"):
                    _limit(found, 1)
                    _refused(field, refused, jobs)
                    _limit(found, 0)
                if lanes.run() == "chaos":
                    time.sleep(1)
        finally:
            _limit(found, 0)
        field.ended(sending)
        verdict = field.verdict(field.settled(jobs))
        refusals = len(field.notes("unknown"))
        assert refusals, "nothing was refused: this row sees nothing"
        return of_verdict(
            verdict, times, "maxmemory reached", f"{refusals} enqueues raised; nothing acknowledged is lost"
        )


def _refused(field: Field, before: int, jobs: int) -> None:
    field.until(lambda: len(field.notes("unknown")) > before or field.done() >= jobs, "an enqueue was refused")


def _limit(store: Store, size: int) -> None:
    for server in store.servers:
        server.run("CONFIG", "SET", "maxmemory", size)


@row("full", stores=("sqlite",), seconds=20, elsewhere=True)
def full_sqlite(store: str, folder: Path) -> Figures:
    """A file on a small disk that fills up, and gets room again."""
    small = mounted(folder)
    assert small is not None, "mounting a small disk needs root or user namespaces"
    command = [*small, sys.executable, "-m", "tests.drivers.sqlite_child", "fill_the_disk", str(folder), str(BALLAST)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    lost = next(line for line in done.stdout.splitlines() if line.startswith("lost "))
    assert lost.startswith("lost 0 of ")
    assert done.stdout.splitlines()[-1] == "ran 0 more than were stored"
    jobs = int(lost.split()[3].rstrip(","))
    return Figures(jobs=jobs, faults=1, what="the disk is full", note="an enqueue raised; went on when there was room")


@row("full", stores=("postgres",), seconds=60, elsewhere=True)
def full_postgres(store: str, folder: Path) -> Figures:
    """A tablespace on a small disk that fills up, and gets room again."""
    mount = f"mount -t tmpfs -o size={DISK} tmpfs {shlex.quote(str(folder))}"
    program = [sys.executable, "-m", "tests.survival.full_postgres", str(folder)]
    command = ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh", *program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    stored, missing, more, ran = map(int, done.stdout.split())
    refused = done.stderr.count("refused: BackendUnavailable")
    assert (missing, ran, refused) == (0, stored + more, 3), done.stdout + done.stderr
    return Figures(jobs=stored, faults=1, what="the disk is full", executions=ran,
                   note=f"{refused} enqueues raised; went on when there was room")  # fmt: skip


@row("bloat", stores=("postgres",), seconds=120)
def bloat(store: str, folder: Path) -> Figures:
    """An idle transaction that holds a snapshot while jobs flow: dead rows stay, and the throughput holds."""
    jobs, batch = lanes.figure(test=500, chaos=100_000), 100
    found = shared_store(store, folder)
    told: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    async def flow(driver: Any, first: int, count: int) -> float:
        begin, lease = time.monotonic(), timedelta(seconds=600)
        for start in range(first, first + count, batch):
            now = await driver.server_time()
            await driver.enqueue([JobRecord(id=f"j{n:08}", type="t") for n in range(start, start + batch)], now)
            some = await driver.reserve(["default"], now, lease, batch, "w")
            assert len(some) == batch
            assert await driver.settle([Ack(each.lease) for each in some], now) == [None] * batch
        return count / (time.monotonic() - begin)

    async def live() -> tuple[float, float, float]:
        driver = open_driver(found.dsn)
        await driver.open()
        info = WorkerInfo(worker="w", queues=("default",), running=0, started_at=await driver.server_time())
        part, patience = jobs // 5, lanes.figure(test=0, chaos=90)
        before = await flow(driver, 0, part)
        with psycopg.connect(found.dsn) as idle:
            idle.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            idle.execute("create table mine (n integer)")
            begin = time.monotonic()
            for turn in range(3):
                await flow(driver, part * (turn + 1), part)
            await driver.beat(info, await driver.server_time())
            after = await flow(driver, part * 4, part)
            while not any("transaction open" in text for text in told) and time.monotonic() < begin + patience:
                await driver.beat(info, await driver.server_time())
                await asyncio.sleep(0.5)
            warned = time.monotonic() - begin
            idle.rollback()
        await driver.close()
        return before, after, warned

    ear = Ear()
    logging.getLogger("taskharbor.drivers.postgres").addHandler(ear)
    try:
        before, after, warned = asyncio.run(live())
    finally:
        logging.getLogger("taskharbor.drivers.postgres").removeHandler(ear)
    if lanes.run() == "chaos":
        assert any("transaction open" in text for text in told), "no warning"
    share = after / before * 100
    return Figures(jobs=jobs, faults=1, what="a transaction left open while jobs flow",
                   note=f"throughput {share:.0f} % of that before; a warning within {warned:.0f} s")  # fmt: skip
