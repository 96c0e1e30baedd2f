"""A full server (maxmemory, noeviction) refuses new jobs and nothing else; a replica refuses whatever writes.

Redis judges a script by its first write. Here `maxmemory` is one byte, which makes any server full; one test fills a
server for real.
"""

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta

import pytest
from redis.exceptions import ResponseError

from taskharbor.drivers import (
    Ack,
    BackendUnavailable,
    Cancelled,
    DriverError,
    Fail,
    JobRecord,
    Retry,
    ScheduleChange,
    State,
    WorkerInfo,
    open_driver,
)
from taskharbor.drivers.redis import resp
from taskharbor.drivers.redis.endpoint import AWAY, Endpoint, refused
from taskharbor.drivers.redis.options import parse
from taskharbor.events import JobStarted
from taskharbor.omniq import OmniQ
from tests.drivers.redis_stores import emptied, with_driver
from tests.servers import redis as servers
from tests.worker import workbench as benches

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
STORES = (*servers.KINDS, "cluster")


def nodes(kind):
    return servers.shared_cluster().nodes if kind == "cluster" else [servers.shared(kind)]


def empty(kind) -> str:
    if kind != "cluster":
        return f"{emptied(kind)}?checks=0"
    servers.shared_cluster().empty()
    return f"{servers.shared_cluster().url}?checks=0"


@contextlib.contextmanager
def full(kind):
    """Every server of this store has reached its maxmemory."""
    try:
        for node in nodes(kind):
            node.run("CONFIG", "SET", "maxmemory", "1")
        yield
    finally:
        for node in nodes(kind):
            node.run("CONFIG", "SET", "maxmemory", "0")


def job(id: str, **fields) -> JobRecord:
    return JobRecord(**{"id": id, "type": "work", "queue": "q", "created_at": NOW, **fields})


def everything(kind) -> dict[str, str]:
    """What all servers hold, by key."""
    found = {}
    for node in nodes(kind):
        with node.client() as client:
            if client.role()[0] != b"master":
                continue
            for key in client.scan_iter(count=1000):
                found[key] = client.dump(key)
    return found


NEW = {
    "plain": [job("new")],
    "in a group": [job("new", group="g", group_limit=3)],
    "scheduled": [job("new", run_at=NOW + LEASE)],
    "with a key": [job("new", idempotency_key="k")],
    "behind a later one": [job("new", priority=3)],
    "a flow": [job("new", flow_id="f"), job("newer", depends_on=("new",), flow_id="f", queue="other")],
}


@pytest.mark.parametrize("kind", STORES)
def test_new_jobs_are_refused_and_nothing_is_left_of_them(kind):
    async def story(driver):
        await driver.enqueue([job("known")], NOW)
        await driver.enqueue([job("later")], NOW + LEASE)
        before = everything(kind)
        with full(kind):
            for name, jobs in NEW.items():
                with pytest.raises(BackendUnavailable, match="Redis is full") as refused:
                    await driver.enqueue(jobs, NOW)
                assert not refused.value.lasting, name
        after = everything(kind)
        names = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        assert names <= {b"{th}:queues", b"{th}:busy"}  # names of queues; on a Cluster they are noted first
        for jobs in NEW.values():
            await driver.enqueue(jobs, NOW)

    with_driver(empty(kind), story)


