"""What every reader of a store that nobody arranged costs, and whether it says what is true.

    python -m bench.readers [sqlite|postgres|redis|cluster …] [--jobs 200000] [--queues 45]

The store, the readers and the comparison with the records are those of tests/ops/test_unarranged.py, with the limits of
time as they are shipped. For each reader: how often it was asked, the median and the longest time of a call, and the
most work of one: pages of PostgreSQL's buffers, commands that Redis ran (also inside scripts, on all nodes), or KiB
that SQLite read from its file. A reader is `right`, or `known in part`: it said itself that it does not know the rest;
or what it said is printed beneath. Ends with status 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from bench.layout import machine
from bench.stores import places
from taskharbor import Harbor
from taskharbor.conformance.environment import opened
from taskharbor.drivers import open_driver
from taskharbor.testing import ManualClock
from tests.ops.read_by_command import COMMAND_READERS
from tests.ops.read_by_harbor import HARBOR_READERS
from tests.ops.read_by_page import PAGE_READERS
from tests.ops.seen import Seen
from tests.ops.unarranged import Unarranged

T = TypeVar("T")
READERS = (*HARBOR_READERS, *PAGE_READERS, *COMMAND_READERS)
Work = Callable[[], int]


@dataclass
class Asked(Seen):
    """It takes the time and the work of each answer. `work`: what the store has done so far."""

    work: Work = lambda: 0
    took: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    async def ask(self, reader: str, answer: Awaitable[T]) -> T:
        before, began = self.work(), time.perf_counter()
        try:
            return await super().ask(reader, answer)
        finally:
            seconds = time.perf_counter() - began
            self.took.setdefault(reader, []).append((seconds, self.work() - before))


@contextmanager
def sqlite() -> Iterator[tuple[str, str, Work]]:
    with places.sqlite() as made:
        place = made.new()

        def read() -> int:
            text = Path("/proc/self/io").read_text(encoding="ascii")
            return int(text.split("rchar:")[1].split()[0]) // 1024

        yield f"sqlite:///{place.address}", "KiB", read


@contextmanager
def postgres() -> Iterator[tuple[str, str, Work]]:
    import psycopg

    from tests.servers.postgres import FOLDERS, Server

    server = Server(FOLDERS, of=None, **places.POSTGRES, shared_preload_libraries="pg_stat_statements")
    try:
        name = server.database()
        with psycopg.connect(server.address(name), autocommit=True) as connection:
            connection.execute("create extension pg_stat_statements")

            def pages() -> int:
                found = connection.execute(
                    "select sum(shared_blks_hit + shared_blks_read) from pg_stat_statements where query !~ 'blks'"
                ).fetchone()
                return int(found[0] or 0) if found else 0

            yield server.address(name), "pages", pages
    finally:
        server.stop()


@contextmanager
def redis() -> Iterator[tuple[str, str, Work]]:
    from tests.servers.redis import Server

    server = Server()
    try:
        with closing(server.client()) as client:
            yield server.url, "commands", lambda: _commands([client])
    finally:
        server.stop()


@contextmanager
def cluster() -> Iterator[tuple[str, str, Work]]:
    from tests.servers.redis import Cluster

    made = Cluster()
    try:
        clients = [node.client() for node in made.nodes[: made.primaries]]
        yield made.url, "commands", lambda: _commands(clients)
    finally:
        made.stop()


def _commands(clients: Sequence[Any]) -> int:
    ignored = ("cmdstat_info", "cmdstat_ping", "cmdstat_replconf")
    stats = [client.info("commandstats") for client in clients]
    return sum(int(found["calls"]) for each in stats for name, found in each.items() if name not in ignored)


STORES = {"sqlite": sqlite, "postgres": postgres, "redis": redis, "cluster": cluster}


async def measure(dsn: str, work: Work, jobs: int, queues: int) -> tuple[Asked, list[str], float]:
    """Every reader of a store of this size; what was wrong, and how many seconds the filling took."""
    now, began = datetime.now(UTC).replace(microsecond=0), time.perf_counter()
    async with opened(open_driver(dsn)) as driver:
        store = Unarranged(driver, now, jobs, queues)
        truth = await store.fill(Harbor(driver, clock=ManualClock(now)))
        filled = time.perf_counter() - began
        seen = Asked(truth, store, driver, dsn, work=work)
        wrong = []
        for reader in READERS:
            print(f"bench: {reader.__module__}.{reader.__name__}", file=sys.stderr)
            try:
                wrong += await reader(seen)
            except Exception as error:
                wrong.append(f"{reader.__module__}.{reader.__name__}: {type(error).__name__}: {error}"[:500])
        return seen, wrong, filled


def report(seen: Asked, unit: str) -> Iterator[str]:
    """One line for each reader."""
    yield f"| reader | calls | median ms | longest ms | {unit}, at most |"
    yield "| --- | --- | --- | --- | --- |"
    for name, calls in seen.took.items():
        times = [seconds * 1000 for seconds, _ in calls]
        most = max(work for _, work in calls)
        yield f"| {name} | {len(calls)} | {statistics.median(times):.1f} | {max(times):.1f} | {most:,} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser("python -m bench.readers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store", nargs="*", default=["sqlite", "postgres", "redis"], choices=[*STORES])
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--queues", type=int, default=45)
    options = parser.parse_args(arguments)
    print(machine())
    failed = 0
    for name in options.store:
        with STORES[name]() as (dsn, unit, work):
            seen, wrong, filled = asyncio.run(measure(dsn, work, options.jobs, options.queues))
        size = f"{len(seen.truth.infos):,} jobs in {len(seen.truth.counts):,} queues"
        print(f"\n{name}: {size}, filled and read in {filled:.0f} s\n")
        print("\n".join(report(seen, unit)))
        print(
            "\nknown in part:",
            *[f"  {what} ({n} times)" for what, n in seen.unknown.items()] or ["  nothing"],
            sep="\n",
        )
        print("wrong:", *wrong or ["  nothing"], sep="\n  ", flush=True)
        failed += bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
