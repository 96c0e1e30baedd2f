"""Jobs that another OmniQ client published, reserved, finished or failed. It is played here command by command, as
omniq-wire describes it; the interoperation tests of `taskharbor.omniq` run the published packages themselves."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import Ack, Fail, JobRecord, Retry, State
from tests.drivers.redis_stores import as_test, emptied, visit_all, with_driver
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
LEASE = timedelta(seconds=30)


class Foreign:
    """An OmniQ 1.x client on one queue."""

    def __init__(self, queue: str) -> None:
        self.client = servers.shared("redis7").client(decode_responses=True)
        self.base = f"{{{queue}}}"

    def publish(self, id: str, max_attempts: int = 3, gid: str = "", due: int = 0) -> None:
        job = {
            "id": id,
            "payload": '{"n":1}',
            "state": "delayed" if due else "wait",
            "attempt": 0,
            "max_attempts": max_attempts,
            "timeout_ms": 60000,
            "backoff_ms": 5000,
            "created_ms": NOW_MS,
            "updated_ms": NOW_MS,
        }
        self.client.hset(f"{self.base}:job:{id}", mapping={**job, **({"gid": gid} if gid else {})})
        if due:
            self.client.hset(f"{self.base}:job:{id}", "due_ms", due)
            self.client.zadd(f"{self.base}:delayed", {id: due})
        elif gid:
            self.client.rpush(f"{self.base}:g:{gid}:wait", id)
            self.client.zadd(f"{self.base}:groups:ready", {gid: NOW_MS})
        else:
            self.client.rpush(f"{self.base}:wait", id)

    def reserve(self) -> str:
        id = self.client.lpop(f"{self.base}:wait")
        self.client.hincrby(f"{self.base}:job:{id}", "attempt", 1)
        lock = NOW_MS + 60_000
        fields = {"state": "active", "lease_token": "f" * 40, "lock_until_ms": lock}
        self.client.hset(f"{self.base}:job:{id}", mapping=fields)
        self.client.zadd(f"{self.base}:active", {id: lock})
        return str(id)

    def _end(self, id: str, state: str) -> None:
        self.client.zrem(f"{self.base}:active", id)
        fields = {"state": state, "lease_token": "", "lock_until_ms": "", "updated_ms": NOW_MS + 5}
        self.client.hset(f"{self.base}:job:{id}", mapping=fields)

    def ack(self, id: str) -> None:
        self._end(id, "completed")
        self.client.lpush(f"{self.base}:completed", id)
        while self.client.llen(f"{self.base}:completed") > 100:
            self.client.delete(f"{self.base}:job:{self.client.rpop(f'{self.base}:completed')}")

    def fail(self, id: str, error: str = "Boom: no") -> str:
        job = self.client.hgetall(f"{self.base}:job:{id}")
        self.client.hset(f"{self.base}:job:{id}", mapping={"last_error": error, "last_error_ms": NOW_MS + 5})
        if int(job["attempt"]) >= int(job["max_attempts"]):
            self._end(id, "failed")
            self.client.lpush(f"{self.base}:failed", id)
            return "FAILED"
        self._end(id, "delayed")
        self.client.hset(f"{self.base}:job:{id}", "due_ms", NOW_MS + 5000)
        self.client.zadd(f"{self.base}:delayed", {id: NOW_MS + 5000})
        return "RETRY"

    def field(self, id: str, name: str) -> str | None:
        return self.client.hget(f"{self.base}:job:{id}", name)


def job(id: str, **fields) -> JobRecord:
    return JobRecord(**{"id": id, "type": "work", "queue": "q", "created_at": NOW, **fields})


@pytest.fixture
def foreign():
    emptied()
    made = Foreign("q")
    yield made
    made.client.close()


def live(story):
    with_driver(f"{servers.shared('redis7').url}?checks=0", story)


on_store = as_test(live, opens=1)


async def take(driver, limit=10, at=0.0, queue="q"):
    return await driver.reserve([queue], NOW + timedelta(seconds=at), LEASE, limit, "w")


async def tended(driver, at=0.0):
    """What a worker does every few seconds, at once."""
    await visit_all(driver.store, ["q"], NOW_MS + round(at * 1000))


@on_store
async def test_a_published_job_is_a_job_here(driver, foreign):
    foreign.publish("f1")
    foreign.publish("f2", gid="g")
    taken = await take(driver)
    assert sorted((held.job.id, held.job.type, held.job.queue, held.job.group) for held in taken) == [
        ("f1", "q", "q", None),
        ("f2", "q", "q", "g"),
    ]
    assert {(held.job.payload, held.job.attempts, held.job.max_attempts, held.job.deliveries) for held in taken} == {
        (b'{"n":1}', 0, 3, 1)
    }
    assert await driver.settle([Ack(held.lease) for held in taken], NOW) == [None, None]
    assert sorted(foreign.client.lrange("{q}:completed", 0, -1)) == ["f1", "f2"]
    assert (await driver.counts(NOW)) == {"q": {"done": 2}}


@on_store
async def test_completed_is_trimmed_to_a_hundred(driver, foreign):
    for number in range(130):
        foreign.publish(f"f{number:03d}")
    taken = await take(driver, 200)
    assert await driver.settle([Ack(held.lease) for held in taken], NOW) == [None] * 130
    assert foreign.client.llen("{q}:completed") == 100
    assert len(foreign.client.keys("{q}:job:*")) == 100


@pytest.mark.parametrize("trimmed", [False, True])
@on_store
async def test_a_dependency_that_a_foreign_client_finished_releases(driver, foreign, trimmed):
    first, second = job("a", flow_id="run"), job("b", depends_on=("a",), flow_id="run", queue="other")
    await driver.enqueue([first, second], NOW)
    id = foreign.reserve()
    foreign.ack(id)
    if trimmed:
        foreign.client.delete("{q}:job:a")
        foreign.client.delete("{q}:completed")
    assert (await driver.inspect("b", NOW)).state == "blocked"
    await tended(driver)
    assert (await driver.inspect("b", NOW)).state == "ready"
    (held,) = await take(driver, queue="other")
    await driver.settle([Ack(held.lease)], NOW)
    assert (await driver.flow("run", NOW)).status == "succeeded"
    assert await driver.prune(NOW + timedelta(days=1), 10) == (1 if trimmed else 2)
    assert list(foreign.client.scan_iter("{th:ids:0}*")) == []


@on_store
async def test_workers_adopt_jobs_that_others_finished(driver, foreign):
    await driver.enqueue([job("a"), job("b", depends_on=("a",), queue="other")], NOW)
    foreign.ack(foreign.reserve())
    async with asyncio.timeout(60):
        while not (taken := await take(driver, queue="other")):
            await asyncio.sleep(0)
    assert [held.job.id for held in taken] == ["b"]


@on_store
async def test_a_dependency_that_a_foreign_client_failed_fails_the_run(driver, foreign):
    await driver.enqueue([job("a", flow_id="run", max_attempts=1), job("b", depends_on=("a",), flow_id="run")], NOW)
    assert foreign.fail(foreign.reserve()) == "FAILED"
    info = await driver.inspect("a", NOW)
    assert (info.state, info.job.reason, info.job.attempts) == ("dlq", "Boom: no", 1)
    assert (await driver.flow("run", NOW)).status == "failed"
    assert await driver.requeue(["a"], NOW) == [None]
    (held,) = await take(driver)
    assert await driver.settle([Ack(held.lease)], NOW) == [None]
    assert [held.job.id for held in await take(driver)] == ["b"]


@on_store
async def test_foreign_leases_raise_the_fence_and_count_as_failures(driver, foreign):
    await driver.enqueue([job("a", max_attempts=5)], NOW)
    assert foreign.fail(foreign.reserve()) == "RETRY"
    info = await driver.inspect("a", NOW + timedelta(seconds=6))
    assert (info.state, info.job.attempts, info.job.deliveries) == ("ready", 1, 1)
    (held,) = await take(driver, at=6)
    assert (held.job.attempts, held.job.deliveries) == (1, 2)


@on_store
async def test_a_reset_by_a_foreign_client_never_takes_deliveries_back(driver, foreign):
    await driver.enqueue([job("a", max_attempts=1)], NOW)
    (held,) = await take(driver)
    await driver.settle([Fail(held.lease, "dead", 1, NOW)], NOW)
    foreign.client.lrem("{q}:failed", 1, "a")  # retry_failed
    foreign.client.hset("{q}:job:a", mapping={"state": "wait", "attempt": 0, "due_ms": ""})
    foreign.client.rpush("{q}:wait", "a")
    assert (await driver.inspect("a", NOW)).job.deliveries == 1
    (held,) = await take(driver)
    assert (held.job.deliveries, held.job.attempts) == (2, 0)


@on_store
async def test_foreign_clients_judge_failures_only(driver, foreign):
    """attempt >= max_attempts holds at the last failure, not after leases that were given back, lost or released."""
    await driver.enqueue([job("a", max_attempts=2)], NOW)
    (held,) = await take(driver)
    await driver.settle([Retry(held.lease, None, 0)], NOW)  # given back
    (held,) = await take(driver)
    await driver.release("w", NOW)
    await take(driver)
    (held,) = await take(driver, at=60)  # its lease was lost
    assert (held.job.deliveries, held.job.attempts) == (4, 0)
    await driver.settle([Retry(held.lease, None, 1)], NOW + timedelta(seconds=61))
    assert (foreign.field("a", "attempt"), foreign.field("a", "max_attempts")) == ("4", "5")
    assert foreign.fail(foreign.reserve()) == "FAILED"


@on_store
async def test_admin_sees_and_handles_what_was_published(driver, foreign):
    for name in ("w", "g", "d", "x", "y"):
        foreign.publish(name, gid="grp" if name == "g" else "", due=NOW_MS + 9000 if name == "d" else 0)
    await driver.enqueue([job("own")], NOW)
    other = Foreign("elsewhere")
    other.publish("far", max_attempts=1)
    other.fail(other.reserve())
    other.client.close()
    assert await driver.queues() == ["elsewhere", "q"]
    assert await driver.counts(NOW) == {"elsewhere": {"dlq": 1}, "q": {"ready": 5, "scheduled": 1}}
    page = await driver.list(now=NOW)
    assert [info.job.id for info in page.items] == ["d", "far", "g", "own", "w", "x", "y"]
    assert [info.job.id for info in (await driver.list(now=NOW, queue="q", type="q")).items] == list("dgwxy")
    first = await driver.list(now=NOW, limit=3)
    rest = await driver.list(now=NOW, limit=10, cursor=first.cursor)
    assert [info.job.id for info in (*first.items, *rest.items)] == ["d", "far", "g", "own", "w", "x", "y"]
    assert (await driver.inspect("d", NOW)).state is State.SCHEDULED
    assert await driver.cancel(["w", "d"], NOW) == [None, None]
    assert (await driver.inspect("d", NOW)).state is State.CANCELLED
    assert await driver.requeue(["far", "d"], NOW) == [None, None]
    assert await driver.delete(["x", "g"]) == [None, None]
    assert foreign.client.llen("{q}:wait") == 3
    assert await driver.counts(NOW) == {"elsewhere": {"ready": 1}, "q": {"ready": 3, "cancelled": 1}}
    taken = await driver.reserve(["q", "elsewhere"], NOW, LEASE, 10)
    assert sorted(held.job.id for held in taken) == ["d", "far", "own", "y"]


@on_store
async def test_ghosts_are_passed_over(driver, foreign):
    """An id without a record, in every lane."""
    foreign.client.rpush("{q}:wait", "ghost", "stub")
    foreign.client.hset("{q}:job:stub", mapping={"state": "wait"})
    foreign.client.zadd("{q}:delayed", {"ghost2": 1})
    foreign.client.zadd("{q}:active", {"ghost3": 1})
    foreign.publish("real")
    assert [held.job.id for held in await take(driver)] == ["real"]
    assert foreign.client.zrange("{q}:active", 0, -1) == ["real"]
    assert foreign.client.llen("{q}:wait") == foreign.client.zcard("{q}:delayed") == 0


@on_store
async def test_a_key_whose_record_was_trimmed_is_unknown(driver, foreign):
    await driver.enqueue([job("a", idempotency_key="k")], NOW)
    foreign.client.delete("{q}:job:a")
    assert [answer.existed for answer in await driver.enqueue([job("b", idempotency_key="k")], NOW)] == [False]
    foreign.client.delete("{q}:job:b")
    await driver.prune(NOW, 10)
    assert foreign.client.exists("{q}:th:keys", "{q}:th:ids") == 0
    assert list(foreign.client.scan_iter("{th:ids:0}*")) == []


@on_store
async def test_a_store_whose_jobs_are_pruned_is_empty(driver, foreign):
    """Nothing grows without bound: neither names of queues nor groups, runs, keys and edges; only limits stay."""
    for number in range(5):
        queue = f"q{number}"
        await driver.enqueue(
            [
                job(f"a{number}", queue=queue, flow_id=f"run{number}", idempotency_key="k", group="g"),
                job(f"b{number}", queue=queue, flow_id=f"run{number}", depends_on=(f"a{number}",), priority=3),
                job(f"c{number}", queue=queue, run_at=NOW + timedelta(seconds=1), group="h", group_limit=2),
            ],
            NOW,
        )
    queues = [f"q{number}" for number in range(5)]
    at = NOW + timedelta(seconds=2)
    while taken := await driver.reserve(queues, at, LEASE, 7, "w"):
        assert await driver.settle([Ack(held.lease, b"r") for held in taken], at) == [None] * len(taken)
    assert await driver.prune(NOW + timedelta(days=1), 100) == 15
    lasting = {key for key in foreign.client.keys("*") if foreign.client.pttl(key) < 0}
    assert lasting == {
        *(f"{{q{number}}}:g:h:limit" for number in range(5)),
        *(f"{{q{number}}}:has_groups" for number in range(5)),
        "{th}:turns",
    }
    assert foreign.client.hlen("{th}:turns") == 1


@pytest.mark.parametrize("end", ["done", "cancelled"])
@pytest.mark.parametrize("again", ["ready", "scheduled", "inflight", "dead"])
@on_store
async def test_an_id_that_is_published_again_is_not_pruned(driver, foreign, end, again):
    """Published clients do not look whether an id is known: what they publish under a finished one is a new job."""
    await driver.enqueue([job("daily")], NOW)
    if end == "done":
        (held,) = await take(driver)
        assert await driver.settle([Ack(held.lease)], NOW) == [None]
    else:
        assert await driver.cancel(["daily"], NOW) == [None]
    foreign.publish("daily", max_attempts=1, due=NOW_MS + 10_000 if again == "scheduled" else 0)
    if again in ("inflight", "dead"):
        foreign.reserve()
    if again == "dead":
        assert foreign.fail("daily") == "FAILED"
    assert await driver.prune(NOW + timedelta(days=1), 10) == 0
    assert (await driver.inspect("daily", NOW)).state == {"dead": "dlq"}.get(again, again)
    if again == "dead":
        assert await driver.requeue(["daily"], NOW + timedelta(seconds=5)) == [None]
    if again != "inflight":
        (held,) = await take(driver, at=20)
        assert held.job.id == "daily"
        assert await driver.settle([Ack(held.lease)], NOW + timedelta(seconds=20)) == [None]
        assert await driver.prune(NOW + timedelta(days=1), 10) == 1
        assert await driver.counts(NOW) == {}


@on_store
async def test_list_finds_foreign_jobs_in_every_list_of_a_large_queue(driver, foreign):
    for first in range(0, 4400, 1100):
        await driver.enqueue([job(f"own{first + number:04}") for number in range(1100)], NOW)
    foreign.client.set("{q}:g:full:limit", 1)
    foreign.publish("later", due=NOW_MS + 60_000)
    foreign.publish("full-1", gid="full")
    foreign.publish("room-1", gid="room")
    foreign.client.set("{q}:has_groups", "1")
    assert {held.job.id for held in await take(driver, limit=5)} >= {"full-1", "room-1"}
    for id, gid in (("full-2", "full"), ("other-1", "other"), ("last", "")):
        foreign.publish(id, gid=gid)
    foreign.publish("front")
    foreign.client.lpush("{q}:wait", foreign.client.rpop("{q}:wait"))
    foreign.client.zrem("{q}:groups:ready", "full")
    foreign.client.lpush("{q}:failed", "dead")
    foreign.client.hset("{q}:job:dead", mapping={"id": "dead", "payload": "{}", "state": "failed"})
    found, cursor = [], None
    while True:
        page = await driver.list(now=NOW, queue="q", limit=1000, cursor=cursor)
        found += [one.job.id for one in page.items]
        cursor = page.cursor
        if cursor is None:
            break
    theirs = ["dead", "front", "full-1", "full-2", "last", "later", "other-1", "room-1"]
    assert found == sorted([*theirs, *(f"own{number:04}" for number in range(4400))])