@pytest.mark.parametrize("kind", STORES)
def test_everything_else_goes_through(kind):
    async def story(driver):
        held, waiting = "abcdefg", ["dead", "dead2", "gone", "gone2", "old"]
        await driver.enqueue([job(id, queue="held") for id in held], NOW)
        await driver.enqueue([job(id, queue="end") for id in waiting], NOW)
        await driver.enqueue([job("first", flow_id="f"), job("then", depends_on=("first",), flow_id="f")], NOW)
        await driver.enqueue([job("step", flow_id="x"), job("join", depends_on=("step",), flow_id="x")], NOW)
        ended = {one.job.id: one.lease for one in await driver.reserve(["end"], NOW, LEASE, 10, "w")}
        outcomes = [Fail(ended["dead"], "no", 1, NOW), Fail(ended["dead2"], "no", 1, NOW), Ack(ended["old"])]
        assert await driver.settle(outcomes, NOW) == [None] * 3
        now = NOW + timedelta(seconds=1)
        with full(kind):
            leases = {one.job.id: one.lease for one in await driver.reserve(["held", "q"], now, LEASE, 20, "w")}
            assert sorted(leases) == sorted([*held, "first", "step"])
            now += timedelta(seconds=10)
            for lease, answer in zip(
                leases.values(), await driver.extend(list(leases.values()), now, LEASE), strict=True
            ):
                assert answer == type(lease)(lease.job_id, lease.queue, lease.token, now + LEASE)
            now += timedelta(seconds=25)  # beyond the lease as it was granted
            spawn = (job("spawned", flow_id="f", queue="further"), job("heir", depends_on=("spawned",), flow_id="f"))
            outcomes = [
                Ack(leases["a"], b"1"),
                Retry(leases["b"], None, 1, "no", now),
                Retry(leases["c"], now + LEASE, 1, "no", now),
                Fail(leases["d"], "no", 1, now, spawn=(job("sorry"),)),
                Cancelled(leases["e"], "no"),
                Ack(leases["first"], spawn=spawn, handover="heir"),
            ]
            for outcome in outcomes:
                assert await driver.settle([outcome], now) == [None]
            assert await driver.release("w", now, keep=[leases["g"].token]) == 2  # f and step
            assert await driver.cancel(["f"], now) == [None]
            assert await driver.requeue(["dead", "f"], now) == [None, None]
            assert await driver.delete(["dead2"]) == [None]
            assert await driver.cancel_flow("x", now) == 2
            await driver.pause("held")
            assert await driver.reserve(["held"], now, LEASE, 20, "w") == []
            await driver.resume("held")
            assert [one.job.id for one in await driver.reserve(["held"], now, LEASE, 20, "w")] == ["b", "f"]
            assert await driver.prune(now + timedelta(seconds=1), 100) == 5  # old, a, e, step, join
            await driver.beat(WorkerInfo(worker="w", queues=("q",), running=0, started_at=NOW, seen_at=now), now)
            assert [one.worker for one in await driver.workers(now)] == ["w"]
            assert [one.job.id for one in await driver.reserve(["further"], now, LEASE, 5, "w")] == ["spawned"]
            assert (await driver.inspect("then", now)).waiting_for == ("heir",)
            assert (await driver.inspect("d", now)).state is State.DLQ
            inflight = await driver.list(now=now, state="inflight")
            assert {one.job.id for one in inflight.items} == {"b", "f", "g", "spawned"}
            assert (await driver.counts(now))["held"] == {"dlq": 1, "inflight": 3, "scheduled": 1}

    with_driver(empty(kind), story)


@pytest.mark.parametrize("kind", servers.KINDS)
def test_the_same_for_a_client_of_omniq(kind):
    emptied(kind)
    server = servers.shared(kind)
    with OmniQ(server.url) as q:
        for id in "abcdef":
            q.publish("jobs", {}, job_id=id, max_attempts=1 if id == "c" else 3, timeout_ms=30_000)
        q.publish("jobs", {}, job_id="due", due_ms=2_000_000_000_000)
        q.childs_init("fan", 2)
        with full(kind):
            with pytest.raises(BackendUnavailable, match="Redis is full"):
                q.publish("jobs", {}, job_id="new")
            with pytest.raises(BackendUnavailable, match="Redis is full"):
                q.childs_init("other", 2)
            held = {one.job_id: one.lease_token for one in (q.reserve("jobs") for _ in "abcde")}  # type: ignore[union-attr]  # never None here
            for id, token in held.items():
                q.heartbeat("jobs", id, token)
            q.ack_success("jobs", "a", held["a"])
            assert q.ack_fail("jobs", "b", held["b"], error="no")[0] == "RETRY"
            assert q.ack_fail("jobs", "c", held["c"], error="no")[0] == "FAILED"
            q.give_back("jobs", "d", held["d"])
            q.retry_failed("jobs", "c")
            q.remove_job("jobs", "f", "wait")
            assert q.promote_delayed("jobs", now_ms_override=2_000_000_000_000) == 2
            assert q.reap_expired("jobs", now_ms_override=2_000_000_000_000) == 1
            q.set_group_limit("jobs", "g", 3)
            assert q.pause("jobs") == "OK"
            assert q.is_paused("jobs")
            assert q.resume("jobs") == 1
            assert (q.child_ack("fan", "x"), q.child_ack("fan", "y")) == (1, 0)
            assert q.purge_failed("jobs", 2_000_000_000_000) == 0
        q.publish("jobs", {}, job_id="new")


async def fill(bench):
    for number in range(1000):
        await bench.enqueue(benches.job(f"filler{number}", queue="filler", payload=bytes(50_000)))


