"""Schedules on Redis: a full server, lost replies, many clients, and what they leave alone."""

import asyncio
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import pytest
from redis.exceptions import ConnectionError as Lost

from taskharbor.drivers import BackendUnavailable, JobRecord, ScheduleChange, StoredSchedule
from taskharbor.drivers.redis import RedisDriver, pool
from taskharbor.drivers.redis.scripts import load
from taskharbor.model.times import to_us
from taskharbor.omniq import OmniQ
from tests import lanes
from tests.drivers.redis_stores import emptied, live, on_store, visit_all, with_driver
from tests.drivers.test_redis_full import empty, everything, full
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SERVERS = ["redis7", "cluster"]
KEYS = ("{th:schedules}:rows", "{th:schedules}:names", "{th:schedules}:names:q", "{th:schedules}:due:q")
ROWS, ALL_NAMES, NAMES, DUE = KEYS


def row(
    name: str, at: float | None = 0, *, queue: str = "q", version: object = 1, body: bytes = b"{}"
) -> StoredSchedule:
    return StoredSchedule(
        name=name,
        queue=queue,
        revision=f"{name}-{version}",
        next_at=None if at is None else NOW + at * SECOND,
        body=body,
    )


def change(old: StoredSchedule | None, new: StoredSchedule | None, *jobs: JobRecord) -> ScheduleChange:
    name = next(row.name for row in (new, old) if row is not None)
    return ScheduleChange(name=name, expect=None if old is None else old.revision, to=new, jobs=jobs)


def job(id: str, queue: str = "q", **fields: Any) -> JobRecord:
    return JobRecord(id=id, type="t", queue=queue, created_at=NOW, **fields)


async def add(driver: Any, *rows: StoredSchedule) -> None:
    assert await driver.change_schedules([change(None, row) for row in rows], NOW) == [True] * len(rows)


async def listed(driver: Any, limit: int = 1000, **asked: Any) -> list[StoredSchedule]:
    """The rows of all pages."""
    found: list[StoredSchedule] = []
    cursor = None
    while True:
        page = await driver.schedules(limit=limit, cursor=cursor, **asked)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return found


async def due(driver: Any, limit: int = 1000, queues: Any = ("q",), now: datetime = NOW) -> list[StoredSchedule]:
    found: list[StoredSchedule] = []
    cursor = None
    while True:
        page = await driver.due_schedules(queues, now, limit=limit, cursor=cursor)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return found


def place(one: StoredSchedule) -> bytes:
    assert one.next_at is not None
    return b"%018d" % to_us(one.next_at) + one.name.encode()


@pytest.mark.parametrize("server", SERVERS)
@on_store
async def test_nothing_is_left_of_rows_that_are_gone(driver, client, server):
    """Nor of the places and queues that they had."""
    one, two = row("a", 1), row("b", 2)
    await add(driver, one, two)
    later = row("a", 3, version=2)
    assert await driver.change_schedules([change(one, later)], NOW) == [True]
    assert client.zrange(DUE, 0, -1) == [place(two), place(later)]
    moved = row("a", 3, version=3, queue="p")
    assert await driver.change_schedules([change(later, moved), change(two, None)], NOW) == [True, True]
    assert client.exists(NAMES, DUE) == 0
    assert client.hlen(ROWS) == client.zcard(ALL_NAMES) == client.zcard("{th:schedules}:due:p") == 1
    assert await driver.change_schedules([change(moved, None)], NOW) == [True]
    assert list(client.scan_iter("{*", count=1000)) == []


# A full server


@pytest.mark.parametrize("server", [*servers.KINDS, "cluster"])
def test_a_full_server_refuses_new_rows_and_jobs_and_nothing_else(server):
    async def story(driver):
        old, other = row("a"), row("b", queue="p")
        await add(driver, old, other)
        new = row("a", 5, version=2, body=b"longer than it was")
        refused = [
            [change(None, row("c"))],
            [change(None, row("c"), job("x"))],
            [change(old, new, job("x"))],
            [change(old, row("a", queue="p", version=2), job("x", queue="p"))],
            [change(other, None), change(old, new, job("x"))],
        ]
        before = everything(server)
        with full(server):
            for changes in refused:
                with pytest.raises(BackendUnavailable, match="Redis is full"):
                    await driver.change_schedules(changes, NOW)
        after = everything(server)
        names = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        assert names <= {b"{th}:queues"}  # on a Cluster the name of a queue is noted first
        with full(server):
            assert await driver.change_schedules([change(old, new), change(other, None)], NOW) == [True, True]
            assert await listed(driver) == [new]
        await add(driver, row("c"))

    with_driver(empty(server), story)


# Lost replies and durable mode

LOSABLE = [("redis7", "change_schedules", 5), ("cluster", "change_schedules", 5), ("cluster", "deliver_messages", 4)]


