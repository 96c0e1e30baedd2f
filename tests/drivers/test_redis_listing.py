"""Listings of the Redis driver in a store that holds much: what a call looks at, and where it finds it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor import Count, Harbor
from taskharbor.drivers import Ack, Fail, JobRecord, State
from taskharbor.drivers.redis import flows, job_pages, reading
from tests.drivers.redis_stores import live, on_quiet_store, on_store, visit_all

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
KINDS = pytest.mark.parametrize("kind", ["redis7", "cluster"])


def job(id: str, **fields: Any) -> JobRecord:
    return JobRecord(**{"id": id, "type": "work", "queue": "q", "created_at": NOW, **fields})


async def pages(driver: Any, limit: int = 100, **wanted: Any) -> list[list[str]]:
    """The ids of each page, to the end."""
    found, cursor = [], None
    while True:
        page = await driver.list(now=NOW, limit=limit, cursor=cursor, **wanted)
        found.append([info.job.id for info in page.items])
        if page.cursor is None:
            return found
        cursor = page.cursor


async def listed(driver: Any, limit: int = 100, **wanted: Any) -> list[str]:
    return [id for page in await pages(driver, limit, **wanted) for id in page]


def counted(driver: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each script reads, from now on."""
    reads: list[int] = []
    run = driver.store.endpoint.run

    async def counting(args: Any, **more: Any) -> Any:
        if args.script == "read_jobs":
            reads.append(len(args.arguments["jobs"]))
        return await run(args, **more)

    monkeypatch.setattr(driver.store.endpoint, "run", counting)
    return reads


async def finish(driver: Any, number: int, queue: str = "q") -> None:
    held = await driver.reserve([queue], NOW, LEASE, number, "w")
    assert await driver.settle([Ack(one.lease) for one in held], NOW) == [None] * number


async def each_state(driver: Any) -> dict[State, list[str]]:
    """Some jobs in each state, beside many that are done; which those are."""
    await driver.enqueue([job(f"done{number:05}") for number in range(2000)], NOW)
    for _ in range(4):
        await finish(driver, 500)
    later = NOW + timedelta(hours=1)
    await driver.enqueue([job(f"dead{number}") for number in range(5)], NOW)
    held = await driver.reserve(["q"], NOW, LEASE, 5, "w")
    await driver.settle([Fail(one.lease, "no", 1, NOW) for one in held], NOW)
    await driver.enqueue([job(f"held{number}") for number in range(5)], NOW)
    await driver.reserve(["q"], NOW, LEASE, 5, "w")
    await driver.enqueue([job(f"late{number}", run_at=later) for number in range(5)], NOW)
    await driver.enqueue([job(f"wait{number}", depends_on=("late0",)) for number in range(5)], NOW)
    await driver.enqueue([job(f"gone{number}") for number in range(5)], NOW)
    await driver.cancel([f"gone{number}" for number in range(5)], NOW)
    names = {State.DLQ: "dead", State.INFLIGHT: "held", State.SCHEDULED: "late", State.BLOCKED: "wait"}
    names[State.CANCELLED] = "gone"
    return {state: [f"{name}{number}" for number in range(5)] for state, name in names.items()}


@KINDS
@on_store
async def test_a_state_that_few_jobs_are_in_costs_what_these_cost(driver, client, kind, monkeypatch):
    """The done jobs beside them are not looked at, in either order and with a filter on top."""
    states = await each_state(driver)
    reads = counted(driver, monkeypatch)
    for state, ids in states.items():
        assert await listed(driver, state=state) == ids
        assert await listed(driver, 2, state=state, order="-id", queue="q") == ids[::-1]
        assert await listed(driver, state=state, type="work") == ids
        assert await listed(driver, state=state, type="other") == []
    assert sum(reads) <= 5 * 5 * 4 + 5 * 9, reads


@on_store
async def test_a_foreign_dead_job_is_among_them(driver, client):
    await each_state(driver)
    client.hset("{q}:job:dead2x", mapping={"id": "dead2x", "payload": "{}", "state": "failed", "attempt": 3})
    client.lpush("{q}:failed", "dead2x")
    assert await listed(driver, state="dlq") == ["dead0", "dead1", "dead2", "dead2x", "dead3", "dead4"]


