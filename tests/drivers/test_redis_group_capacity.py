"""Slots of groups whose holder is lost: they come back, and to count them costs what is active, not what is stored."""

import functools
from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import Ack, JobRecord
from taskharbor.drivers.redis.sweeping import SCRIPT_IDS
from tests.drivers import redis_stores

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
LEASE = timedelta(seconds=30)
LATER = NOW + timedelta(minutes=1)
SLOTS, HELD = "{q}:g:g:inflight", "{q}:th:held"


def job(id: str, **fields) -> JobRecord:
    return JobRecord(**{"id": id, "type": "work", "queue": "q", "group": "g", "created_at": NOW, **fields})


live = functools.partial(redis_stores.live, housekeeping=False)  # whose commands would be counted
on_store = redis_stores.on_quiet_store


async def take(driver, at=NOW):
    return {held.job.id: held for held in await driver.reserve(["q"], at, LEASE, 100, "w")}


async def sweep(driver) -> None:
    await driver.opened.sweeper.sweep("q", NOW_MS)


async def put_before(driver) -> None:
    """As many jobs as one slice of a sweep looks at, before all others in the order of ids."""
    await driver.enqueue([job(f"000{number}", group=None, run_at=LATER) for number in range(SCRIPT_IDS)], NOW)


def foreign_lease(client, id: str) -> None:
    """A foreign client takes the head of the group's line, as the format says: it notes nothing of ours."""
    assert client.lpop("{q}:g:g:wait") == id.encode()
    client.zrem("{q}:groups:ready", "g")
    client.incr(SLOTS)
    client.zadd("{q}:active", {id: NOW_MS + 30_000})
    mapping = {"state": "active", "attempt": 1, "lease_token": "theirs", "lock_until_ms": NOW_MS + 30_000}
    client.hset(f"{{q}}:job:{id}", mapping=mapping)


@pytest.mark.parametrize("damage", ["gone", "a string", "another state", "another group"])
@on_store
async def test_a_lost_record_frees_its_group_place_when_its_lease_ends(driver, client, damage):
    await driver.enqueue([job("a"), job("b"), job("c")], NOW)
    assert list(await take(driver)) == ["a"]
    assert client.hgetall(HELD) == {b"a": b"g"}
    if damage == "another state":
        client.hset("{q}:job:a", "state", "completed")
    elif damage == "another group":
        client.hset("{q}:job:a", "gid", "other")
    else:
        client.delete("{q}:job:a")
        if damage == "a string":
            client.set("{q}:job:a", "text")
    held = await take(driver, LATER)
    assert "b" in held
    assert "c" not in held
    assert client.get(SLOTS) == b"1"
    assert client.hget(HELD, "b") == b"g"
    await driver.settle([Ack(one.lease) for one in held.values()], LATER)
    assert "c" in await take(driver, LATER)


def test_it_costs_the_same_whatever_is_stored_and_walks_no_keys():
    asked = []

    async def story(driver, client, others: int):
        names = [f"other{number}" for number in range(others)]
        await driver.enqueue([job(name, queue="elsewhere", group=name) for name in names], NOW)
        await driver.enqueue([job("a"), job("b")], NOW)
        await take(driver)
        client.delete("{q}:job:a")
        client.config_resetstat()
        assert list(await take(driver, LATER)) == ["b"]
        await sweep(driver)
        told = {name.removeprefix("cmdstat_"): of["calls"] for name, of in client.info("commandstats").items()}
        assert "scan" not in told
        assert "keys" not in told
        asked.append({name: calls for name, calls in told.items() if not name.startswith(("info", "config", "eval"))})

    for others in (10, 3000):
        live(functools.partial(story, others=others))
    assert asked[0] == asked[1]


@on_store
async def test_a_grouped_job_among_ungrouped_ones_takes_a_group_place(driver, client):
    await driver.enqueue([job("a"), job("b"), job("c")], NOW)
    assert list(await take(driver)) == ["a"]
    client.lrem("{q}:g:g:wait", 1, "b")
    client.rpush("{q}:wait", "b")
    driver.store._skipped.clear()  # the plain script first
    held = await take(driver)
    assert list(held) == ["b"]
    assert client.hgetall(HELD) == {b"a": b"g", b"b": b"g"}
    await driver.settle([Ack(held["b"].lease)], NOW)
    assert client.get(SLOTS) == b"1"
    assert await take(driver) == {}


