"""What a worker does beside its calls: it stands in front of none of them, costs little, and leaves nothing behind."""

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis.crc import key_slot
from redis.exceptions import MovedError

from taskharbor.drivers import Ack, JobRecord
from taskharbor.drivers.redis import RedisDriver, housekeeping
from taskharbor.drivers.redis.cluster_registry import GRACE_S, STEP_IDS, bucket
from taskharbor.drivers.redis.cluster_router import BUSY
from taskharbor.drivers.redis.enqueue import _enqueue_plain
from taskharbor.drivers.redis.scripts import ScriptCall
from tests import lanes
from tests.drivers.redis_stores import as_test, emptied
from tests.servers import redis as servers

pytestmark = [
    pytest.mark.lane("redis"),
    pytest.mark.left_to(
        "full",
        except_for=lanes.Chosen(
            "test_one_worker_at_a_time_visits_a_queue",
            "test_what_was_trimmed_is_found_at_once_among_many[Cluster]",
            "test_every_outbox_has_its_turn",
            "test_one_of_three_nodes_is_gone",
            "test_the_list_of_queues_is_in_one_hash_slot",
            "test_an_unused_queue_leaves_no_key",
        ),
    ),
]

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
WATCHED = lanes.figure(4_000, 20_000)
NAMES = 1_000


def job(id: str, queue: str, *depends_on: str, **fields) -> JobRecord:
    return JobRecord(id=id, type="t", queue=queue, depends_on=depends_on, created_at=NOW, **fields)


@pytest.fixture(params=["one server", "Cluster"])
def store(request):
    """An empty store: its address, and a way to run a command on all of its primaries."""
    if request.param == "one server":
        url = emptied()
        return url, [servers.shared("redis7")]
    cluster = servers.shared_cluster()
    cluster.empty()
    return cluster.url, [node for node in cluster.nodes if node.run("ROLE")[0] == "master"]


@pytest.fixture
def cluster():
    shared = servers.shared_cluster()
    shared.empty()
    return shared


OPEN: list[Any] = []


def live(story) -> None:
    """Run it, and close its drivers."""

    async def run():
        try:
            await story()
        finally:
            while OPEN:
                await OPEN.pop().close()

    asyncio.run(run())


on_loop = as_test(live, opens=0)


async def opened(url, *, alone: bool = True) -> Any:
    """A driver; `alone`: its rounds are the test's to call."""
    driver = RedisDriver(f"{url}?checks=0")
    await driver.open()
    OPEN.append(driver)
    if alone:
        keeper: Any = driver.opened.housekeeper

        def serve(queues, now):
            keeper._now = now
            keeper._queues |= dict.fromkeys(queues)

        keeper.serve = serve
        keeper.rounds = 1  # the first one looks, whichever client looked before
    return driver


async def taken(driver, *queues, limit=10):
    return await driver.reserve(queues, NOW, LEASE, limit)


def let_time_pass(nodes):
    """What keeps the others away for a moment is over."""
    for node in nodes:
        for key in node.run("KEYS", "*:th:tended") + node.run("KEYS", "{th}:tended") + node.run("KEYS", "{th}:swept"):
            with suppress(MovedError):  # a replica by now
                node.run("DEL", key)


def long_ago(nodes):
    """The names of queues were noted long ago."""
    for node in nodes:
        for name in set(node.run("KEYS", "{th}:*")) & {"{th}:queues", BUSY}:
            node.run("ZADD", name, *(part for member in node.run("ZRANGE", name, 0, -1) for part in (0, member)))


def calls_of(nodes) -> Counter:
    found: Counter = Counter()
    for node in nodes:
        with node.client() as client:
            found.update({name: told["calls"] for name, told in client.info("commandstats").items()})
    return found


def test_an_idle_worker_asks_little_whatever_names_were_used(store):
    url, nodes = store

    async def story():
        driver = await opened(url)
        for first in range(0, NAMES, 100):
            await driver.enqueue([job(f"j{n}", f"queue-{n}") for n in range(first, first + 100)], NOW)
            names = [f"queue-{n}" for n in range(first, first + 100)]
            held = await driver.reserve(names, NOW, LEASE, 100)
            assert await driver.settle([Ack(one.lease) for one in held], NOW) == [None] * 100
        keeper = driver.opened.housekeeper
        keeper._queues.clear()
        await taken(driver, "queue-1")
        for _ in range(20):  # the names leave the busy ones
            long_ago(nodes)
            let_time_pass(nodes)
            await keeper.round()
        rounds, before = 10, calls_of(nodes)
        for _ in range(rounds):
            let_time_pass(nodes)
            await keeper.round()
        asked = calls_of(nodes) - before
        for name in (
            "cmdstat_keys",
            "cmdstat_del",
            "cmdstat_info",
            "cmdstat_client|setinfo",
            "cmdstat_ping",
            "cmdstat_replconf",
        ):
            asked.pop(name, None)
        seconds = rounds * housekeeping.ROUND_EVERY_S
        scripts = asked["cmdstat_evalsha"] + asked["cmdstat_eval"]
        assert scripts / seconds <= 8, asked
        assert asked.total() / seconds <= 150, asked

    live(story)


