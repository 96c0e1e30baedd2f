"""Schedules on Redis that another program damaged: nothing fails, the others are served, and what can be mended is."""

import asyncio

import pytest

from taskharbor.model.times import to_us
from tests.drivers.redis_stores import on_store
from tests.drivers.test_redis_schedules import (
    ALL_NAMES,
    DUE,
    KEYS,
    NAMES,
    NOW,
    ROWS,
    SECOND,
    SERVERS,
    add,
    change,
    due,
    listed,
    place,
    row,
)

pytestmark = pytest.mark.lane("redis")

STRANGE = [
    b"",
    b"x",
    b"\xff" * 40,
    b"many",
    b"0" * 18 + b"no line feed",
    b"0" * 18 + b"r\none line feed",
    b"0" * 18 + b"\nq\nno revision",
    b"0" * 18 + b"r\n\nno queue",
    b"9" * 18 + b"r\nq\nfar away",
    b"00000000000000000xr\nq\n",
    b"-" * 18 + b"\xffr\nq\nnot text",
    b"-" * 18 + b"r\n\xff\nnot text",
    b"-" * 18 + b"a{b}\nq\nno revision has braces",
    b"-" * 18 + b"r\na{b}\nno queue has braces",
    b"-" * 18 + "a\x85b".encode() + b"\nq\nor control characters",
    b"-" * 18 + b"r" * 256 + b"\nq\ntoo long",
    b"-" * 17 + b"\nr\nq\n",
]


@pytest.mark.parametrize("server", SERVERS)
@on_store
async def test_a_row_that_cannot_be_read_is_left_out_and_may_be_added_again(driver, client, server):
    rows = [row(f"s{number:02}", -number) for number in range(len(STRANGE) + 2)]
    await add(driver, *rows)
    for one, strange in zip(rows, STRANGE, strict=False):
        client.hset(ROWS, one.name, strange)
    healthy = rows[len(STRANGE) :]
    for _ in range(2):
        for limit in (1, 3, 1000):
            assert await due(driver, limit) == healthy[::-1]
            assert await listed(driver, limit) == await listed(driver, limit, queue="q") == healthy
            assert await listed(driver, limit, names=[one.name for one in rows]) == healthy
    damaged = rows[: len(STRANGE)]
    await driver.change_schedules([change(one, None) for one in damaged[::2]], NOW)
    await add(driver, *damaged)
    assert await listed(driver) == rows
    assert await due(driver) == rows[::-1]
    assert client.hlen(ROWS) == client.zcard(NAMES) == client.zcard(DUE) == client.zcard(ALL_NAMES) == len(rows)


@pytest.mark.parametrize("server", SERVERS)
@on_store
async def test_what_is_missing_in_an_order_is_put_back(driver, client, server):
    """By any listing that meets the row."""
    one, two, never = row("a", 1), row("b", 2), row("c", None)
    await add(driver, one, two, never)
    late = NOW + 9 * SECOND
    client.delete(DUE)
    assert await due(driver, now=late) == []
    assert await listed(driver, names=["a", "b"]) == [one, two]
    assert await due(driver, now=late) == [one, two]
    assert (await driver.due_schedules(["q"], NOW)).upcoming == one.next_at
    client.delete(NAMES)
    assert await listed(driver, queue="q") == []
    assert await due(driver, now=late) == [one, two]
    assert await listed(driver, queue="q") == [one, two]
    assert await listed(driver) == [one, two, never]
    assert await listed(driver, queue="q") == [one, two, never]
    client.delete(ALL_NAMES)
    assert await listed(driver) == []
    assert await due(driver, now=late) == [one, two]
    assert await listed(driver) == [one, two]
    assert await listed(driver, queue="q") == await listed(driver) == [one, two, never]


@pytest.mark.parametrize("server", SERVERS)
@on_store
async def test_what_is_missing_is_put_back_by_the_upkeep_of_a_worker(driver, client, server):
    """No listing has to meet it: a schedule that was added once fires again."""
    one, never = row("a", 1), row("c", None)
    await add(driver, one, never)
    for at in (DUE, NAMES, ALL_NAMES):
        client.delete(at)
    await driver.prune(NOW, 10)
    assert await due(driver, now=NOW + 9 * SECOND) == [one]
    assert await listed(driver) == await listed(driver, queue="q") == [one, never]


@pytest.mark.parametrize("server", SERVERS)
@on_store
async def test_what_lies_in_an_order_without_a_row_is_removed(driver, client, server):
    one = row("b", 5)
    await add(driver, one)
    moment = b"%018d" % to_us(NOW + SECOND)
    places = [b"", b"x", b"\xff", b"12ab", moment, moment + b"\xff", moment + b"nobody", moment + b"b", b"1" * 9]
    client.zadd(DUE, dict.fromkeys(places, 0))
    client.zadd(NAMES, dict.fromkeys([b"", b"\xff", b"a{", b"nobody", b"z"], 0))
    client.zadd(ALL_NAMES, dict.fromkeys([b"", b"\xff", b"a", b"a\n", b"nobody", b"z{}"], 0))
    async with asyncio.timeout(30):  # a place that stays is met again and again
        for limit in (1, 2, 1000):
            assert await due(driver, limit, now=NOW + 2 * SECOND) == []
            assert await due(driver, limit, now=NOW + 9 * SECOND) == [one]
            assert await listed(driver, limit) == await listed(driver, limit, queue="q") == [one]
            assert await listed(driver, limit, names=["a", "b", "nobody", "z"]) == [one]
    assert client.zrange(DUE, 0, -1) == [place(one)]
    assert client.zrange(NAMES, 0, -1) == [b"b"]
    assert client.zrange(ALL_NAMES, 0, -1) == [b"b"]


@pytest.mark.parametrize("server", SERVERS)
@on_store
async def test_what_comes_next_is_found_behind_strange_places(driver, client, server):
    await add(driver, row("s", 50))
    client.zadd(DUE, {place(row("s"))[:11] + strange: 0 for strange in (b"x", b"y")})
    assert (await driver.due_schedules(["p", "q"], NOW)).upcoming == NOW + 50 * SECOND


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("key", KEYS)
@on_store
async def test_a_key_that_was_written_over_is_moved_aside(driver, client, server, key):
    old = row("a")
    await add(driver, old)
    client.delete(key)
    client.set(key, "damaged")
    for call in (driver.schedules, lambda **asked: driver.due_schedules(["q"], NOW, **asked)):
        await call()
    await driver.schedules(queue="q")
    await driver.schedules(names=["a"])
    new = row("a", version=2)
    expected = None if key == ROWS else old
    assert await driver.change_schedules([change(expected, new), change(None, row("b"))], NOW) == [True, True]
    assert await listed(driver, names=["a", "b"]) == [new, row("b")]
    assert await listed(driver, queue="q") == await listed(driver) == await due(driver) == [new, row("b")]
    (told,) = await driver.damaged()
    assert f"{key.partition('}:')[0]}}}:th:damaged:{key.partition('}:')[2]} (a string)" in told