@pytest.mark.parametrize("ending", ["ack", "expiry", "cancel", "delete", "release"])
@on_store
async def test_whatever_ends_a_lease_takes_the_note_away(driver, client, ending):
    await driver.enqueue([job("a"), job("plain", group=None)], NOW)
    held = await take(driver)
    assert client.hgetall(HELD) == {b"a": b"g"}
    if ending == "ack":
        await driver.settle([Ack(held["a"].lease)], NOW)
    elif ending == "expiry":
        await driver.enqueue([job("b", group=None)], LATER)
    elif ending == "release":
        await driver.release("w", NOW)
    else:
        await (driver.cancel(["a"], NOW) if ending == "cancel" else driver.delete(["a"]))
    assert client.hgetall(HELD) == {}
    assert client.get(SLOTS) is None


@on_store
async def test_of_a_lease_of_a_foreign_client_the_record_tells(driver, client):
    """Also where a note of an earlier lease is left."""
    await driver.enqueue([job("a"), job("b")], NOW)
    foreign_lease(client, "a")
    client.hset(HELD, "a", "of another time")
    assert list(await take(driver, LATER)) == ["b"]
    assert client.get(SLOTS) == b"1"
    assert client.hgetall(HELD) == {b"b": b"g"}
    assert client.get("{q}:g:of another time:inflight") is None


@on_store
async def test_a_foreign_lease_with_a_moved_record_frees_its_group_place(driver, client):
    await driver.enqueue([job("a"), job("b")], NOW)
    foreign_lease(client, "a")
    client.hset("{q}:job:a", "state", "completed")
    assert list(await take(driver, LATER)) == ["b"]


@on_store
async def test_a_foreign_lease_without_record_holds_nothing_and_a_sweep_finds_that_out(driver, client):
    await driver.enqueue([job("a"), job("b")], NOW)
    foreign_lease(client, "a")
    client.delete("{q}:job:a")
    assert await take(driver, LATER) == {}, "nobody knows whose slot it held"
    await sweep(driver)
    assert list(await take(driver, LATER)) == ["b"]


@on_store
async def test_a_sweep_keeps_group_places_that_are_taken(driver, client):
    """By us, by a foreign client, and by a job whose lane another program deleted."""
    await driver.enqueue([job("a", group_limit=3), job("b"), job("c"), job("d")], NOW)
    foreign_lease(client, "a")
    client.zadd("{q}:groups:ready", {"g": NOW_MS})
    assert list(await take(driver)) == ["b", "c"]
    await sweep(driver)
    assert client.get(SLOTS) == b"3"
    assert await take(driver) == {}
    await put_before(driver)
    client.delete("{q}:active")
    await sweep(driver)
    assert client.exists("{q}:active") == 0, "it has not come to them"
    assert client.get(SLOTS) == b"3"
    await sweep(driver)
    assert client.zcard("{q}:active") == 3
    assert client.get(SLOTS) == b"3"
    assert client.hgetall(HELD) == {b"b": b"g", b"c": b"g"}


@on_store
async def test_a_sweep_clears_notes_of_leases_that_foreign_clients_ended(driver, client):
    await driver.enqueue([job("a"), job("b")], NOW)
    await take(driver)
    client.zrem("{q}:active", "a")  # it acks, and its slot is lost on the way
    client.hset("{q}:job:a", "state", "completed")
    client.lpush("{q}:completed", "a")
    await put_before(driver)
    await sweep(driver)
    assert client.hgetall(HELD) == {}
    assert list(await take(driver)) == ["b"]


@on_store
async def test_a_group_that_has_work_and_room_and_is_not_ready_is_made_so(driver, client):
    await driver.enqueue([job("a")], NOW)
    client.delete("{q}:groups:ready")
    assert await take(driver) == {}
    await sweep(driver)
    assert list(await take(driver)) == ["a"]
