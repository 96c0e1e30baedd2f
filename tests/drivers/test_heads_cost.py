"""A call of `heads` reads no payload and writes nothing, and costs the same beside much that waits."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from taskharbor.conformance.environment import opened
from taskharbor.drivers import JobRecord, open_driver
from taskharbor.drivers.redis import RedisDriver
from taskharbor.drivers.redis.reading import MAX_LOOKS
from tests.drivers.head_stores import HOUR, NOW, PLACES, SECOND
from tests.drivers.test_postgres_cost import made, pages_of

LARGE = b"x" * 900_000
LATER = NOW + HOUR
US = int(NOW.timestamp()) * 1_000_000


async def crowd(driver, payload: bytes, each: int) -> int:
    """Jobs in line, in groups, and due or expired since; returns how many of them may run."""
    kinds: list[dict[str, Any]] = [{}, {"priority": 3}, {"group": "g", "group_limit": 2}, {"run_at": NOW + 60 * SECOND}]
    kinds.append({"run_at": NOW + 50 * SECOND, "group": "g"})
    for kind, fields in enumerate(kinds):
        names = [f"{kind}-{number}" for number in range(each)]
        await driver.enqueue(
            [JobRecord(id=name, type="t", queue="q", payload=payload, **fields) for name in names], NOW
        )
    await driver.reserve(["q"], NOW, 30 * SECOND, 4)
    return 3 * each + 2  # of the group, two may run


async def asked(driver, ready: int) -> None:
    (head,) = await driver.heads(["q"], LATER, 20)
    assert (head.oldest_at, head.oldest_known, head.next_known) == (NOW, True, True)
    assert len(head.next) == min(20, ready)


def bytes_read() -> int:
    """What this process has read from files, also from those that the system had in memory."""
    text = Path("/proc/self/io").read_text(encoding="ascii")
    return int(text.split("rchar:")[1].split()[0])


@pytest.mark.lane("sqlite")
def test_sqlite_reads_no_payload_and_writes_nothing(tmp_path):
    """Not even the pages that a payload lies on, to find what stands behind it in the row."""
    dsn = PLACES["sqlite"].empty(tmp_path)

    async def story():
        async with opened(open_driver(dsn)) as driver:
            ready = await crowd(driver, LARGE, 8)
        async with opened(open_driver(dsn)) as driver:
            await driver.is_paused("q")
            files = [tmp_path / "jobs.db", tmp_path / "jobs.db-wal"]
            before = [file.read_bytes() for file in files if file.exists()]
            read_before = bytes_read()
            await asked(driver, ready)
            assert bytes_read() - read_before < len(LARGE)
            assert [file.read_bytes() for file in files if file.exists()] == before

    asyncio.run(story())


@pytest.mark.lane("cost-postgres")
def test_postgres_reads_no_payload_and_writes_nothing(tmp_path):
    dsn = PLACES["postgres"].empty(tmp_path)

    async def story():
        async with opened(open_driver(dsn)) as driver:
            ready = await crowd(driver, LARGE, 2)
            await asked(driver, ready)

    asyncio.run(story())
    with psycopg.connect(dsn, options="-c default_transaction_read_only=on") as connection:
        found = connection.execute(
            f"select following from taskharbor.queue_heads_v1('[\"q\"]', {US}, 20, 100)"
        ).fetchone()
        assert found is not None
        touched = connection.execute(
            "select pg_stat_get_xact_blocks_fetched(reltoastrelid), pg_stat_get_xact_blocks_fetched(oid) "
            "from pg_class where oid = 'taskharbor.jobs'::regclass"
        ).fetchone()
        assert touched is not None
        assert touched[0] == 0
        assert touched[1] > 0


@pytest.mark.lane("redis")
def test_redis_reads_no_payload_and_writes_nothing(tmp_path):
    """By the commands that the server runs, also inside the script."""
    dsn, seen = PLACES["redis"].empty(tmp_path), list[str]()
    listening, over = threading.Event(), threading.Event()

    def watch():
        with redis.Redis.from_url(dsn) as client, client.monitor() as monitor:
            listening.set()
            for command in monitor.listen():
                seen.append(command["command"])
                if "end-of-watch" in command["command"]:
                    break
        over.set()

    async def story():
        async with opened(RedisDriver(dsn)) as driver:
            ready = await crowd(driver, b"x" * 9000, 8)
        async with opened(RedisDriver(dsn)) as driver:  # one that has reserved nothing: it keeps no house meanwhile
            await asked(driver, ready)  # the script is known from now on
            thread = threading.Thread(target=watch)
            thread.start()
            assert await asyncio.to_thread(listening.wait, 30)
            await asked(driver, ready)
            _echo(dsn)
            assert await asyncio.to_thread(over.wait, 30)
            thread.join()

    asyncio.run(story())
    with redis.Redis.from_url(dsn) as client:
        known = {name.lower(): info["flags"] for name, info in client.command().items()}
    used = {command.split()[0].lower() for command in seen}
    assert "hmget" in used
    assert {name for name in used if "write" in known[name] and name not in ("evalsha", "eval")} == set()
    assert [command for command in seen if "payload" in command or "hgetall" in command.lower()] == []


@pytest.mark.lane("redis")
def test_no_script_of_redis_looks_at_many(tmp_path):
    """Nothing else runs meanwhile, so that many queues are many scripts."""
    dsn = PLACES["redis"].empty(tmp_path)

    async def story():
        async with opened(RedisDriver(dsn)) as driver:
            queues = [f"q{number}" for number in range(20)]
            for queue in queues:
                jobs = [JobRecord(id=f"{queue}-{n}", type="t", queue=queue, priority=n + 1) for n in range(300)]
                await driver.enqueue(jobs, NOW)
            await driver.heads(queues, LATER, 20)  # the script is known from now on
            with redis.Redis.from_url(dsn) as client:
                client.config_resetstat()
                assert all(head.oldest_known and head.next_known for head in await driver.heads(queues, LATER, 20))
                calls = {name: figures["calls"] for name, figures in client.info("commandstats").items()}
            assert sum(calls.values()) / calls["cmdstat_evalsha"] < 5 * MAX_LOOKS

    asyncio.run(story())


def _echo(dsn: str) -> None:
    with redis.Redis.from_url(dsn) as client:
        client.echo("end-of-watch")


@pytest.mark.lane("cost-postgres")
def test_postgres_touches_as_many_pages_beside_a_backlog():
    """Of one queue and of a thousand; the oldest alone takes a few lookups."""
    pages = {}
    for size in (1_000, 20_000):
        with psycopg.connect(made(), autocommit=True) as connection:
            connection.execute(
                f"""
                insert into taskharbor.jobs (id, queue, type, payload, attempts, max_attempts, deliveries, lost,
                    created_at, group_limit, state, wake, due, seq, grp, priority)
                select lpad(n::text, 9, '0'), 'q' || n % 10, 'work', '', 0, 0, 0, 0, 1, 0,
                    case when n % 20 < 10 then 2 else 1 end, 0, {US} + n, n,
                    case when n % 20 < 10 then null else 'g' || n % 3 end, n % 2
                from generate_series(1, {size}) as n"""
            )
            names = "[" + ", ".join(f'"q{number}"' for number in range(1000)) + "]"
            calls = {
                "one": f"select * from taskharbor.queue_heads_v1('[\"q1\"]', {2 * US}, 0, 10000)",
                "thousand": f"select * from taskharbor.queue_heads_v1('{names}', {2 * US}, 0, 100)",
            }
            for call in calls.values():
                connection.execute(call.encode())  # its plans are made
            pages[size] = {name: pages_of(connection, call) for name, call in calls.items()}
    assert pages[20_000]["one"] <= 100, pages
    assert pages[20_000]["thousand"] <= 25_000, pages
    assert all(pages[20_000][name] <= 2 * number + 20 for name, number in pages[1_000].items()), pages
