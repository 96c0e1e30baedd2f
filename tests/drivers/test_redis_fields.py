"""Fields of a record on Redis that OmniQ does not have: beside foreign clients, and damage."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor.drivers import Ack, Fail, JobRecord, Lost, Retry, State
from taskharbor.model.amendment import Amend
from taskharbor.model.job import Figures
from tests.drivers.redis_stores import on_store

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
LEASE = timedelta(seconds=30)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
EVER = (datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC))


def job(id: str, **fields: Any) -> JobRecord:
    return JobRecord(**{"id": id, "type": "work", "queue": "q", "created_at": NOW, **fields})


async def take(driver: Any, at: datetime = NOW, worker: str = "w") -> Any:
    (held,) = await driver.reserve(["q"], at, LEASE, 1, worker)
    return held


@on_store
async def test_a_plain_job_gains_one_field_when_it_is_reserved_and_none_before_or_after(driver, client):
    await driver.enqueue([job("a")], NOW)
    fresh = set(client.hkeys("{q}:job:a"))
    assert not fresh & {b"th_began", b"th_ran", b"th_keep", b"th_f"}
    held = await take(driver)
    taken = set(client.hkeys("{q}:job:a"))
    assert taken - fresh == {b"th_began", b"th_worker", b"th_att", b"lease_token", b"lock_until_ms"}
    await driver.settle([Ack(held.lease)], NOW)
    assert set(client.hkeys("{q}:job:a")) - taken == {b"th_st"}


@on_store
async def test_no_release_gives_back_a_foreign_lease_on_a_job_that_the_worker_had(driver, client):
    """A foreign client revives a dead job and leases it: `attempt` is 1 again, as it was under our lease."""
    await driver.enqueue([job("a")], NOW)
    held = await take(driver, worker="w1")
    await driver.settle([Fail(held.lease, "no", 1, NOW)], NOW)
    end = NOW_MS + 60_000
    client.lrem("{q}:failed", 1, "a")
    client.hset("{q}:job:a", mapping={"state": "active", "attempt": 1, "lease_token": "theirs", "lock_until_ms": end})
    client.zadd("{q}:active", {"a": end})
    found = await driver.inspect("a", NOW)
    assert (found.state, found.worker, found.job.ran_on) == (State.INFLIGHT, "", "w1")
    assert await driver.release("w1", NOW) == 0
    assert (await driver.inspect("a", NOW)).state is State.INFLIGHT


@on_store
async def test_of_a_foreign_lease_that_was_lost_only_its_end_is_known(driver, client):
    await driver.enqueue([job("a")], NOW)
    held = await take(driver, worker="w1")
    await driver.settle([Retry(held.lease, None, 1)], NOW)
    end = NOW_MS + 5_000
    client.lrem("{q}:wait", 1, "a")
    client.hset("{q}:job:a", mapping={"state": "active", "attempt": 2, "lease_token": "theirs", "lock_until_ms": end})
    client.zadd("{q}:active", {"a": end})
    again = await take(driver, NOW + LEASE, "w2")
    assert again.lost_by == Lost("", None, NOW + timedelta(seconds=5))
    assert (again.job.began_at, again.job.ran_on) == (NOW + LEASE, "w2")


@on_store
async def test_a_loss_counts_only_for_the_reservation_that_follows_it(driver, client):
    """A foreign client had the job in between: the release before that is over."""
    await driver.enqueue([job("a")], NOW)
    await take(driver, worker="w1")
    assert await driver.release("w1", NOW) == 1
    client.hset("{q}:job:a", "attempt", 2)  # leased and given back by a foreign client
    assert (await take(driver, worker="w2")).lost_by is None
    assert client.hget("{q}:job:a", "th_la") in (None, b"")


@on_store
async def test_a_loss_that_was_reported_is_not_reported_again(driver, client):
    """A foreign client reaps our lease after a release, and leaves no trace: nothing is known of its end."""
    await driver.enqueue([job("a")], NOW)
    await take(driver, worker="w1")
    assert await driver.release("w1", NOW) == 1
    assert (await take(driver, worker="w2")).lost_by == Lost("w1", NOW, NOW)
    client.zrem("{q}:active", "a")
    client.hset("{q}:job:a", mapping={"state": "wait", "lease_token": "", "lock_until_ms": ""})
    client.rpush("{q}:wait", "a")
    assert (await take(driver, worker="w3")).lost_by is None


@on_store
async def test_a_reply_that_was_lost_is_no_lost_execution(driver, client):
    """The repeat of a reserve finds its leases: they began when it was first sent."""
    from taskharbor.drivers.redis.scripts import ScriptCall

    await driver.enqueue([job("a", priority=1)], NOW)
    args: dict[str, Any] = {"queues": ["q"], "lease_ms": 30_000, "limit": 1, "worker": "w", "tokens": ["t"]}
    ((_, _, ((_, _, first),)),) = await driver.store.run(ScriptCall("reserve", now=NOW_MS, **args))
    ((_, _, ((_, _, values),)),) = await driver.store.run(ScriptCall("reserve", now=NOW_MS + 9, repeats=NOW_MS, **args))
    assert len(values) == len(first)  # they say nothing of an execution before
    assert client.hget("{q}:job:a", "th_began") == str(NOW_MS).encode()


# How long a job is kept


@on_store
async def test_a_job_that_is_kept_long_is_not_met_by_every_prune(driver, client):
    await driver.enqueue([job(f"long{number}", keep_for=30 * DAY) for number in range(300)], NOW)
    await driver.enqueue([job("short")], NOW)
    held = await driver.reserve(["q"], NOW, LEASE, 301, "w")
    await driver.settle([Ack(one.lease) for one in held], NOW)
    assert await driver.prune(NOW + HOUR, 100) == 1
    client.config_resetstat()
    assert await driver.prune(NOW + HOUR, 100) == 0
    assert "cmdstat_hmget" not in client.info("commandstats")
    assert await driver.counts(NOW) == {"q": {"done": 300}}
    assert await driver.prune(NOW + 29 * DAY, 1000) == 0
    assert await driver.prune(NOW + 29 * DAY + LEASE, 1000) == 300
    assert not client.exists("{q}:th:kept", "{q}:th:done")


@on_store
async def test_a_kept_job_that_a_flow_needs_goes_when_the_flow_has_ended(driver, client):
    await driver.enqueue([job("a", keep_for=HOUR, flow_id="f")], NOW)
    held = await take(driver)
    await driver.enqueue([job("b", flow_id="f")], NOW)
    await driver.settle([Ack(held.lease)], NOW)
    assert await driver.prune(NOW + DAY, 10) == 0
    assert client.zscore("{q}:th:kept", "a") == float("inf")
    last = await take(driver)
    await driver.settle([Ack(last.lease)], NOW)
    assert await driver.prune(NOW - DAY + HOUR, 10) == 0
    assert await driver.prune(NOW - DAY + HOUR + LEASE, 10) == 1


@on_store
async def test_a_requeued_job_leaves_those_that_are_kept(driver, client):
    await driver.enqueue([job("a", keep_for=HOUR)], NOW)
    await driver.cancel(["a"], NOW)
    assert client.zcard("{q}:th:kept") == 1
    await driver.requeue(["a"], NOW)
    assert not client.exists("{q}:th:kept")
    assert await driver.prune(NOW + 9 * DAY, 10) == 0


# Amending


@on_store
async def test_amending_a_foreign_job(driver, client):
    fields = {"id": "a", "payload": "{}", "state": "wait", "attempt": 0, "max_attempts": 3, "created_ms": NOW_MS}
    client.hset("{q}:job:a", mapping=fields)
    client.rpush("{q}:wait", "a")
    change = Amend(id="a", deliveries=0, edits=0, payload=b"[1]", max_attempts=7, priority=2, timeout=LEASE)
    assert await driver.amend([change], NOW) == [None]
    assert client.hmget("{q}:job:a", "max_attempts", "timeout_ms") == [b"7", b"30000"]
    held = await take(driver)
    assert (held.job.payload, held.job.max_attempts, held.job.priority, held.job.timeout) == (b"[1]", 7, 2, LEASE)


@on_store
async def test_a_job_whose_lease_is_over_is_not_amended_wherever_it_is(driver, client):
    """Another call has moved it to the others that wait: it may still run, and is known by its token."""
    await driver.enqueue([job("a")], NOW)
    await take(driver)
    await driver.enqueue([job("b")], NOW + LEASE)
    assert client.lrange("{q}:wait", 0, -1) == [b"a", b"b"]
    (refused,) = await driver.amend([Amend(id="a", deliveries=1, edits=0, priority=1)], NOW + LEASE)
    assert "under a lease" in str(refused)


@on_store
async def test_amending_far_down_a_long_list_takes_several_scripts(driver, client, monkeypatch):
    await driver.enqueue([job(f"j{number:05}") for number in range(4000)], NOW)
    ids = [f"j{number:05}" for number in range(1900, 2100)]
    changes = [Amend(id=id, deliveries=0, edits=0, priority=1) for id in ids]
    assert await driver.amend(changes, NOW) == [None] * 200
    assert [one.job.id for one in await driver.reserve(["q"], NOW, LEASE, 201, "w")] == [*ids, "j00000"]


# Figures


@pytest.mark.parametrize("kind", ["redis7", "cluster"])
@on_store
async def test_figures_outlive_damage(driver, client, kind):
    rows = [Figures(NOW, "q", {"done": 3}), Figures(NOW, "r", {"done": 1})]
    await driver.add_figures(rows, NOW)
    hour = NOW_MS // 3_600_000
    client.set(f"{{th:fig}}:at:{hour:08}:q", "damaged")
    assert await driver.figures(*EVER) == rows[1:]
    client.hset(f"{{th:fig}}:at:{hour:08}:r", mapping={"0:done": "many", "x": "2", "99:late": "7", b"\xff": 1})
    client.zadd("{th:fig}:hours", {"what is this": 0, b"\xff": 0})
    assert {row.queue for row in await driver.figures(*EVER)} == {"r"}
    await driver.add_figures(rows, NOW)
    assert Figures(NOW, "q", {"done": 3}) in await driver.figures(*EVER)
    client.delete("{th:fig}:hours")
    client.set("{th:fig}:hours", "damaged")
    assert await driver.figures(*EVER) == []
    await driver.add_figures(rows[:1], NOW)
    assert await driver.figures(*EVER) == [Figures(NOW, "q", {"done": 6})]


@on_store
async def test_figures_make_no_queue_known(driver, client):
    await driver.add_figures([Figures(NOW, "q", {"done": 3})], NOW)
    assert await driver.queues() == []
    assert await driver.counts(NOW) == {}
    assert not client.exists("{th}:queues")


@on_store
async def test_what_is_too_old_goes_in_slices(driver, client):
    rows = [Figures(NOW, f"q{number:04}", {"done": 1}) for number in range(1500)]
    await driver.add_figures(rows, NOW)
    assert len(await driver.figures(*EVER)) == 1500
    await driver.add_figures([], NOW + 4 * DAY)
    assert await driver.figures(*EVER) == []
    assert client.zcard("{th:fig}:hours") == 500
    await driver.add_figures([], NOW + 4 * DAY)
    assert client.keys("{th:fig}:*") == [b"{th:fig}:oldest"]


@on_store
async def test_a_job_for_the_last_moment_of_all_is_scheduled(driver, client):
    """Rounded up to milliseconds, `datetime.max` would be a moment that no datetime can hold."""
    await driver.enqueue([job("a", run_at=datetime.max.replace(tzinfo=UTC))], NOW)
    found = await driver.inspect("a", NOW)
    last = datetime.max.replace(microsecond=999_000, tzinfo=UTC)
    assert (found.state, found.job.run_at, await driver.upcoming(["q"], NOW)) == (State.SCHEDULED, last, last)