def test_more_in_a_state_than_a_call_may_look_at(monkeypatch):
    """The index is walked instead, and a call ends with a cursor behind the last job it looked at."""
    monkeypatch.setattr(job_pages, "MAX_SCANNED_JOBS", 300)
    monkeypatch.setattr(job_pages, "FEW_JOBS", 10)

    async def story(driver, client):
        jobs = [job(f"j{number:04}", queue=f"q{number % 3}", run_at=NOW + LEASE) for number in range(1200)]
        await driver.enqueue(jobs, NOW)
        await driver.enqueue([job("j0600x", queue="other", run_at=NOW + LEASE)], NOW)
        ids = sorted([one.id for one in jobs] + ["j0600x"])
        reads = counted(driver, monkeypatch)
        found = await pages(driver, 1000, state="scheduled")
        assert [id for page in found for id in page] == ids
        assert max(map(len, found)) <= 300
        assert await listed(driver, 1000, state="scheduled", order="-id") == ids[::-1]
        reads.clear()
        assert (await driver.list(now=NOW, state="scheduled", type="other")).cursor is not None
        assert 0 < sum(reads) <= 300
        assert await listed(driver, state="scheduled", type="other") == []

    live(story)


def commands(client: Any) -> int:
    """How many the server ran since `config_resetstat`, also inside scripts."""
    return sum(each["calls"] for each in client.info("commandstats").values())


@pytest.fixture
def among_many(monkeypatch):
    """Bounds by which the dead jobs of the store below are more than one call may look at."""
    monkeypatch.setattr(job_pages, "MAX_SCANNED_JOBS", 100)
    monkeypatch.setattr(job_pages, "FEW_JOBS", 10)


async def dead_among_many(driver: Any, queues: int = 4) -> list[str]:
    """Per queue 75 dead jobs before and after 500 that wait; the ids of the dead ones."""
    dead: list[str] = []
    for name in (f"q{number}" for number in range(queues)):
        await driver.enqueue([job(f"{number:04}-{name}", queue=name) for number in range(575)], NOW)
        held = await driver.reserve([name], NOW, LEASE, 75, "w")
        assert not any(await driver.settle([Fail(one.lease, "no", 3, NOW, fingerprint="f") for one in held], NOW))
        dead += [one.job.id for one in held]
    return sorted(dead)


def test_few_dead_jobs_among_many_cost_a_command_each(among_many):
    """Also if they are more than one call may look at: then no page of them is looked for among all jobs."""

    async def story(driver, client):
        dead = await dead_among_many(driver)
        for order in ("id", "-id"):
            client.config_resetstat()
            assert sorted(await listed(driver, 100, state="dlq", order=order, payloads=False)) == dead
            assert commands(client) <= 3 * len(dead)
        client.config_resetstat()
        assert len((await driver.list(now=NOW, state="dlq", limit=1)).items) == 1
        assert commands(client) <= 60
        harbor = Harbor(driver)
        client.config_resetstat()
        assert (await harbor.dead().asummary()).jobs == len(dead)
        assert commands(client) <= 3 * len(dead)
        client.config_resetstat()
        assert await harbor.jobs(state="dlq").acount() == Count(len(dead), False)
        assert await harbor.jobs(state="dlq").acount(10) == Count(10, True)
        assert await harbor.jobs(state="dlq", queue="q1").acount() == Count(len(dead) // 4, False)
        assert await harbor.jobs(queue="none").acount() == Count(0, False)
        assert commands(client) <= len(dead)

    live(story)


def test_a_walk_sends_no_record_in_another_state(among_many, monkeypatch):
    monkeypatch.setattr(job_pages, "MAX_STATE_IDS", 100)

    async def story(driver, client):
        dead = await dead_among_many(driver, 2)
        client.config_resetstat()
        before = client.info("stats")["total_net_output_bytes"]
        assert await listed(driver, 100, state="dlq", payloads=False) == dead
        assert client.info("stats")["total_net_output_bytes"] - before < 400_000  # all records have a million

    live(story)


@KINDS
@on_store
async def test_a_page_over_many_queues_fetches_a_few_ids_of_each(driver, client, kind, monkeypatch):
    jobs = [job(f"j{number:04}", queue=f"q{number % 40:02}") for number in range(800)]
    for first in range(0, 800, 100):
        await driver.enqueue(jobs[first : first + 100], NOW)
    run, fetched = driver.store.endpoint.run, list[int]()

    async def counting(args: Any, **more: Any) -> Any:
        reply = await run(args, **more)
        if args.script == "list_ids":
            fetched.append(sum(len(ids) for ids, _, _, _ in reply))
        return reply

    monkeypatch.setattr(job_pages, "MAX_SCANNED_JOBS", 400)
    monkeypatch.setattr(driver.store.endpoint, "run", counting)
    for order in ("id", "-id"):
        fetched.clear()
        page = await driver.list(now=NOW, order=order, limit=50)
        ids = [info.job.id for info in page.items]
        assert ids == sorted((one.id for one in jobs), reverse=order == "-id")[:50]
        assert sum(fetched) <= 400
        assert await listed(driver, 97, order=order) == sorted((one.id for one in jobs), reverse=order == "-id")


@on_store
async def test_payloads_are_not_fetched_unless_asked_for(driver, client):
    await driver.enqueue([job(f"j{number}", payload=b"x" * 100_000) for number in range(20)], NOW)
    await finish(driver, 10)
    client.config_resetstat()
    before = client.info("stats")["total_net_output_bytes"]
    assert len(await listed(driver, payloads=False)) == 20
    assert client.info("stats")["total_net_output_bytes"] - before < 100_000
    (first, *_) = (await driver.list(now=NOW, limit=1)).items
    assert len(first.job.payload) == 100_000


# Very many queues


@on_store
async def test_queues_with_a_job_each_are_counted_by_few_commands(driver, client):
    """One for its name and three for its counts, instead of one for every key that a queue may have."""
    await driver.enqueue([job(f"j{number}", queue=f"tenant-{number:03}") for number in range(200)], NOW)
    await driver.pause("tenant-003")
    for each, asked in ((1, driver.queues), (3, lambda: driver.counts(NOW))):
        client.config_resetstat()
        assert len(await asked()) == 200
        assert commands(client) <= each * 200 + 50


@on_store
async def test_a_queue_whose_jobs_wait_in_groups_is_used(driver, client):
    await driver.enqueue([job("a", group="g"), job("b", queue="gone", group="g")], NOW)
    await driver.pause("idle")
    await driver.delete(["b"])
    assert await driver.queues() == ["idle", "q"]
    await driver.resume("idle")
    client.zadd("{gone}:groups:ready", {"g": 1})  # a place of a group without a job
    assert await driver.queues() == ["q"]


@on_store
async def test_a_page_over_very_many_queues_takes_few_scripts(driver, client):
    await driver.enqueue([job(f"j{number:03}", queue=f"tenant-{number:03}") for number in range(200)], NOW)
    client.config_resetstat()
    page = await driver.list(now=NOW, limit=20)
    assert [info.job.id for info in page.items] == [f"j{number:03}" for number in range(20)]
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] <= 12


