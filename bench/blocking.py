"""What a blocking call costs: `python -m bench.blocking [memory|sqlite|postgres|redis] [--jobs N] [--rounds N]`.

One job at a time, stored by `task.enqueue()`, by `await task.aenqueue()`, and by a blocking call written by hand with
the store's own library, just as durable. They take turns in one run, and what counts is their ratio: clocks here
scatter by a third from minute to minute, ratios within one run by a few per cent. 0.8 of a hand-written call is the
aim on every store, and on memory 0.9 of the awaited one.

On Redis there is a second loop by hand: redis-py's EVALSHA of this driver's own script, which has the server do the
same work as ours. What it is faster than `task.enqueue()` is this library's; what it is slower than HSET and RPUSH is
the price of what the script does besides: ids that are checked, order, idempotency, hints to workers.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sqlite3
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from bench.stores.places import OPEN
from taskharbor import Harbor

JOBS, ROUNDS = 500, 7
MEMORY_FACTOR = 10  # memory is so much faster that it needs more jobs to be measured
TABLE = "create table if not exists handwritten (id text primary key, payload text, run_at double precision)"
INSERT = "insert into handwritten (id, payload, run_at) values ({0}, {0}, {0})"

Enqueue = Callable[[int], Any]
Loops = dict[str, Enqueue]
Hand = Callable[[str], contextlib.AbstractContextManager[Loops]]
HAND, OWN_SCRIPT = "hand-written", "own script"


def _row(number: int) -> tuple[str, str, float]:
    return uuid.uuid4().hex, json.dumps({"number": number}), time.time()


@contextlib.contextmanager
def _sqlite(address: str) -> Iterator[Loops]:
    """A row in a transaction of its own, synced to the disk."""
    with contextlib.closing(sqlite3.connect(f"{address}.hand", isolation_level=None)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.execute(TABLE)
        yield {HAND: lambda number: connection.execute(INSERT.format("?"), _row(number))}


@contextlib.contextmanager
def _postgres(address: str) -> Iterator[Loops]:
    """A row in a transaction of its own; psycopg prepares the statement."""
    import psycopg

    with psycopg.connect(address, autocommit=True, prepare_threshold=1) as connection:
        connection.execute(TABLE.encode())
        statement = INSERT.format("%s").encode()
        yield {HAND: lambda number: connection.execute(statement, _row(number))}


@contextlib.contextmanager
def _redis(address: str) -> Iterator[Loops]:
    """A hash for the job and a list of ids, in one round trip; and the driver's own script, called with redis-py."""
    import redis

    from taskharbor.drivers.redis.scripts import ScriptCall, anchor, binary, load

    queue, script = "hand", load("enqueue_plain")

    with contextlib.closing(redis.Redis.from_url(address)) as client:

        def enqueue(number: int) -> None:
            id, payload, run_at = _row(number)
            with client.pipeline(transaction=True) as pipe:
                pipe.hset(f"hand:{id}", mapping={"payload": payload, "run_at": run_at})
                pipe.rpush("hand:queue", id)
                pipe.execute()

        sha = client.script_load(script.text)

        def own_script(number: int) -> None:
            id, payload, run_at = _row(number)
            now = int(run_at * 1000)
            job = [id, binary(payload.encode()), "bench:hand", 0, 0, False, now]
            args = ScriptCall("enqueue_plain", now=now, queue=queue, jobs=job, sorted_ids=False)
            if client.evalsha(sha, 1, anchor(queue), args.packed(script, False)) != b"OK":
                raise RuntimeError("the script stored nothing")

        yield {HAND: enqueue, OWN_SCRIPT: own_script}


HANDWRITTEN: dict[str, Hand] = {"sqlite": _sqlite, "postgres": _postgres, "redis": _redis}
DSN = {"sqlite": "sqlite:///{}", "postgres": "{}", "redis": "{}"}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.blocking", description=__doc__)
    parser.add_argument("store", nargs="?", default="memory", choices=["memory", *HANDWRITTEN])
    parser.add_argument("--jobs", type=int, default=JOBS, help="jobs in one turn")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each")
    options = parser.parse_args()
    if options.store == "memory":
        print(report("memory", measure("memory://", {}, options.jobs * MEMORY_FACTOR, options.rounds)))
        return
    with OPEN[options.store]() as places:
        place = places.new()
        try:
            with HANDWRITTEN[options.store](place.address) as hand:
                dsn = DSN[options.store].format(place.address)
                print(report(options.store, measure(dsn, hand, options.jobs, options.rounds)))
        finally:
            place.close()


def measure(dsn: str, hand: Loops, jobs: int, rounds: int) -> dict[str, list[float]]:
    """Jobs stored per second by each subject, one figure per round."""
    rates: dict[str, list[float]] = {name: [] for name in ("blocking", "awaited", *hand)}
    harbor = Harbor(dsn)

    @harbor.task(name="bench:blocking")
    def noop(number: int) -> None: ...

    async def awaited(begin: int) -> float:
        begun = time.perf_counter()
        for number in range(begin, begin + jobs):
            await noop.aenqueue(number)
        return jobs / (time.perf_counter() - begun)

    def blocking(enqueue: Enqueue) -> float:
        begun = time.perf_counter()
        for number in range(jobs):
            enqueue(number)
        return jobs / (time.perf_counter() - begun)

    with harbor, asyncio.Runner() as runner:
        noop.enqueue(0)
        runner.run(noop.aenqueue(0))
        for _ in range(rounds):
            rates["blocking"].append(blocking(noop.enqueue))
            rates["awaited"].append(runner.run(awaited(0)))
            for name, loop in hand.items():
                rates[name].append(blocking(loop))
        runner.run(harbor.aclose())
    return rates


def report(store: str, rates: dict[str, list[float]]) -> str:
    """The medians, and the medians of the ratios of one round."""
    lines = [f"{store}: {name:<13}{statistics.median(each):>9,.0f} jobs/s" for name, each in rates.items()]
    for name, each in rates.items():
        if name != "blocking":
            ratios = [ours / theirs for ours, theirs in zip(rates["blocking"], each, strict=True)]
            lines.append(f"{store}: {statistics.median(ratios):.2f} of {name} ({min(ratios):.2f} … {max(ratios):.2f})")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
