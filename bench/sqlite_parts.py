"""What each hand-written part of the SQLite driver earns: `python -m bench.sqlite_parts [--rounds N] [--folder PATH]`.

Each part is switched off alone, and the same measures are taken with and without it, in short interleaved rounds and
fresh processes. The table shows medians and, in brackets, the ratio to the driver with all parts (below 1: worse
without the part; for times the ratio is inverted, so that it reads the same way). Only ratios of one run mean
anything: the clock of a busy machine scatters by a third.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

from taskharbor import Client, JobRequest, Worker
from taskharbor.drivers.sqlite import turns, wait, wal, writer

TYPE = "bench:noop"
ENQUEUED, WORKED, PICKED, CONTENDED, STALLED = 400, 3000, 40, 150, 3000  # jobs of one round


def _without_inline() -> None:
    """Every call of a coroutine goes to the writer's thread."""
    _replace(writer.Writer, "try_inline", lambda self, work: None)


def _without_own_sync() -> None:
    """SQLite syncs within each commit, reserves included."""
    opened = writer.Writer._opened

    def with_full(self: writer.Writer, connection: Any) -> None:
        opened(self, connection)
        connection.execute("PRAGMA synchronous = full")
        self.durable = False

    _replace(writer.Writer, "_opened", with_full)


def _without_own_checkpoint() -> None:
    """SQLite makes one within the commit that fills the thousandth page, as it does by default."""
    opened = writer.Writer._opened

    def with_default(self: writer.Writer, connection: Any) -> None:
        opened(self, connection)
        connection.execute("PRAGMA wal_autocheckpoint = 1000")

    _replace(wal.Checkpointer, "is_due", lambda self, wal: False)
    _replace(writer.Writer, "_opened", with_default)


def _without_file_lock() -> None:
    """Processes wait for each other as SQLite does: they sleep, and try again."""
    _replace(turns.FileLock, "acquire", lambda self, timeout, is_interrupted=None: None)
    _replace(turns.FileLock, "try_acquire", lambda self: True)
    _replace(turns.FileLock, "release", lambda self: None)


def _without_inotify() -> None:
    """Waiting processes poll every 20 ms."""
    _replace(wait, "inotify", lambda: None)


def _without_inline_sync() -> None:
    """A coroutine never syncs on its event loop's thread."""
    _replace(wal, "INLINE_SYNC_BUDGET_S", -1.0)


