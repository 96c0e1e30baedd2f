"""Keys that hold a value of a wrong type, because another program wrote over them: calls go on."""

from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import Ack, JobRecord, WorkerInfo
from tests.drivers.redis_stores import on_quiet_store

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)


def job(id: str, queue: str, **fields) -> JobRecord:
    return JobRecord(id=id, type="t", queue=queue, created_at=NOW, **fields)


async def lives(driver, tag: str) -> None:
    """A plain job and one of a flow go through, in two queues."""
    jobs = [
        job(f"{tag}1", "a"),
        job(f"{tag}2", "b", flow_id=tag),
        job(f"{tag}3", "b", depends_on=(f"{tag}2",), flow_id=tag),
    ]
    await driver.enqueue(jobs, NOW)
    done = []
    while held := await driver.reserve(["a", "b"], NOW, LEASE, 2):
        assert await driver.settle([Ack(each.lease) for each in held], NOW) == [None] * len(held)
        done += [each.job.id for each in held]
    assert sorted(done) == sorted(each.id for each in jobs)


@pytest.mark.parametrize("key", ["{th}:turns", "{th}:queues", "{th}:workers", "{th}:watched"])
@pytest.mark.parametrize("command", [("SET", "junk"), ("RPUSH", "junk")], ids=["text", "list"])
@on_quiet_store
async def test_a_key_of_all_queues(driver, client, key, command):
    await lives(driver, "before")
    client.delete(key)
    client.execute_command(command[0], key, command[1])
    await driver.beat(WorkerInfo(worker="w", queues=("a",), running=0, started_at=NOW), NOW)
    assert [each.worker for each in await driver.workers(NOW)] == ["w"]
    await lives(driver, "after")
    assert set(await driver.counts(NOW)) == {"a", "b"}
    await driver.damaged()
    assert await driver.prune(NOW + timedelta(days=3), 100) == 6


@pytest.mark.parametrize("name", ["th:after:before2", "th:flow:before", "th:flow+:before", "th:parked:before", "flow"])
@on_quiet_store
async def test_a_key_of_one_flow_does_not_stop_prune(driver, client, name):
    await lives(driver, "before")
    key = "{th:flow:before}" if name == "flow" else f"{{b}}:{name}"
    client.delete(key)
    client.set(key, "junk")
    await lives(driver, "after")
    for _ in range(3):
        await driver.prune(NOW + timedelta(days=3), 100)
    left = {info.job.id for info in (await driver.list(now=NOW)).items}
    assert left <= {"before2", "before3"}