@pytest.mark.parametrize(("server", "script", "which"), [(*each, n) for *each, count in LOSABLE for n in range(count)])
def test_a_reply_that_was_lost(server, script, which, monkeypatch):
    """The call is repeated: everything happens once."""
    real = pool.RedisPool.call
    left = [which]

    async def losing(self: Any, *commands: Any, **options: Any) -> Any:
        replies = await real(self, *commands, **options)
        if commands[0][0] == "EVALSHA" and commands[0][1] == load(script).sha and not isinstance(replies[0], Exception):
            left[0] -= 1
            if left[0] == -1:
                raise Lost("the connection is lost")
        return replies

    async def story(driver, client):
        await add(driver, row("warm"))  # the servers know the scripts
        for queue in "pq":
            (warm,) = await listed(driver, names=["warm"])
            moved = row("warm", queue=queue, version=queue)
            assert await driver.change_schedules([change(warm, moved), change(moved, None)], NOW) == [True, True]
            await add(driver, row("warm", queue=queue))
        monkeypatch.setattr(pool.RedisPool, "call", losing)
        versions = [row("a"), row("a", version=2), row("a", version=3, queue="p"), row("a", version=4), None]
        old: StoredSchedule | None = None
        for number, new in enumerate(versions):
            jobs = () if new is None else (job(f"j{number}", new.queue),)
            assert await driver.change_schedules([change(old, new, *jobs)], NOW) == [True]
            assert await listed(driver, names=["a"]) == ([] if new is None else [new])
            old = new
        assert left[0] < 0
        assert await driver.counts(NOW) == {"q": {"ready": 3}, "p": {"ready": 1}}

    live(story, server)


@pytest.mark.parametrize("server", SERVERS)
@on_store
async def test_two_changes_of_one_row_in_a_call_whose_reply_was_lost(driver, client, server, monkeypatch):
    await add(driver, row("a"))
    real, lost = pool.RedisPool.call, list[object]()

    async def losing(self: Any, *commands: Any, **options: Any) -> Any:
        replies = await real(self, *commands, **options)
        if load("change_schedules").sha in commands[0] and not lost:
            lost.append(replies)
            raise Lost("the connection is lost")
        return replies

    monkeypatch.setattr(pool.RedisPool, "call", losing)
    changes = [change(row("a"), row("a", version=2), job("x")), change(row("a", version=2), row("a", version=3))]
    assert await driver.change_schedules(changes, NOW) == [True, True]
    assert lost
    assert await driver.counts(NOW) == {"q": {"ready": 1}}


@pytest.mark.parametrize("server", SERVERS)
def test_a_change_waits_for_replicas_in_durable_mode(server):
    replicas = {"redis7": 1, "cluster": 2}[server]  # one more than there are

    async def story(driver):
        for new in (row("a"), row("a", version=2, queue="p")):
            with pytest.raises(BackendUnavailable, match="written, but not confirmed"):
                await driver.change_schedules([change(None, new)], NOW)

    with_driver(f"{empty(server)}&durable={replicas}&timeout=1s", story)


# What they leave alone


