"""One format, two faces: the Redis driver and OmniQ clients, ours and the published ones, on the same queue."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from taskharbor import Client, Harbor, JobRequest, Worker
from taskharbor.conformance.environment import opened
from taskharbor.drivers import Ack, Driver, Fail, JobInfo, JobRecord, Retry, open_driver
from taskharbor.flow import chain
from taskharbor.model.times import from_ms
from taskharbor.omniq import Job, now_ms
from tests.omniq.conftest import url
from tests.omniq.peers import VERSIONS, Side
from tests.servers import redis as servers
from tests.servers.redis import until

pytestmark = pytest.mark.lane("omniq-interop")

LEASE = timedelta(seconds=30)


@pytest.fixture(params=["ours", *VERSIONS])
def side(request, sides, server) -> Side:
    return sides[request.param]


def dsn(server: servers.Server) -> str:
    return f"{url(server)}?checks=0"


def live(server: servers.Server, story: Callable[[Driver], Awaitable[None]]) -> None:
    async def run() -> None:
        async with opened(open_driver(dsn(server))) as driver:
            await story(driver)

    asyncio.run(run())


def taken(side: Side, now: int, queue: str = "jobs") -> Job:
    job = side.reserve(queue, now)
    assert isinstance(job, Job)
    return job


async def becomes(driver: Driver, job_id: str, state: str) -> JobInfo:
    """Wait as a worker does, which asks for jobs again and again, until the job is in this state."""
    async with asyncio.timeout(60):
        while True:
            now = await driver.server_time()
            info = await driver.inspect(job_id, now)
            if info.state == state:
                return info
            await driver.reserve(["nobody's"], now, LEASE, 1)
            await driver.wait(["nobody's"], 0.1)


def test_admin_sees_and_handles_what_a_client_published(side, server, store):
    now = now_ms() + 1000

    async def story(driver: Driver) -> None:
        for number, name in enumerate(("dead", "done", "running")):
            side.publish("jobs", {"n": number}, job_id=name, max_attempts=1)
            job = taken(side, now)
            if name == "dead":
                side.held("ack_fail", "jobs", job, now, error="no")
            elif name == "done":
                side.held("ack_success", "jobs", job, now)
        side.publish("jobs", {"n": 3}, job_id="grouped", gid="g", group_limit=2)
        side.publish("jobs", {"n": 4}, job_id="later", due_ms=now + 10**6)
        side.publish("jobs", {"n": 5}, job_id="waiting")
        at = from_ms(now + 1)
        assert await driver.queues() == ["jobs"]
        assert await driver.counts(at) == {"jobs": {"dlq": 1, "done": 1, "inflight": 1, "ready": 2, "scheduled": 1}}
        page = await driver.list(queue="jobs", now=at)
        assert {info.job.id: str(info.state) for info in page.items} == {
            "dead": "dlq", "done": "done", "grouped": "ready", "later": "scheduled", "running": "inflight",
            "waiting": "ready",
        }  # fmt: skip
        info = await driver.inspect("dead", at)
        assert (info.job.type, info.job.queue, info.job.last_error) == ("jobs", "jobs", "no")
        assert json.loads((await driver.inspect("grouped", at)).job.payload) == {"n": 3}
        assert (await driver.inspect("grouped", at)).job.group == "g"
        assert await driver.requeue(["dead"], at, reset_attempts=True) == [None]
        assert await driver.cancel(["waiting", "later", "running"], at) == [None, None, None]
        assert await driver.delete(["grouped", "done"]) == [None, None]
        assert await driver.counts(at) == {"jobs": {"cancelled": 3, "ready": 1}}
        assert store.wrong() == []
        # And the clients see it, too.
        job = taken(side, now + 2)
        assert (job.job_id, job.attempt) == ("dead", 2)  # leases granted; it may fail as often as at first
        side.held("ack_success", "jobs", job, now + 2)
        assert side.reserve("jobs", now + 10**7) is None

    live(server, story)


def test_a_step_finished_by_a_client_releases_what_depends_on_it(side, server):
    async def story(driver: Driver) -> None:
        start = await driver.server_time()
        first = JobRecord(id="a", type="t", queue="jobs", flow_id="run")
        second = JobRecord(id="b", type="t", queue="other", flow_id="run", depends_on=("a",))
        await driver.enqueue([second, first], start)
        job = taken(side, now_ms() + 1000)
        assert job.job_id == "a"
        side.held("ack_success", "jobs", job, now_ms() + 1000)
        await becomes(driver, "b", "ready")
        (held,) = await driver.reserve(["other"], await driver.server_time(), LEASE, 9)
        assert await driver.settle([Ack(held.lease)], await driver.server_time()) == [None]
        assert (await driver.flow("run", await driver.server_time())).status == "succeeded"

    live(server, story)


def test_a_step_failed_by_a_client_fails_the_flow(side, server):
    async def story(driver: Driver) -> None:
        start = await driver.server_time()
        first = JobRecord(id="a", type="t", queue="jobs", flow_id="run", max_attempts=1)
        second = JobRecord(id="b", type="t", queue="jobs", flow_id="run", depends_on=("a",))
        await driver.enqueue([first, second], start)
        job = taken(side, now_ms() + 1000)
        assert side.held("ack_fail", "jobs", job, now_ms() + 1000, error="broken") == ("FAILED", None)
        dead = await becomes(driver, "a", "dlq")
        assert dead.job.last_error == "broken"
        assert (await driver.inspect("b", await driver.server_time())).state == "blocked"
        assert (await driver.flow("run", await driver.server_time())).status == "failed"
        assert await driver.requeue(["a"], await driver.server_time(), reset_attempts=True) == [None]
        side.held("ack_success", "jobs", taken(side, now_ms() + 2000), now_ms() + 2000)
        await becomes(driver, "b", "ready")

    live(server, story)


def test_our_ack_releases_in_the_same_instant(server, sides):
    async def story(driver: Driver) -> None:
        now = await driver.server_time()
        records = [JobRecord(id="a", type="t", queue="jobs"), JobRecord(id="b", type="t", queue="x", depends_on=("a",))]
        await driver.enqueue(records, now)
        sides["ours"].held("ack_success", "jobs", taken(sides["ours"], 0), 0)
        assert (await driver.inspect("b", now)).state == "ready"
        assert (await driver.inspect("a", now)).state == "done"

    live(server, story)


def test_a_job_enqueued_here_is_processed_by_an_omniq_client(side, server, store):
    client = Client(dsn(server))
    try:
        handle = client.enqueue(JobRequest(type="email:send", payload={"to": "zoë"}, queue="jobs", max_attempts=2))
        job = taken(side, now_ms() + 1000)
        assert (job.job_id, json.loads(job.payload), job.attempt) == (handle.id, {"to": "zoë"}, 1)
        assert handle.status() == "inflight"
        assert side.held("ack_fail", "jobs", job, now_ms() + 1000, error="no")[0] == "RETRY"
        assert handle.status() == "scheduled"
        side.verb("promote_delayed", "jobs", now_ms_override=now_ms() + 100_000)
        again = taken(side, now_ms() + 100_000)
        assert again.attempt == 2
        side.held("ack_success", "jobs", again, now_ms() + 100_001)
        assert handle.status() == "done"
        assert store.wrong() == []
    finally:
        client.close()


def test_a_grouped_job_enqueued_here_keeps_order_and_limit_for_a_client(side, server, store):
    async def story(driver: Driver) -> None:
        now = await driver.server_time()
        names = ("a", "b", "c")
        await driver.enqueue([JobRecord(id=n, type="t", queue="jobs", group="g", group_limit=2) for n in names], now)
        first, second = taken(side, now_ms() + 1000), taken(side, now_ms() + 1000)
        assert (first.job_id, second.job_id) == ("a", "b")
        assert side.reserve("jobs", now_ms() + 1000) is None
        assert await driver.reserve(["jobs"], now, LEASE, 9) == []
        side.held("ack_success", "jobs", first, now_ms() + 1000)
        (held,) = await driver.reserve(["jobs"], await driver.server_time(), LEASE, 9)
        assert held.job.id == "c"
        assert store.wrong() == []

    live(server, story)


def test_a_worker_runs_what_a_client_published(side, server, store):
    seen: list[Any] = []

    async def handler(to: str) -> None:
        seen.append(to)

    async def main() -> None:
        worker = Worker(dsn(server), queues=["jobs"], lease=30)
        worker.register("jobs", handler)  # the type of such a job is its queue's name
        await worker.arun(until_empty=True)

    side.publish("jobs", {"to": "zoë"}, job_id="a", gid="g")
    asyncio.run(main())
    assert seen == ["zoë"]
    assert store.where("a") == ["completed"]
    assert store.wrong() == []


def test_a_pause_by_either_face_holds_for_the_other(side, server):
    async def story(driver: Driver) -> None:
        side.publish("jobs", {}, job_id="a")
        await driver.pause("jobs")
        assert side.reserve("jobs", now_ms() + 1000) == "PAUSED"
        await driver.resume("jobs")
        side.verb("pause", "jobs")
        assert await driver.is_paused("jobs")
        assert await driver.reserve(["jobs"], await driver.server_time(), LEASE, 1) == []

    live(server, story)


def test_our_reap_gives_a_job_of_taskharbor_back_without_cost(server, sides, store):
    ours = sides["ours"]

    async def story(driver: Driver) -> None:
        now = await driver.server_time()
        await driver.enqueue([JobRecord(id="a", type="t", queue="jobs", max_attempts=1)], now)
        await driver.reserve(["jobs"], now, LEASE, 1, "w")
        assert ours.verb("reap_expired", "jobs", now_ms_override=now_ms() + 60_000) == 1
        later = now + timedelta(seconds=60)
        info = await driver.inspect("a", later)
        assert (info.state, info.job.attempts) == ("ready", 0)
        (held,) = await driver.reserve(["jobs"], later, LEASE, 1, "w")
        assert (held.job.lost, held.job.attempts, held.job.deliveries) == (1, 0, 2)
        assert await driver.settle([Fail(held.lease, "x", 1, later)], later) == [None]
        assert store.wrong() == []

    live(server, story)


def test_priorities_of_the_driver_are_seen_by_our_client_only(server, sides, store):
    async def story(driver: Driver) -> None:
        now = await driver.server_time()
        await driver.enqueue([JobRecord(id="high", type="t", queue="jobs", priority=5),
                              JobRecord(id="plain", type="t", queue="jobs")], now)  # fmt: skip
        job = taken(sides["4.0.0"], now_ms() + 1000)
        assert job.job_id == "plain"
        assert sides["4.0.0"].reserve("jobs", now_ms() + 1000) is None
        assert taken(sides["ours"], 0).job_id == "high"
        assert store.wrong() == []

    live(server, story)


def test_a_retry_of_the_driver_is_a_delayed_job_for_a_client(side, server, store):
    async def story(driver: Driver) -> None:
        side.publish("jobs", {}, job_id="a", max_attempts=2)
        now = await driver.server_time()
        (held,) = await driver.reserve(["jobs"], now, LEASE, 1)
        due = now + timedelta(seconds=5)
        assert await driver.settle([Retry(held.lease, due, 1, "no", now)], now) == [None]
        later = now_ms() + 10_000
        assert side.verb("promote_delayed", "jobs", now_ms_override=later) == 1
        job = taken(side, later)
        assert job.attempt == 2
        assert side.held("ack_fail", "jobs", job, later) == ("FAILED", None)
        info = await becomes(driver, "a", "dlq")
        assert info.job.attempts == 2
        assert store.wrong() == []

    live(server, story)


def test_a_lease_of_one_client_that_another_fails_counts_once(server, sides):
    async def story(driver: Driver) -> None:
        await driver.enqueue([JobRecord(id="a", type="t", queue="jobs", max_attempts=5)], await driver.server_time())
        for failures, (holder, failing) in enumerate((("1.7.0", "ours"), ("4.0.0", "ours"), ("ours", "ours")), 1):
            at = now_ms() + failures * 100_000
            for each in ("ours", "4.0.0"):
                sides[each].verb("promote_delayed", "jobs", now_ms_override=at)
            job = taken(sides[holder], at)
            assert sides[failing].held("ack_fail", "jobs", job, at, error="x")[0] == "RETRY"
            info = await driver.inspect("a", from_ms(at))
            assert (info.job.attempts, info.job.deliveries) == (failures, failures)

    live(server, story)


@pytest.mark.parametrize("worker", ["", "w"])
def test_a_release_gives_back_nothing_that_a_client_holds(side, server, store, worker):
    """An OmniQ consumer has no name: a lease of its own is none of a nameless worker, nor of one that had the job."""
    now = now_ms()

    async def story(driver: Driver) -> None:
        await driver.enqueue([JobRecord(id="a", type="t", queue="jobs")], from_ms(now))
        assert len(await driver.reserve(["jobs"], from_ms(now), LEASE, 1, "w")) == 1
        side.verb("reap_expired", "jobs", now_ms_override=now + 60_000)
        side.verb("promote_delayed", "jobs", now_ms_override=now + 3600_000)
        later = now + 3600_001
        job = taken(side, later)
        await driver.enqueue([JobRecord(id="b", type="t", queue="jobs")], from_ms(later))
        assert len(await driver.reserve(["jobs"], from_ms(later + 1), LEASE, 1, worker)) == 1
        info = await driver.inspect("a", from_ms(later + 1))
        assert (str(info.state), info.worker) == ("inflight", "")
        assert await driver.release(worker, from_ms(later + 1)) == 1
        assert store.where("a") == ["active"]
        side.held("ack_success", "jobs", job, later + 2)

    live(server, story)
    assert store.where("b") == ["wait"]


def test_hazard_7_the_driver_frees_the_group_place_of_a_record_that_is_gone(server, sides, store):
    ours = sides["ours"]

    async def story(driver: Driver) -> None:
        for each in ("a", "b"):
            ours.publish("jobs", {}, job_id=each, gid="g", timeout_ms=1000)
        taken(ours, 0)
        store.client.delete(store.key("job:a"))
        later = await driver.server_time() + timedelta(seconds=2)
        (held,) = await driver.reserve(["jobs"], later, LEASE, 9)
        assert held.job.id == "b"
        assert store.number("g:g:inflight") == 1
        assert store.wrong() == []

    live(server, story)


def test_a_chain_runs_over_both_faces(server, sides):
    """A worker runs the first step, an OmniQ consumer the second; the third is the worker's again."""
    harbor = Harbor(dsn(server))

    @harbor.task(queue="here")
    def one() -> int:
        return 1

    @harbor.task(queue="there")
    def two() -> None: ...

    @harbor.task(queue="here")
    def three() -> str:
        return "end"

    try:
        handle = chain(one.s(), two.s(), three.s()).enqueue()
        harbor.worker(queues=["here"]).run(until_empty=True)
        job = taken(sides["1.7.0"], now_ms() + 1000, "there")
        sides["1.7.0"].held("ack_success", "there", job, now_ms() + 1000)

        def ended() -> bool:
            harbor.worker(queues=["here"]).run(until_empty=True)
            return bool(handle.status() == "succeeded")

        until(ended, "the third step")
        assert handle.result(timeout=30) == "end"
    finally:
        harbor.close()
