"""Records that stand in no lane, however they came to: a sweep finds them, puts them back, and says so. It touches none
that stands where its state says."""

import logging
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor.drivers import Ack, Cancelled, Fail, JobRecord, State
from taskharbor.drivers.redis import sweeping
from tests import lanes
from tests.drivers.redis_stores import live, on_quiet_store, on_store
from tests.omniq.store import Store

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
LATER = NOW + timedelta(minutes=10)
LEASE = timedelta(seconds=30)
# Where a job of each kind stands, and where it is to be found again.
PLACES = {
    "ready": ("{q}:wait", "wait"),
    "in a group": ("{q}:g:g:wait", "gwait"),
    "with a priority": ("{q}:th:prio", "prio"),
    "scheduled": ("{q}:delayed", "delayed"),
    "inflight": ("{q}:active", "active"),
    "inflight in a group": ("{q}:active", "active"),
    "dead": ("{q}:failed", "failed"),
    "done": ("{q}:th:done", "done"),
    "cancelled": ("{q}:th:cancelled", "cancelled"),
    "blocked": ("{q}:th:blocked", "blocked"),
    "blocked without its edges": ("{q}:th:open:%s", "blocked"),
}


def job(id: str, **fields) -> JobRecord:
    return JobRecord(**{"id": id, "type": "work", "queue": "q", "created_at": NOW, **fields})


async def make(driver, kind: str, id: str) -> None:
    """A job of this kind."""
    kinds: dict[str, dict[str, Any]] = {
        "in a group": {"group": "g", "group_limit": 1000},
        "inflight in a group": {"group": "h", "group_limit": 1000},
        "with a priority": {"priority": 5},
        "scheduled": {"run_at": NOW + timedelta(minutes=5)},
    }
    fields = kinds.get(kind, {})
    if kind.startswith("blocked"):
        await driver.enqueue([job(f"{id}-first", queue="other")], NOW)
        fields = {"depends_on": (f"{id}-first",)}
    elsewhere = kind in ("dead", "done", "cancelled") or kind.startswith("inflight")
    if not elsewhere:
        await driver.enqueue([job(id, **fields)], NOW)
        return
    await driver.enqueue([job(id, **fields)], NOW)
    (held,) = await driver.reserve(["q"], NOW, LEASE, 1, "w")
    assert held.job.id == id, "others wait: make them later"
    if kind == "dead":
        await driver.settle([Fail(held.lease, "no", 1, NOW)], NOW)
    elif kind == "done":
        await driver.settle([Ack(held.lease)], NOW)
    elif kind == "cancelled":
        await driver.settle([Cancelled(held.lease, "no")], NOW)


def order(kinds) -> list[str]:
    """Those first that are made by a reserve."""
    return sorted(kinds, key=lambda kind: not (kind in ("dead", "done", "cancelled") or kind.startswith("inflight")))


async def swept(driver) -> None:
    """What the workers do over an hour, at once."""
    names = await driver.store.router.known_queues()
    for _ in range(1000):
        for name in names:
            await driver.opened.sweeper.sweep(name, NOW_MS)
        if not await driver.store.endpoint.ask("EXISTS", "{q}:th:sweep", key="{q}"):
            return


async def runs(driver, id: str) -> None:
    """The job is one like any other: it is granted and acked, when its time has come."""
    info = await driver.inspect(id, LATER)
    if info.state is State.DLQ:
        assert await driver.requeue([id], LATER) == [None]
    elif info.state is State.BLOCKED:
        (first,) = await driver.reserve(["other"], LATER, LEASE, 1, "w")
        assert await driver.settle([Ack(first.lease)], LATER) == [None]
    elif info.state in (State.DONE, State.CANCELLED):
        assert await driver.prune(LATER, 10) >= 1
        assert id not in {one.job.id for one in (await driver.list(now=LATER)).items}
        return
    (held,) = await driver.reserve(["q"], LATER, LEASE, 10, "w")
    assert held.job.id == id
    assert await driver.settle([Ack(held.lease)], LATER) == [None]


@pytest.mark.left_to("full", except_for=lanes.Chosen("cluster-deleted"))
@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("how", ["deleted", "written over"])
@pytest.mark.parametrize("server", ["redis7", "cluster"])
@on_store
async def test_a_record_that_is_in_no_list_is_put_back(driver, client, server, how, kind, caplog):
    await make(driver, kind, "lost")
    place, lane = PLACES[kind]
    place = place.replace("%s", "lost")
    store = Store(client, "q")
    assert store.where("lost") == [lane]
    client.delete(place)
    if not kind.endswith("edges"):
        assert store.where("lost") == []
        if how == "written over":
            client.set(place, "text")
    with caplog.at_level(logging.WARNING, "taskharbor.drivers.redis"):
        await swept(driver)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["queue q: 1 job(s) were in no list or set and were put back: lost"]
    assert store.where("lost") == [lane]
    await runs(driver, "lost")
    await swept(driver)
    assert len(caplog.records) == 1


def contents(client) -> dict[bytes, object]:
    """All that the server holds, without how far a sweep has come and who looked after what."""
    found: dict[bytes, object] = {}
    for key in client.scan_iter(count=1000):
        if not key.endswith((b"th:sweep", b"th:tend", b":tended")):
            found[key] = client.smembers(key) if client.type(key) == b"set" else client.dump(key)
    return found