@pytest.mark.parametrize("server", SERVERS)
@on_store
async def test_schedules_make_no_queue_known_and_outlive_its_jobs(driver, client, server):
    rows = [row("a"), row("b", queue="p")]
    await add(driver, *rows)
    assert await driver.queues() == []
    assert await driver.counts(NOW) == {}
    assert client.zcard("{th}:queues") == 0
    await driver.pause("q")
    await driver.resume("q")
    await driver.enqueue([job("x")], NOW)
    assert await driver.queues() == ["q"]
    assert await driver.delete(["x"]) == [None]
    await driver.prune(NOW + timedelta(days=9), 1000)
    for queue in ("q", "p"):
        await driver.opened.sweeper.sweep(queue, to_us(NOW) // 1000)
    await visit_all(driver.store, ["q", "p"], to_us(NOW) // 1000)
    if server == "cluster":
        driver.store.router._unused = {"{th}:busy": {"q", "p"}, "{th}:queues": {"q", "p"}}
        for queue in ("q", "p"):
            await driver.store.router._forget(queue)
    assert await driver.queues() == []
    assert await listed(driver) == rows
    assert await due(driver, queues=["q", "p"]) == rows
    assert await listed(driver, queue="p") == rows[1:]


@on_store
async def test_a_client_of_omniq_takes_the_job_of_a_schedule(driver, client):
    await add(driver, row("a"))
    fired = job("x", payload=b'{"n":1}', run_at=NOW - timedelta(days=9000), group="g", group_limit=2)
    assert await driver.change_schedules([change(row("a"), row("a", 5, version=2), fired)], NOW) == [True]
    with OmniQ(servers.shared().url) as q:
        taken: Any = q.reserve("q")
        assert (taken.job_id, taken.payload) == ("x", '{"n":1}')
        q.ack_success("q", "x", taken.lease_token)
        assert q.reserve("q") is None
    assert await listed(driver) == [row("a", 5, version=2)]


def test_blocking_calls_list_and_change_them():
    driver = RedisDriver(f"{emptied()}?checks=0")
    blocking = driver.blocking()
    assert blocking is not None
    deadline = monotonic() + 60

    def called(call: Any) -> Any:
        """Its result: it never waits for an event loop."""
        with pytest.raises(StopIteration) as ended:
            call.send(None)
        return ended.value.value

    rows = [row(f"s{number:02}", number) for number in range(30)]
    assert called(blocking.until(deadline).change_schedules([change(None, one) for one in rows], NOW)) == [True] * 30
    new = row("s00", 99, version=2)
    assert called(blocking.until(deadline).change_schedules([change(rows[0], new, job("x"))], NOW)) == [True]
    page = called(blocking.until(deadline).schedules(limit=3))
    assert page.items == (new, rows[1], rows[2])
    assert called(blocking.until(deadline).schedules(limit=3, cursor=page.cursor)).items == tuple(rows[3:6])
    assert called(blocking.until(deadline).due_schedules(["q", "p"], NOW + 2 * SECOND)).items == (rows[1], rows[2])
    blocking.close()


# Slices


def test_a_script_makes_a_bounded_number_of_changes_and_reads_some_megabytes():
    def scripts_of(client: Any) -> int:
        found: int = client.info("commandstats")["cmdstat_evalsha"]["calls"]
        client.config_resetstat()
        return found

    async def story(driver, client):
        await add(driver, row("warm", None))
        await driver.schedules()
        client.config_resetstat()
        rows = [row(f"s{number:03}", body=b"x" * 100_000) for number in range(120)]
        await add(driver, *rows)
        assert scripts_of(client) == 3
        assert await listed(driver, names=[one.name for one in rows]) == rows
        assert scripts_of(client) == 12
        assert await due(driver) == rows
        assert scripts_of(client) == 1 + 12
        new = [row(one.name, version=2) for one in rows]
        jobs = [[job(f"{one.name}-{number:03}", payload=b"x" * 1000) for number in range(20)] for one in rows]
        changes = [change(one, two, *some) for one, two, some in zip(rows, new, jobs, strict=True)]
        assert await driver.change_schedules(changes, NOW) == [True] * 120
        assert scripts_of(client) == 3
        assert await driver.counts(NOW) == {"q": {"ready": 2400}}

    live(story)


@pytest.mark.parametrize("server", SERVERS)
@on_store
async def test_pages_of_many_queues_are_in_one_order(driver, client, server):
    """Also where one queue has more of them than are read at once."""
    queues = [f"q{number}" for number in range(7)]
    rows = [
        row(f"s{number:03}", -(number % 13) / 1000, queue="q0" if number % 3 else queues[number % 7])
        for number in range(200)
    ]
    await add(driver, *rows)
    expected = sorted(rows, key=lambda one: (one.next_at, one.name))
    for limit in (1, 19, 60, 1000):
        assert await due(driver, limit, queues=queues) == expected


# Many clients


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("server", SERVERS)
def test_many_clients_fire_each_slot_once(server):
    """Every client looks for what is due, and moves each row it finds to its next slot. Some replies are lost."""
    clients, slots, names = lanes.figure(test=12, full=64), lanes.figure(test=20, full=100), 10
    queues = ("q", "p", "r")

    async def fire(driver: Any, number: int) -> int:
        won = 0
        while found := (await driver.due_schedules(queues, NOW, limit=4)).items:
            changes = []
            for one in found:
                slot = int(one.body)
                new = row(
                    one.name,
                    slot + 1 - slots if slot + 1 < slots else None,
                    queue=queues[(slot + number) % 3] if slot % 5 == 0 else one.queue,
                    version=f"{slot + 1}-{number}",
                    body=b"%d" % (slot + 1),
                )
                changes.append(change(one, new, job(f"{one.name}-{slot:03}-{number}", new.queue)))
            won += sum(await driver.change_schedules(changes, NOW))
        return won

    async def story(first, client):
        rows = [row(f"s{number}", -slots, queue=queues[number % 3], body=b"0") for number in range(names)]
        await add(first, *rows)
        drivers = [first.sibling() for _ in range(clients)]
        for driver in drivers:
            await driver.open()
        won = await asyncio.gather(*(fire(driver, number) for number, driver in enumerate(drivers)))
        for driver in drivers:
            await driver.close()
        stored = await first.list(now=NOW, limit=10_000)
        fired = sorted(info.job.id.rpartition("-")[0] for info in stored.items)
        assert fired == [f"s{number}-{slot:03}" for number in range(names) for slot in range(slots)]
        assert sum(won) == names * slots
        assert [one.next_at for one in await listed(first)] == [None] * names

    live(story, server)