def test_healthy_jobs_run_once_on_a_server_that_fills_up():
    """Three jobs of four leases each and two workers, while the server has no room for one more job."""
    server = servers.Server("redis7")

    async def scenario():
        driver = open_driver(f"{server.url}?checks=0")
        await driver.open()
        bench, go = benches.Bench(driver), asyncio.Event()
        workers = [bench.worker(lease=30, heartbeat=10, concurrency=2) for _ in range(2)]
        try:
            for worker in workers:
                worker.register("t", go.wait)
            await bench.enqueue(*[benches.job(f"j{n}") for n in range(3)])
            with server.client() as client:
                client.config_set("maxmemory", client.info("memory")["used_memory"] + 2_000_000)
            with pytest.raises(BackendUnavailable, match="Redis is full"):
                await fill(bench)
            async with bench.running(workers[0]), bench.running(workers[1]):
                await bench.heard(JobStarted, 3)
                for _ in range(12):
                    bench.clock.advance(10)
                    for number in range(3):
                        await bench.extended(f"j{number}", to=bench.clock.now() + LEASE)
                with pytest.raises(BackendUnavailable, match="Redis is full"):
                    await bench.enqueue(benches.job("j3"))
                go.set()
                while (await driver.counts(bench.clock.now()))["default"] != {"done": 3}:
                    await asyncio.sleep(0)
                found = await driver.list(now=bench.clock.now(), queue="filler", limit=1000)
                assert set(await driver.delete([one.job.id for one in found.items])) == {None}
                await bench.enqueue(benches.job("j3"))  # there is room again
                await bench.heard(JobStarted, 4)
                for number in range(4):
                    while (await bench.info(f"j{number}")).state is not State.DONE:
                        await asyncio.sleep(0)
            infos = [(await bench.info(f"j{number}")).job for number in range(4)]
            assert [(one.deliveries, one.lost) for one in infos] == [(1, 0)] * 4
        finally:
            await driver.close()

    try:
        benches.run(scenario())
    finally:
        server.stop()


GONE = ScheduleChange(name="unknown", expect=None, to=None)
CALLS = {
    "enqueue": lambda driver, lease: driver.enqueue([job("new")], NOW),
    "reserve": lambda driver, lease: driver.reserve(["empty"], NOW, LEASE, 1, "w"),
    "reserve of several": lambda driver, lease: driver.reserve(["empty", "emptier"], NOW, LEASE, 1, "w"),
    "extend": lambda driver, lease: driver.extend([lease], NOW, LEASE),
    "ack": lambda driver, lease: driver.settle([Ack(lease)], NOW),
    "retry": lambda driver, lease: driver.settle([Retry(lease, None, 1)], NOW),
    "release": lambda driver, lease: driver.release("nobody", NOW),
    "cancel": lambda driver, lease: driver.cancel(["unknown"], NOW),
    "requeue": lambda driver, lease: driver.requeue(["unknown"], NOW),
    "delete": lambda driver, lease: driver.delete(["unknown"]),
    "cancel_flow": lambda driver, lease: driver.cancel_flow("unknown", NOW),
    "prune": lambda driver, lease: driver.prune(NOW, 10),
    "pause": lambda driver, lease: driver.pause("q"),
    "resume": lambda driver, lease: driver.resume("q"),
    "change_schedules": lambda driver, lease: driver.change_schedules([GONE], NOW),
}
REFUSALS = {
    "a replica": (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
    "too few replicas": (
        ("CONFIG", "SET", "min-replicas-to-write", "1"),
        ("CONFIG", "SET", "min-replicas-to-write", "0"),
    ),
}


@pytest.mark.parametrize("kind", servers.KINDS)
@pytest.mark.parametrize("why", REFUSALS)
def test_a_server_that_takes_no_writes_is_unavailable_whatever_it_knows(kind, why):
    """Also where a script finds a reason to refuse in what it reads: a replica's data may be old."""
    begin, end = REFUSALS[why]

    async def story(driver):
        await driver.enqueue([job("held")], NOW)
        [one] = await driver.reserve(["q"], NOW, LEASE, 1, "w")
        await driver.delete(["held"])  # as far as this server knows, which may be another's past
        server = servers.shared(kind)
        try:
            server.run(*begin)
            for call in CALLS.values():
                with pytest.raises(BackendUnavailable):
                    await call(driver, one.lease)
        finally:
            server.run(*end)

    with_driver(empty(kind), story)


@pytest.mark.parametrize("word", ["OOM", "READONLY", "NOREPLICAS", "MISCONF", "MASTERDOWN"])
def test_errors_inside_a_script_are_known_on_every_version(word):
    said = f"{word} Redis is configured to stop-writes-on-bgsave-error - and more -"
    older = f"ERR Error running script (call to f_{'0' * 40}): @user_script:3: @user_script: 3: -{said}\n"
    newer = f"{said} script: {'0' * 40}, on @user_script:3."
    for text in (said, older, newer):
        error = resp.error_of(text)
        known = refused(Endpoint(parse("redis://localhost/0"), ""), error) if type(error) is ResponseError else error
        assert isinstance(known, (BackendUnavailable, *AWAY)), text


def test_an_error_of_a_script_itself_is_not_taken_for_another():
    for said in ("attempt to index a nil value", "Write commands are not allowed -OOM", "-not a word"):
        error = resp.error_of(f"ERR Error running script (call to f_00): @user_script:3: user_script:3: {said}")
        assert isinstance(error, ResponseError)
        assert type(refused(Endpoint(parse("redis://localhost/0"), ""), error)) is DriverError