# Flows


@KINDS
@on_store
async def test_the_status_of_a_large_flow_follows_its_jobs(driver, client, kind, monkeypatch):
    """It is kept beside them, so that no listing reads them all; `flow` reads them."""
    await check_large_flows(driver)


async def check_large_flows(driver: Any) -> None:
    """A flow in two queues goes through every status, and is listed as `flow` reads it."""
    ids = {queue: [f"{queue}{number:02}" for number in range(20)] for queue in ("a", "b")}
    made = [job(id, queue=queue, flow_id="f") for queue, some in ids.items() for id in some]
    first = job("0first", queue="a", flow_id="f", created_at=NOW - LEASE)
    await driver.enqueue([*made, first, job("z", queue="b", flow_id="f", created_at=NOW + LEASE)], NOW)

    async def check(status: str) -> None:
        (found,) = (await driver.flows(now=NOW)).items
        whole = await driver.flow("f", NOW)
        assert (found.status, whole.status) == (status, status)
        assert (found.created_at, found.updated_at) == (NOW - LEASE, NOW + LEASE)
        assert [one.id for one in (await driver.flows(now=NOW, status=status)).items] == ["f"]

    await check("running")
    held = {one.job.id: one.lease for one in await driver.reserve(["a", "b"], NOW, LEASE, 100, "w")}
    assert len(held) == 42
    await driver.settle([Fail(held.pop("a07"), "no", 1, NOW)], NOW)
    await check("failed")
    assert await driver.requeue(["a07"], NOW) == [None]
    await check("running")
    assert await driver.cancel(["a07", "b03"], NOW) == [None, None]
    held.pop("b03")
    await check("cancelled")
    assert await driver.settle([Ack(lease) for lease in held.values()], NOW) == [None] * len(held)
    await check("cancelled")
    assert await driver.requeue(["a07", "b03"], NOW) == [None, None]
    await check("running")
    await finish(driver, 1, "a")
    await finish(driver, 1, "b")
    await check("succeeded")
    assert await driver.delete(["a00", "b00"]) == [None, None]
    await check("succeeded")
    assert await driver.prune(NOW + LEASE, 1000) == 40
    assert (await driver.flows(now=NOW)).items == ()


