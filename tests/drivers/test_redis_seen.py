"""Changes on condition on Redis: what `inspect` and `list` show is what is compared, also of damaged records and of
jobs that foreign clients ended or revived. A refused job stays as it is, also in a flow over several hash slots."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor.drivers import Ack, Fail, JobRecord, State, WrongState
from taskharbor.drivers.refusals import changed_since
from taskharbor.model.job import Seen
from tests.cost.meter import OWN
from tests.drivers.redis_stores import FIELDS, VALUES, on_quiet_store

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
LEASE = timedelta(seconds=30)
SERVERS = ["redis7", "cluster"]


def job(id: str, **fields: Any) -> JobRecord:
    return JobRecord(**{"id": id, "type": "work", "queue": "q", "created_at": NOW, **fields})


async def seen(driver: Any, id: str) -> Seen:
    """As it is inspected; a page shows the same."""
    found = Seen.of(await driver.inspect(id, NOW))
    assert {Seen.of(one) for one in (await driver.list(now=NOW)).items if one.job.id == id} == {found}
    return found


async def dies(driver: Any, id: str, at: datetime = NOW) -> None:
    (held,) = await driver.reserve(["q"], at, LEASE, 1, "w")
    assert held.job.id == id
    assert await driver.settle([Fail(held.lease, "no", 1, at)], at) == [None]


async def refused(driver: Any, id: str, read: Seen) -> None:
    """By each of the three, and nothing of it changes."""
    before = await driver.inspect(id, NOW)
    for answers in (
        await driver.requeue([id], NOW, seen=[read]),
        await driver.cancel([id], NOW, seen=[read]),
        await driver.delete([id], seen=[read]),
    ):
        (error,) = answers
        assert (type(error), str(error)) == (WrongState, str(changed_since(id)))
    assert await driver.inspect(id, NOW) == before


def revive(client: Any) -> None:
    """What retry_failed of a foreign client does."""
    client.lrem("{q}:failed", 1, "a")
    client.hset("{q}:job:a", mapping={"state": "wait", "attempt": 0, "due_ms": "", "updated_ms": NOW_MS + 10})
    client.rpush("{q}:wait", "a")


def fail(client: Any, at: int) -> None:
    """What a reserve and an ack_fail of a foreign client do, at the last attempt."""
    client.lrem("{q}:wait", 1, "a")
    client.hincrby("{q}:job:a", "attempt", 1)
    client.hset("{q}:job:a", mapping={"state": "failed", "updated_ms": at, "last_error": "theirs", "lease_token": ""})
    client.lpush("{q}:failed", "a")


@pytest.mark.parametrize("server", SERVERS)
@on_quiet_store
async def test_a_job_that_another_operator_requeued_and_that_died_again_is_left_alone(driver, client, server):
    await driver.enqueue([job("a")], NOW)
    await dies(driver, "a")
    read = await seen(driver, "a")
    assert await driver.requeue(["a"], NOW, seen=[read]) == [None]
    await refused(driver, "a", read)
    await dies(driver, "a")
    await refused(driver, "a", read)
    assert await driver.delete(["a"], seen=[await seen(driver, "a")]) == [None]


@pytest.mark.parametrize("server", SERVERS)
@on_quiet_store
async def test_jobs_that_foreign_clients_failed(driver, client, server):
    """They have no `th_fin`, or one of an earlier end."""
    fields = {"id": "a", "payload": "{}", "state": "wait", "attempt": 0, "max_attempts": 1, "created_ms": NOW_MS}
    client.hset("{q}:job:a", mapping=fields)
    client.rpush("{q}:wait", "a")
    fail(client, NOW_MS)
    read = await seen(driver, "a")
    assert read == Seen(1, 0, NOW)
    await refused(driver, "a", Seen(1, 0, None))
    assert await driver.requeue(["a"], NOW, seen=[read]) == [None]
    assert await driver.cancel(["a"], NOW, seen=[await seen(driver, "a")]) == [None]
    assert await driver.delete(["a"], seen=[Seen(1, 0, NOW)]) == [None]


@pytest.mark.parametrize("server", SERVERS)
@on_quiet_store
async def test_a_dead_job_that_a_foreign_client_revived(driver, client, server):
    """Its deliveries are the same again once the other client has leased it, and `th_fin` is still there."""
    await driver.enqueue([job("a")], NOW)
    await dies(driver, "a")
    read = await seen(driver, "a")
    assert read == Seen(1, 0, NOW)
    revive(client)
    assert (await driver.inspect("a", NOW)).job.finished_at is None
    await refused(driver, "a", read)
    fail(client, NOW_MS + 20)
    again = await driver.inspect("a", NOW)
    assert (again.state, again.job.deliveries, again.job.reason) == (State.DLQ, 1, "theirs")
    await refused(driver, "a", read)
    assert await driver.requeue(["a"], NOW, seen=[await seen(driver, "a")]) == [None]


@pytest.mark.parametrize("kind", [None, *VALUES])
@pytest.mark.parametrize("server", SERVERS)
@on_quiet_store
async def test_a_damaged_record_is_compared_as_it_is_shown(driver, client, server, kind):
    names = sorted({"th_att", "th_off", "updated_ms", *FIELDS.values()} - {"payload"})
    ends: dict[str, Any] = {"done": Ack, "dead": lambda lease: Fail(lease, "no", 1, NOW)}
    ids = {f"{end}-{name}": name for end in (*ends, "cancelled", "waiting") for name in names}
    await driver.enqueue([job(id) for id in ids], NOW)
    for one in await driver.reserve(["q"], NOW, LEASE, len(names) * len(ends), "w"):
        assert await driver.settle([ends[one.job.id.split("-")[0]](one.lease)], NOW) == [None]
    await driver.cancel([id for id in ids if id.startswith("cancelled")], NOW)
    for id, name in ids.items():
        if kind is None:
            client.hdel(f"{{q}}:job:{id}", name)
        else:
            client.hset(f"{{q}}:job:{id}", name, VALUES[kind])
    infos = {one.job.id: one for one in (await driver.list(now=NOW, limit=1000)).items}
    assert infos.keys() == ids.keys()
    read = [Seen.of(infos[id]) for id in ids]
    later = [Seen(one.deliveries, one.edits, NOW + LEASE) for one in read]
    assert {str(error) for error in await driver.delete(list(ids), seen=later)} == {
        str(changed_since(id)) for id in ids
    }
    assert await driver.delete(list(ids), seen=read) == [None] * len(ids)


@pytest.mark.parametrize("server", SERVERS)
@on_quiet_store
async def test_a_refused_job_of_a_flow_over_several_hash_slots_stays_as_it_is(driver, client, server):
    first, then = job("a", flow_id="f"), job("b", queue="other", depends_on=("a",), flow_id="f")
    await driver.enqueue([first, then], NOW)
    await dies(driver, "a")
    await driver.cancel(["b"], NOW)
    read = {id: await seen(driver, id) for id in "ab"}
    before = await driver.flow("f", NOW)
    stale = [Seen(9), Seen(0, 1, NOW)]
    assert [str(error) for error in await driver.requeue(["a", "b"], NOW, seen=stale)] == [
        str(changed_since(id)) for id in "ab"
    ]
    assert await driver.flow("f", NOW) == before
    answers = await driver.requeue(["b", "a", "b"], NOW, seen=[read["b"], read["a"], read["b"]])
    assert answers[:2] == [None, None]
    assert str(answers[2]) == str(changed_since("b"))
    assert [str(one.state) for one in (await driver.flow("f", NOW)).nodes] == ["ready", "blocked"]


@pytest.mark.parametrize("server", SERVERS)
@on_quiet_store
async def test_the_order_of_refusals_and_what_no_job_can_have(driver, client, server):
    await driver.enqueue([job("a"), job("b")], NOW)
    read = await seen(driver, "a")
    unknown, changed, wrong = await driver.requeue(
        ["nobody", "a", "b"], NOW, seen=[read, Seen(2**70), Seen.of(await driver.inspect("b", NOW))]
    )
    assert [str(unknown), str(changed)] == ["no job nobody", str(changed_since("a"))]
    assert "is ready" in str(wrong)
    micros = timedelta(microseconds=1)
    for moment in (NOW, NOW + micros, NOW.replace(tzinfo=None), datetime(1970, 1, 1, tzinfo=UTC)):
        await refused(driver, "a", Seen(0, 0, moment))
    await refused(driver, "a", Seen(-1))
    await refused(driver, "a", Seen(0, -1))
    for seens in ([], [read], [read] * 3):
        for call in (
            driver.requeue(["a", "b"], NOW, seen=seens),
            driver.cancel(["a", "b"], NOW, seen=seens),
            driver.delete(["a", "b"], seen=seens),
        ):
            with pytest.raises(ValueError, match="seen: expected one for each"):
                await call
    assert await driver.counts(NOW) == {"q": {"ready": 2}}
    assert await driver.cancel([], NOW, seen=[]) == []


@on_quiet_store
async def test_a_condition_costs_one_command_at_most(driver, client):
    """Only of a job that ended: it is read when."""
    await driver.enqueue([job(f"{number:02}") for number in range(50)], NOW)
    for _ in range(20):
        (held,) = await driver.reserve(["q"], NOW, LEASE, 1, "w")
        await driver.settle([Fail(held.lease, "no", 1, NOW)], NOW)
    costs = []
    for first, condition in ((0, [Seen(1, 0, NOW)] * 10), (10, None), (20, [Seen(0)] * 10), (30, None)):
        ids = [f"{number:02}" for number in range(first, first + 10)]
        client.config_resetstat()
        assert await driver.delete(ids, **({"seen": condition} if condition else {})) == [None] * 10
        stats = {name.removeprefix("cmdstat_"): one["calls"] for name, one in client.info("commandstats").items()}
        costs.append(sum(calls for name, calls in stats.items() if not name.startswith(OWN)))
    assert costs[0] == costs[1] + 10
    assert costs[2] == costs[3]