@pytest.mark.parametrize("seed", range(lanes.figure(test=3, full=20)))
def test_any_of_many_is_found_and_no_other_is_touched(seed, caplog):
    """Hundreds of jobs of every kind, some of which lost their place."""
    chance = random.Random(seed)

    async def story(driver, client):
        kinds = order(kind for kind in PLACES if not kind.endswith("edges"))
        made: dict[str, str] = {}
        for kind in kinds:
            count = chance.choice([1, 5, 30])
            for number in range(count):
                made[f"{kind.replace(' ', '-')}-{number:03}"] = kind
                await make(driver, kind, f"{kind.replace(' ', '-')}-{number:03}")
        ready = [f"plain-{number:04}" for number in range(chance.choice([10, 400, 1500]))]
        for first in range(0, len(ready), 300):  # in batches, each in one millisecond
            moment = NOW + timedelta(milliseconds=first // 300)
            await driver.enqueue([job(id) for id in ready[first : first + 300]], moment)
        made |= dict.fromkeys(ready, "ready")
        before = contents(client)
        await swept(driver)
        assert contents(client) == before
        assert not caplog.records
        lost = chance.sample(sorted(made), min(len(made), chance.choice([1, 3, 40])))
        for id in lost:
            place = PLACES[made[id]][0]
            if place in ("{q}:wait", "{q}:g:g:wait", "{q}:failed"):
                assert client.lrem(place, 0, id) == 1
            elif place == "{q}:th:blocked":
                client.zrem(place, id)
            elif place == "{q}:th:prio":
                client.zrem(place, *[member for member in client.zrange(place, 0, -1) if member[31:] == id.encode()])
            else:
                assert client.zrem(place, id) == 1
        await swept(driver)
        standing: dict[str, list[str]] = {}
        for lane, id in Store(client, "q").lanes():
            standing.setdefault(id, []).append(lane)
        assert standing == {id: [PLACES[kind][1]] for id, kind in made.items()}
        told = sum(int(record.getMessage().split(":")[1].split()[0]) for record in caplog.records)
        assert told == len(lost)

    with caplog.at_level(logging.WARNING, "taskharbor.drivers.redis"):
        live(story)


def test_a_list_whose_order_no_time_explains_is_read_whole(caplog):
    """Where a job does not stand near its place, that proves nothing: clients' clocks may differ."""
    chance = random.Random(7)

    async def story(driver, client):
        ids = [f"plain-{number:04}" for number in range(660)]
        for first in range(0, len(ids), 10):
            await driver.enqueue([job(id) for id in ids[first : first + 10]], NOW + timedelta(milliseconds=first))
        chance.shuffle(ids)
        client.delete("{q}:wait")
        client.rpush("{q}:wait", *ids)
        before = contents(client)
        await swept(driver)
        assert contents(client) == before
        for id in ids[::220]:
            client.lrem("{q}:wait", 0, id)
        await swept(driver)
        assert sorted(client.lrange("{q}:wait", 0, -1)) == sorted(map(str.encode, ids))

    with caplog.at_level(logging.WARNING, "taskharbor.drivers.redis"):
        live(story)
    assert len(caplog.records) == 3


@pytest.mark.parametrize("state", [None, "nobody knows", "wait"])
@pytest.mark.parametrize("kind", ["done", "done, and kept", "done by another client", "cancelled", "blocked"])
@pytest.mark.parametrize("server", ["redis7", "cluster"])
@on_quiet_store
async def test_a_record_that_lost_its_state_is_counted_once(driver, client, server, kind, state):
    """It is still in the set of its old state, where a sweep does not look for it."""
    if kind == "done, and kept":
        await driver.enqueue([job("a", keep_for=timedelta(days=300))], NOW)
        (held,) = await driver.reserve(["q"], NOW, LEASE, 1, "w")
        await driver.settle([Ack(held.lease)], NOW)
    else:
        await make(driver, kind.partition(",")[0].partition(" ")[0], "a")
    if kind == "done by another client":
        client.zrem("{q}:th:done", "a")
        client.lpush("{q}:completed", "a")
    if state is None:
        client.hdel("{q}:job:a", "state")
    else:
        client.hset("{q}:job:a", "state", state)
    await swept(driver)
    expected = "ready" if state == "wait" else "dlq"
    assert (await driver.counts(NOW))["q"] == {expected: 1}
    assert [str(one.state) for one in (await driver.list(now=NOW, queue="q")).items] == [expected]
    assert not client.exists("{q}:th:kept")


@on_store
async def test_a_round_checks_as_many_ids_as_are_promised_also_in_one_queue(driver, client, monkeypatch):
    """In a store of one large queue and one small one."""
    monkeypatch.setattr(sweeping, "MAX_SWEPT_IDS", 2000)
    await driver.enqueue([job(f"plain-{number:04}") for number in range(3000)], NOW)
    await driver.enqueue([job("other", queue="small")], NOW)
    client.lrem("{q}:wait", 1, "plain-1500")
    driver.opened.sweeper._begun, driver.opened.sweeper._swept = True, ""
    await driver.prune(NOW, 10)
    assert client.lpos("{q}:wait", "plain-1500") is not None
    assert client.hget("{q}:th:sweep", "id") >= b"plain-1900"


@pytest.mark.parametrize("server", ["redis7", "cluster"])
@on_store
async def test_one_worker_of_the_fleet_sweeps(driver, client, server):
    """While it does, the others only prune; another one takes over when it is gone."""
    await driver.enqueue([job("lost")], NOW)
    client.delete("{q}:wait")
    assert await driver.store.router.takes_turn(sweeping.SWEPT, sweeping.PACE_MS)  # the first worker
    await driver.prune(NOW, 10)
    assert not client.exists("{q}:wait")
    assert 0 < client.pttl(sweeping.SWEPT) <= sweeping.PACE_MS
    client.delete(sweeping.SWEPT)
    await driver.prune(NOW, 10)
    assert client.lrange("{q}:wait", 0, -1) == [b"lost"]
