"""What one job costs on each store, in statements, commands, round trips and bytes: exact ceilings that no busy machine
changes. What it costs in instructions is for `make guard`.

A job takes one of four ways: awaited alone, awaited with a hundred, blocking, and reserved and settled in a call of
sixteen. A figure below its ceiling is good news: lower the ceiling in the same commit.
"""

import asyncio
import re
import sqlite3
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskharbor import Client, JobRequest
from taskharbor.drivers import Ack, Driver
from taskharbor.drivers.registry import open_driver
from tests.cost.relay import Relay, relay
from tests.servers import postgres
from tests.servers import redis as redis_servers

MANY_JOBS = 100
RESERVED_JOBS = 16
WARM_CALLS = 12
"""Enough for statements to be prepared and scripts to be known."""
LEASE = timedelta(hours=1)

Cost = dict[str, int]

CEILINGS: dict[str, dict[str, Cost]] = {
    "sqlite": {
        "one": {"statements": 5},
        "many": {"statements": 8},
        "blocking": {"statements": 5},
        "reserve and settle": {"statements": 8},
    },
    "postgres": {
        "one": {"statements": 1, "round trips": 1, "bytes sent": 230, "bytes received": 80},
        "many": {"statements": 1, "round trips": 1, "bytes sent": 13_750, "bytes received": 80},
        "blocking": {"statements": 1, "round trips": 1, "bytes sent": 230, "bytes received": 80},
        "reserve and settle": {"statements": 3, "round trips": 3, "bytes sent": 1_950, "bytes received": 3_420},
    },
    "redis": {
        "one": {"commands": 18, "round trips": 1, "bytes sent": 180, "bytes received": 10},
        "many": {"commands": 145, "round trips": 1, "bytes sent": 6_350, "bytes received": 10},
        "blocking": {"commands": 18, "round trips": 1, "bytes sent": 180, "bytes received": 10},
        "reserve and settle": {"commands": 89, "round trips": 3, "bytes sent": 1_940, "bytes received": 1_670},
    },
}
"""Bytes have a little room: a number in a reply may have a digit more."""


def request(queue: str = "left") -> JobRequest:
    return JobRequest(type="cost:noop", payload={"value": 1}, queue=queue)


async def reserve_and_settle(driver: Driver) -> None:
    now = await driver.server_time()
    taken = await driver.reserve(["taken"], now, LEASE, RESERVED_JOBS, "cost")
    assert len(taken) == RESERVED_JOBS
    assert await driver.settle([Ack(each.lease, b"1") for each in taken], now) == [None] * RESERVED_JOBS


async def ways(dsn: str, measure: Callable[[str, Callable[[], Awaitable[Any]]], Awaitable[None]]) -> None:
    """Each way on this store, warmed up and then measured once."""
    blocking = Client(dsn)
    async with Client(dsn) as client:
        driver = open_driver(dsn)
        await driver.open()
        await client.aenqueue_many([request("taken")] * (RESERVED_JOBS * (WARM_CALLS + 2)))
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "one": lambda: client.aenqueue(request()),
            "many": lambda: client.aenqueue_many([request()] * MANY_JOBS),
            "blocking": lambda: asyncio.to_thread(blocking.enqueue, request()),
            "reserve and settle": lambda: reserve_and_settle(driver),
        }
        for name, call in calls.items():
            for _ in range(WARM_CALLS):
                await call()
            await measure(name, call)
        await driver.close()
    await asyncio.to_thread(blocking.close)


def check(store: str, found: dict[str, Cost]) -> None:
    above = {
        f"{way}: {what}": f"{number}, at most {CEILINGS[store][way][what]}"
        for way, cost in found.items()
        for what, number in cost.items()
        if number > CEILINGS[store][way][what]
    }
    assert not above, f"{above}; all of it: {found}"


# SQLite


@pytest.mark.lane("sqlite")
def test_statements_of_a_job_on_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[str] = []
    connect = sqlite3.connect

    def traced(*given: Any, **more: Any) -> sqlite3.Connection:
        made: sqlite3.Connection = connect(*given, **more)
        made.set_trace_callback(statements.append)
        return made

    monkeypatch.setattr(sqlite3, "connect", traced)
    found: dict[str, Cost] = {}

    async def measure(name: str, call: Callable[[], Awaitable[Any]]) -> None:
        statements.clear()
        await call()
        found[name] = {"statements": len(statements)}

    asyncio.run(ways(f"sqlite:///{tmp_path}/jobs.db", measure))
    check("sqlite", found)


# PostgreSQL


def messages(sent: bytes) -> Counter[str]:
    """The messages of a client by their letter, without those that open a connection."""
    kinds: Counter[str] = Counter()
    at = 0
    while at < len(sent):
        kinds[chr(sent[at])] += 1
        at += 1 + struct.unpack_from("!I", sent, at + 1)[0]
    assert at == len(sent), "not a stream of messages"
    return kinds


@pytest.mark.lane("cost-postgres")
def test_statements_and_round_trips_of_a_job_on_postgres() -> None:
    server = postgres.shared()
    found: dict[str, Cost] = {}
    with relay(server.port) as between:

        async def measure(name: str, call: Callable[[], Awaitable[Any]]) -> None:
            between.forget()
            await call()
            kinds = messages(bytes(between.sent))
            found[name] = {
                "statements": kinds["E"] + kinds["Q"],  # Execute, Query
                "round trips": kinds["S"]
                + kinds["Q"],  # the server replies to each Sync and each Query with ReadyForQuery
                **size(between),
            }

        asyncio.run(ways(between.address(server.address(server.database())), measure))
    check("postgres", found)


def size(between: Relay) -> Cost:
    return {"bytes sent": len(between.sent), "bytes received": len(between.received)}


# Redis


@pytest.mark.lane("cost-redis")
def test_commands_and_bytes_of_a_job_on_redis() -> None:
    """Up to three times: on a machine that stalls, the driver's look for foreign queues falls between two calls."""
    for last in (False, False, True):
        found = on_redis()
        try:
            check("redis", found)
            return
        except AssertionError:
            if last:
                raise


def on_redis() -> dict[str, Cost]:
    server = redis_servers.shared("redis7")
    server.empty()
    own = server.client()
    found: dict[str, Cost] = {}
    with relay(server.port) as between:

        async def measure(name: str, call: Callable[[], Awaitable[Any]]) -> None:
            own.config_resetstat()
            between.forget()
            await call()
            sizes = size(between)
            stats = own.info("commandstats").items()
            counts = {key.removeprefix("cmdstat_"): value["calls"] for key, value in stats}
            commands = {key: count for key, count in counts.items() if not key.startswith(("info", "config"))}
            found[name] = {
                "round trips": len(re.findall(rb"\*\d+\r\n\$\d+\r\n[A-Z]+\r\n", bytes(between.sent))),
                "commands": sum(commands.values()),
                **sizes,
            }

        asyncio.run(ways(f"{between.address(server.url)}?checks=0", measure))
    own.close()
    return found