def _replace(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


PARTS: dict[str, Callable[[], None]] = {
    "all parts": lambda: None,
    "no inline path": _without_inline,
    "no own sync": _without_own_sync,
    "no own checkpoint": _without_own_checkpoint,
    "no file lock": _without_file_lock,
    "no inotify": _without_inotify,
    "no inline sync": _without_inline_sync,
}


async def _noop() -> None:
    pass


async def _awaited(dsn: str) -> float:
    """Jobs enqueued one at a time by a coroutine, per second."""
    async with Client(dsn) as client:
        await client.aenqueue(JobRequest(type=TYPE))
        began = time.perf_counter()
        for _ in range(ENQUEUED):
            await client.aenqueue(JobRequest(type=TYPE))
        return ENQUEUED / (time.perf_counter() - began)


def _blocking(dsn: str) -> float:
    """Jobs enqueued one at a time by a plain function, per second."""
    with Client(dsn) as client:
        client.enqueue(JobRequest(type=TYPE))
        began = time.perf_counter()
        for _ in range(ENQUEUED):
            client.enqueue(JobRequest(type=TYPE))
        return ENQUEUED / (time.perf_counter() - began)


def _by_hand(dsn: str) -> float:
    """Rows inserted and committed one at a time with sqlite3 alone, as durably, per second."""
    with closing(sqlite3.connect(dsn.removeprefix("sqlite:///"), isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("PRAGMA synchronous = full")
        connection.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, state INTEGER, type TEXT, payload BLOB)")
        connection.execute("CREATE INDEX jobs_state ON jobs (state, id)")
        began = time.perf_counter()
        for _ in range(ENQUEUED):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO jobs (state, type, payload) VALUES (0, ?, ?)", (TYPE, b"{}"))
            connection.execute("COMMIT")
        return ENQUEUED / (time.perf_counter() - began)


async def _worker(dsn: str) -> float:
    """Jobs worked off by one worker with 16 slots, per second."""
    async with Client(dsn) as client:
        await client.aenqueue_many([JobRequest(type=TYPE)] * WORKED)
    worker = Worker(dsn)
    worker.register(TYPE, _noop)
    began = time.perf_counter()
    await worker.arun(until_empty=True)
    return WORKED / (time.perf_counter() - began)


async def _pick_up(dsn: str) -> float:
    """Milliseconds from an enqueue here to the start of the handler in another process, median."""
    part = os.environ["BENCH_PART"]
    async with Client(dsn) as client:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.sqlite_parts", "--serve", dsn, "--part", part, stdout=asyncio.subprocess.PIPE
        )
        assert child.stdout is not None
        await child.stdout.readline()
        took = []
        for _ in range(PICKED):
            await asyncio.sleep(0.03)
            began = time.monotonic()
            await client.aenqueue(JobRequest(type=TYPE))
            took.append(float(await child.stdout.readline()) - began)
        child.terminate()
        await child.wait()
    return statistics.median(took) * 1000


async def _stall(dsn: str) -> float:
    """Milliseconds of the slowest of many small writes on an event loop, which stands still meanwhile."""
    slowest = 0.0
    async with Client(f"{dsn}?synchronous=normal") as client:
        for _ in range(STALLED):
            began = time.perf_counter()
            await client.aenqueue(JobRequest(type=TYPE, payload={"text": "x" * 2000}))
            slowest = max(slowest, time.perf_counter() - began)
    return slowest * 1000


def _contended(dsn: str) -> float:
    """Milliseconds of an enqueue while two other processes enqueue without a pause, 95th percentile."""
    order = [sys.executable, "-m", "bench.sqlite_parts", "--fill", dsn, "--part", os.environ["BENCH_PART"]]
    others = [subprocess.Popen(order, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    took = []
    try:
        for other in others:
            assert other.stdout is not None
            other.stdout.readline()  # it has begun
        with Client(dsn) as client:
            for _ in range(CONTENDED):
                began = time.perf_counter()
                client.enqueue(JobRequest(type=TYPE))
                took.append(time.perf_counter() - began)
    finally:
        for other in others:
            other.kill()
            other.wait()
    return statistics.quantiles(took, n=20)[-1] * 1000


async def _fill(dsn: str) -> None:
    async with Client(dsn) as client:
        print("ready", flush=True)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            await client.aenqueue(JobRequest(type=TYPE, queue="fill"))


async def _serve(dsn: str) -> None:
    worker = Worker(dsn)

    async def seen() -> None:
        print(time.monotonic(), flush=True)

    worker.register(TYPE, seen)
    print("ready", flush=True)
    await worker.arun()


MEASURES: dict[str, Callable[[str], float | Coroutine[Any, Any, float]]] = {
    "worker, jobs/s": _worker,
    "pick-up, ms": _pick_up,
    "awaited enqueue, /s": _awaited,
    "blocking enqueue, /s": _blocking,
    "contended p95, ms": _contended,
    "slowest write, ms": _stall,
    "by hand, /s": _by_hand,
}


def _measure(part: str, measure: str, folder: str) -> float:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        made = subprocess.run(
            [sys.executable, "-m", "bench.sqlite_parts", "--part", part, "--measure", measure, "--folder", place],
            capture_output=True,
            text=True,
            check=False,
        )
    if made.returncode:
        raise SystemExit(f"{part}, {measure}: {made.stderr[-2000:]}")
    return float(json.loads(made.stdout.splitlines()[-1]))


def table(figures: dict[tuple[str, str], list[float]], measures: list[str], parts: list[str]) -> str:
    """The medians as Markdown, with ratios to the first part."""
    rows = ["| | " + " | ".join(measures) + " |", "|---|" + "---:|" * len(measures)]
    for part in parts:
        cells = []
        for measure in measures:
            value = statistics.median(figures[part, measure])
            ratios = [
                (base / other) if measure.endswith("ms") else (other / base)
                for base, other in zip(figures[parts[0], measure], figures[part, measure], strict=True)
            ]
            cells.append(f"{value:,.3g} ({statistics.median(ratios):.2f})")
        rows.append(f"| {part} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--measure", action="append", choices=MEASURES)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--fill", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve or given.fill:
        PARTS[given.part[0]]()
        asyncio.run(_serve(given.serve) if given.serve else _fill(given.fill))
        return
    if given.measure and len(given.measure) == 1 and given.part and len(given.part) == 1:
        os.environ["BENCH_PART"] = given.part[0]
        PARTS[given.part[0]]()
        measured = MEASURES[given.measure[0]](f"sqlite:///{Path(given.folder)}/jobs.db")
        print(json.dumps(asyncio.run(measured) if asyncio.iscoroutine(measured) else measured))
        return
    parts = list(given.part or PARTS)
    measures = list(given.measure or MEASURES)
    figures: dict[tuple[str, str], list[float]] = {}
    for _ in range(given.rounds):
        for measure in measures:
            for part in parts:
                figures.setdefault((part, measure), []).append(_measure(part, measure, given.folder))
        print(table(figures, measures, parts), file=sys.stderr, flush=True)
    print(table(figures, measures, parts))


if __name__ == "__main__":
    main()