@on_store
async def test_a_flow_whose_indexes_are_gone_is_listed_once_a_sweep_has_met_it(driver, client):
    """Another program removed them. While some of its jobs are not known yet, the flow never looks done."""
    await driver.enqueue([job(f"a{number:02}", flow_id="f") for number in range(30)], NOW)
    client.delete("{q}:th:flows", "{q}:th:steps:f")
    held = await driver.reserve(["q"], NOW, LEASE, 10, "w")
    await driver.settle([Ack(one.lease) for one in held], NOW)
    assert (await driver.flows(now=NOW)).items == ()
    client.zadd("{q}:th:flows", {"f": 0})
    (found,) = (await driver.flows(now=NOW)).items
    assert found.status == "running"
    client.delete("{q}:th:flows", "{q}:th:steps:f")
    await driver.opened.sweeper.sweep("q", 0)
    (found,) = (await driver.flows(now=NOW)).items
    assert found.status == "running"
    assert client.zcard("{q}:th:steps:f") == 30
    marked = client.zrange("{q}:th:steps:f", 0, -1, withscores=True)
    while held := await driver.reserve(["q"], NOW, LEASE, 10, "w"):
        await driver.settle([Ack(one.lease) for one in held], NOW)
    client.zadd("{q}:th:steps:f", dict(marked))  # as if nothing had marked the acks
    (found,) = (await driver.flows(now=NOW)).items
    assert found.status == "succeeded"


@on_quiet_store
async def test_a_large_flow_that_others_changed_is_corrected(driver, client):
    """A foreign client ends a job and deletes another without saying so."""
    await driver.enqueue([job(f"a{number:02}", flow_id="f") for number in range(30)], NOW)
    client.hset("{q}:job:a03", "state", "failed")
    assert (await driver.flows(now=NOW)).items[0].status == "running"
    await visit_all(driver.store, ["q"], 0)
    assert (await driver.flows(now=NOW)).items[0].status == "failed"
    client.hset("{q}:job:a03", "state", "wait")
    await visit_all(driver.store, ["q"], 0)
    assert (await driver.flows(now=NOW)).items[0].status == "running"
    client.delete("{q}:job:a00")
    client.hset("{q}:job:a01", "created_ms", 1_000)
    assert (await driver.flows(now=NOW)).items[0].created_at.year == 1970


def test_more_flows_than_a_call_may_look_at(monkeypatch):
    monkeypatch.setattr(flows, "MAX_SCANNED_FLOWS", 20)

    async def story(driver, client):
        jobs = [
            job(f"{queue}{number:02}", queue=queue, flow_id=f"f{number:02}") for number in range(50) for queue in "ab"
        ]
        await driver.enqueue(jobs, NOW)
        for order in ("id", "-id"):
            found, cursor, calls = list[str](), None, 0
            while True:
                page = await driver.flows(now=NOW, order=order, cursor=cursor)
                found += [one.id for one in page.items]
                assert len(page.items) <= 20
                cursor, calls = page.cursor, calls + 1
                if cursor is None:
                    break
            assert found == sorted({one.flow_id for one in jobs if one.flow_id}, reverse=order == "-id")
            assert calls >= 3

    live(story)


@KINDS
def test_a_large_store_is_searched_for_queues_a_part_in_each_call(kind, monkeypatch):
    """Whatever it holds, no call walks all keys; a queue that only foreign clients use is found all the same."""
    monkeypatch.setattr(reading, "SMALL_STORE_KEYS", 50)
    monkeypatch.setattr(reading, "SCAN_COUNT", 10)
    monkeypatch.setattr(reading, "MAX_WALK_STEPS", 4)

    async def story(driver, client):
        await driver.enqueue([job(f"j{number:04}", queue="own") for number in range(300)], NOW)
        for number in range(2):
            client.hset(f"{{foreign}}:job:{number}", "state", "wait")
        step, steps = driver.store.endpoint.scan_step, 0

        async def counting(*args: Any) -> Any:
            nonlocal steps
            steps += 1
            return await step(*args)

        monkeypatch.setattr(driver.store.endpoint, "scan_step", counting)
        names, calls = set[str](), 0
        while "foreign" not in names or steps == 4:
            steps, calls = 0, calls + 1
            names = set(await driver.reader.queues())
            assert "own" in names
            assert steps <= 4
            assert calls < 200
        assert names == {"own", "foreign"}
        assert calls > 1
        steps = 0
        await driver.reader.queues()
        assert steps == 0, "it rests after a whole walk"

    live(story, kind)


@on_quiet_store
async def test_limits_of_groups_do_not_bring_back_a_forgotten_queue(driver, client):
    await driver.enqueue([job("j", group="g", group_limit=1)], NOW)
    await finish(driver, 1)
    assert await driver.prune(NOW + timedelta(days=3), 10) == 1
    assert await driver.reader.queues() == []
    assert not client.zrange("{th}:queues", 0, -1)
    assert client.get("{q}:g:g:limit") == b"1"