def test_one_worker_at_a_time_visits_a_queue(store):
    url, nodes = store

    async def story():
        one, two = await opened(url), await opened(url)
        await one.enqueue([job("x", "q", flow_id="run"), job("y", "q", "x")], NOW)
        await taken(one, "q")
        await taken(two, "q")
        await one.opened.housekeeper.round()
        with nodes_client(url) as client:  # a foreign client finishes it and tells nobody
            client.hset("{q}:job:x", mapping={"state": "completed", "lease_token": "", "lock_until_ms": ""})
            client.zrem("{q}:active", "x")
            client.lpush("{q}:completed", "x")
        await two.opened.housekeeper.round()
        assert (await two.inspect("y", NOW)).state == "blocked"  # another client looked a moment ago
        let_time_pass(nodes)
        await two.opened.housekeeper.round()
        assert [held.job.id for held in await taken(two, "q")] == ["y"]

    live(story)


def nodes_client(url):
    import redis

    if url.startswith("redis+cluster"):
        return servers.shared_cluster().client()
    return redis.Redis.from_url(url)


def test_what_was_trimmed_is_found_at_once_among_many(store):
    """A foreign client finished jobs of ours, and a hundred completions later deleted their records."""
    url, nodes = store

    async def story():
        driver = await opened(url)
        for first in range(0, WATCHED, 500):
            await driver.enqueue([job(f"j{n}", "q", flow_id="run") for n in range(first, first + 500)], NOW)
        some = [f"j{n}" for n in range(0, WATCHED, WATCHED // 5)]
        await driver.enqueue([job(f"after-{id}", "other", id) for id in some], NOW)
        await taken(driver, "other")
        await driver.opened.housekeeper.round()
        with nodes_client(url) as client:
            for id in some:
                client.delete(f"{{q}}:job:{id}")
            client.lpush("{q}:completed", *(f"foreign-{n}" for n in range(100)))
        found: list[str] = []
        for _ in range(8):  # one does, unless the machine is busy; without hurry it takes twenty
            let_time_pass(nodes)
            await driver.opened.housekeeper.round()
            found += [held.job.id for held in await taken(driver, "other")]
            if len(found) == len(some):
                break
        assert sorted(found) == sorted(f"after-{id}" for id in some)

    live(story)


@on_loop
async def test_a_poisoned_queue_costs_the_others_nothing(cluster, caplog):
    """An entry that is not a message, a message that no client can apply, an outbox of the wrong type."""
    driver = await opened(cluster.url)
    await driver.enqueue([job("x", "a"), job("y", "b", "x")], NOW)
    (held,) = await taken(driver, "a")
    deliver = driver.store.router.outbox.deliver

    async def dies(queues):
        return False

    driver.store.router.outbox.deliver = dies
    assert await driver.settle([Ack(held.lease)], NOW) == [None]
    driver.store.router.outbox.deliver = deliver
    with cluster.client() as client:
        client.zadd("{a}:th:outbox", {b"\xc1 nonsense": 0, b"\x96\xa1b\xa5never\x01\x02\x03\x90": 0.5})
        client.set("{spoilt}:th:outbox", "text")
        client.zadd(BUSY, {"spoilt": 0, "a": 0})
    await driver.enqueue([job("z", "c")], NOW)
    assert [held.job.id for held in await taken(driver, "c")] == ["z"]
    with caplog.at_level(logging.INFO, "taskharbor.drivers.redis"):
        let_time_pass(cluster.nodes[:1])
        await driver.opened.housekeeper.round()
    assert [held.job.id for held in await taken(driver, "b")] == ["y"], "the message behind the poisoned ones"
    with cluster.client() as client:
        assert client.zcard("{a}:th:outbox") == 0
        assert client.zcard("{a}:th:returned") == 2
    assert "2 message(s) of queue a cannot be delivered" in caplog.text
    assert "spoilt cannot be looked after" in caplog.text
    assert "nonsense" not in caplog.text


@on_loop
async def test_every_outbox_has_its_turn(cluster):
    driver = await opened(cluster.url)
    with cluster.client() as client:
        client.zadd(BUSY, {f"busy-{n}": n for n in range(300)})
        client.zadd("{th}:queues", {f"known-{n}": n for n in range(50)})
    seen: set[str] = set()
    for _ in range(14):
        let_time_pass(cluster.nodes)
        seen.update(await driver.store.router.queues_of_others(housekeeping.PACE_MS))
    assert seen == {f"busy-{n}" for n in range(300)} | {f"known-{n}" for n in range(50)}


@on_loop
async def test_an_unused_queue_leaves_no_key(cluster):
    driver = await opened(cluster.url)
    await driver.enqueue([job("x", "a", flow_id="run"), job("y", "b", "x", flow_id="run"), job("z", "c")], NOW)
    for queue in "abc":
        (held,) = await taken(driver, queue)
        assert await driver.settle([Ack(held.lease)], NOW) == [None]
    assert await driver.prune(NOW + timedelta(days=1), 10) == 3
    other = await opened(cluster.url)
    await taken(other, "elsewhere")
    with cluster.client() as client:
        for _ in range(2):
            let_time_pass(cluster.nodes)
            await other.opened.housekeeper.round()
            assert client.zrange("{th}:queues", 0, -1) == [b"a", b"b", b"c", b"elsewhere"]  # noted a moment ago
            long_ago([cluster.primary_of("{th}")])
            for _ in range(4):
                let_time_pass(cluster.nodes)
                await other.opened.housekeeper.round()
            let_time_pass(cluster.nodes)
            assert {key.decode() for key in client.scan_iter("*", count=1000)} == set()
            driver.store.router._listed.clear()  # as after ten minutes
            other.store.router._listed.clear()
            await driver.store.router.use_queues("abc")
            await other.store.router.use_queues(["elsewhere"])


@on_loop
async def test_it_runs_beside_a_worker_and_ends_with_its_driver(cluster):
    driver = await opened(cluster.url, alone=False)
    await driver.enqueue([job("x", "a")], NOW)
    keeper = driver.opened.housekeeper
    assert keeper._task is None, "a driver that only enqueues has none"
    await taken(driver, "a")
    task: Any = keeper._task
    assert not task.done()
    await driver.close()
    assert task.done()


@pytest.mark.left_to("full")
def test_one_of_three_nodes_is_gone():
    """Workers and clients of queues on the others go on; what could not be noted is noted when it is back."""
    cluster = servers.Cluster(primaries=3, node_timeout=1000, cluster_require_full_coverage="no")

    async def story():
        driver = await opened(cluster.url, alone=False)
        lost = cluster.primary_of("{th}")  # the list of queues goes with it
        pair = [lost, cluster.replica_of(lost)]
        healthy = next(f"q{n}" for n in range(100) if cluster.primary_of(f"{{q{n}}}") is not lost)
        doomed = next(f"q{n}" for n in range(100) if cluster.primary_of(f"{{q{n}}}") is lost)
        ids = [f"j{n}" for n in range(12)]
        assert {cluster.primary_of(bucket(id)) is lost for id in ids} == {True, False}
        await driver.enqueue([job("before", doomed)], NOW)
        await taken(driver, doomed, healthy)
        for node in pair:
            node.kill()
        survivor = next(node for node in cluster.nodes if node not in pair)
        servers.until(lambda: "master,fail " in survivor.run("CLUSTER", "NODES"), "the others to see that it is gone")
        done: list[str] = []
        async with asyncio.timeout(60):
            for id in ids:
                await driver.enqueue([job(id, healthy)], NOW)
                (held,) = await taken(driver, healthy, limit=1)
                assert await driver.settle([Ack(held.lease)], NOW) == [None]
                done.append(held.job.id)
        assert done == ids
        for node in pair:
            node.start()
        cluster.settle()
        async with asyncio.timeout(60):
            while driver.store.endpoint.address_of("{th}") and await unnoted(driver, healthy):
                await driver.opened.housekeeper.round()
        for id in ids:
            assert (await driver.inspect(id, NOW)).state == "done"

    async def unnoted(driver, queue):
        return await driver.store.endpoint.ask("SCARD", f"{{{queue}}}:th:unnoted", key=f"{{{queue}}}")

    try:
        live(story)
    finally:
        for node in cluster.nodes:
            node.stop()


def test_the_list_of_queues_is_in_one_hash_slot():
    assert len({key_slot(name.encode()) for name in ("{th}", "{th}:queues", BUSY)}) == 1


@on_loop
async def test_ids_that_were_noted_and_never_stored_are_forgotten_a_day_later(cluster):
    """A client died between the two."""
    driver = await opened(cluster.url)
    router = driver.store.router
    queues = [f"q{number}" for number in range(5)]
    stored = [job(f"stored{number}", queues[number % 5]) for number in range(100)]
    await driver.enqueue(stored, NOW)
    await router.claim([(f"dead{number}", queues[number % 5]) for number in range(50)])

    async def walk(grace: int) -> list[str]:
        """Over all notes; the ids that are noted then."""
        first = router.locations._bucket
        while True:
            await router.locations.step(grace)
            if router.locations._bucket == first and router.locations.is_between:
                break
        ids = [*(one.id for one in stored), *(f"dead{number}" for number in range(50))]
        found = [
            await router.endpoint.run(ScriptCall("read_locations", home=bucket(id)[1:-1], at=bucket(id), ids=[id]))
            for id in ids
        ]
        return [id for id, (queue,) in zip(ids, found, strict=True) if queue]

    everything = await walk(GRACE_S)
    assert len(everything) == 150
    assert await walk(GRACE_S) == everything, "a day has not passed"
    await router.claim([("dead7", "q2")])  # another client is about to store it
    await driver.enqueue([job("dead8", "q3")], NOW)
    assert await _enqueue_plain(driver.store, "q4", [job("dead9", "q4")], 0)  # as a message brings it
    assert await walk(0) == [*(one.id for one in stored), "dead7", "dead8", "dead9"]
    assert await walk(0) == [*(one.id for one in stored), "dead8", "dead9"]
    with nodes_client(cluster.url) as client:
        assert list(client.scan_iter("{th:ids:*}:marked", count=1000)) == []


@on_loop
async def test_locations_of_ids_that_end_alike_are_checked_in_slices(cluster):
    """They share a hash in each slot."""
    driver = await opened(cluster.url)
    router, sizes = driver.store.router, []
    ids = [f"order{number}-sent" for number in range(30_000)]
    for first in range(0, len(ids), 1000):
        await router.claim([(id, "q") for id in ids[first : first + 1000]])
    asked: set[str] = set()
    check_queues = router.check_queues

    async def counted(given, **rest):
        sizes.append(sum(map(len, given.values())))
        asked.update(id for some in given.values() for id in some)
        return await check_queues(given, **rest)

    router.check_queues = counted
    first = router.locations._bucket
    while True:
        await router.locations.step()
        if router.locations._bucket == first and router.locations.is_between:
            break
    assert asked == set(ids)
    assert max(sizes) < 2 * STEP_IDS


@on_loop
async def test_an_id_that_is_stored_again_while_its_past_is_forgotten_stays_noted(cluster):
    """Else another queue could take the same id, at any time later."""
    one, other = await opened(cluster.url), await opened(cluster.url)
    await one.enqueue([job("x", "q")], NOW)
    register = one.store.router.register

    async def overtaken(operation, key, rest):
        if operation == "gone":  # it has looked, and found no record
            await other.enqueue([job("x", "q")], NOW)
        return await register(operation, key, rest)

    one.store.router.register = overtaken
    assert await one.delete(["x"]) == [None]
    (answer,) = await other.enqueue([job("x", "r")], NOW)
    assert answer.existed
    assert len(await other.reserve(["q", "r"], NOW, timedelta(seconds=30), 10, "w")) == 1


@on_loop
async def test_what_was_claimed_again_is_remembered_for_a_day(cluster):
    driver = await opened(cluster.url)
    where = bucket("x")
    for _ in range(2):
        await driver.enqueue([job("x", "q")], NOW)
    with nodes_client(cluster.url) as client:
        (at,) = client.scan_iter("{th:ids:*}:claimed", count=1000)
        assert at.decode() == f"{where}:claimed"
        client.zadd(at, {"x": client.zscore(at, "x") - GRACE_S})
        await driver.enqueue([job("y", "q")], NOW)
        await driver.store.router.register("claim", where, ("z", "q"))
        assert not client.exists(at)
    assert await driver.delete(["x"]) == [None]
    assert await driver.store.endpoint.run(ScriptCall("read_locations", home=where[1:-1], at=where, ids=["x"])) == [
        None
    ]
