"""Who waits for whom: what a transaction that stays open costs the calls beside it, one at a time."""

import asyncio
import re
from datetime import timedelta

import psycopg
import pytest

from taskharbor.drivers import Ack, Amend, BackendUnavailable, Cancelled, Fail, JobNotFound, JobRecord, Lease, Retry
from taskharbor.drivers.postgres import admin, schema
from taskharbor.drivers.postgres.tries import JobLocked
from tests.drivers.postgres_recount import mistakes
from tests.drivers.postgres_stores import emptied, open_transaction, opened, store_test

pytestmark = pytest.mark.lane("locks-postgres")
LEASE = timedelta(hours=1)

KINDS = ("ack", "fail", "cancelled", "spawn", "handover")


def ending(kind, lease, now):
    if kind == "fail":
        return Fail(lease, "no", 1, now)
    if kind == "cancelled":
        return Cancelled(lease, "no")
    if kind == "spawn":
        return Ack(lease, None, (JobRecord(id="new", type="t"),))
    if kind == "handover":
        return Ack(lease, None, (JobRecord(id="new", type="t"),), "new")
    return Ack(lease)


@pytest.mark.parametrize("kind", KINDS)
@store_test()
async def test_an_open_transaction_costs_only_the_job_it_depends_on(address, driver, kind):
    now = await driver.server_time()
    await driver.enqueue([JobRecord(id=f"j{n}", type="t") for n in range(10)], now)
    held = [each.lease for each in await driver.reserve(["default"], now, LEASE, 10)]
    later = now + timedelta(minutes=1)
    async with open_transaction(address, driver, JobRecord(id="n", type="t", depends_on=("j4",))) as connection:
        assert all(isinstance(answer, Lease) for answer in await driver.extend(held, later, LEASE))
        answers = await driver.settle(
            [ending(kind if lease.job_id == "j4" else "ack", lease, later) for lease in held], later
        )
        assert [type(answer) for answer in answers if answer is not None] == [JobLocked]
        assert isinstance(answers[4], BackendUnavailable)
        # Nothing of it was stored, and no other call waits; nor does this one, if the job is only given back.
        assert (await driver.inspect("j4", later)).state == "inflight"
        with pytest.raises(JobNotFound):
            await driver.inspect("new", later)
        assert isinstance((await driver.extend(held[4:5], later, 2 * LEASE))[0], Lease)
        await connection.commit()
    assert await driver.settle([ending(kind, held[4], later)], later) == [None]
    assert (await driver.counts(later))["default"].get("inflight", 0) == 0
    assert mistakes(address) == []


@store_test()
async def test_an_open_transaction_does_not_hold_back_a_retry(address, driver):
    """It keeps the job from being finished, and it is not."""
    now = await driver.server_time()
    await driver.enqueue([JobRecord(id="j", type="t")], now)
    (held,) = await driver.reserve(["default"], now, LEASE, 1, "w")
    async with open_transaction(address, driver, JobRecord(id="n", type="t", depends_on=("j",))):
        assert await driver.settle([Retry(held.lease, None, 1)], now) == [None]
        assert len(await driver.reserve(["default"], now, LEASE, 1, "w")) == 1
        assert await driver.release("w", now) == 1


@store_test()
async def test_a_handover_to_a_job_that_is_being_ended_does_not_wait(address, driver):
    """Whether `end`, which has the place of `known`, will be there, done, or have handed over is not known yet."""
    now = await driver.server_time()
    await driver.enqueue([JobRecord(id="known", type="t")], now)
    (known,) = await driver.reserve(["default"], now, LEASE, 1)
    end = JobRecord(id="end", type="t", run_at=now + LEASE)
    assert await driver.settle([Ack(known.lease, None, (end,), "end")], now) == [None]
    await driver.enqueue([JobRecord(id="j", type="t"), JobRecord(id="late", type="t", depends_on=("j",))], now)
    (held,) = await driver.reserve(["default"], now, LEASE, 1)
    handover = Ack(held.lease, None, (known.job,), "known")
    async with await psycopg.AsyncConnection.connect(address) as other:
        await other.execute("select from taskharbor.jobs where id = 'end' for update")
        (answer,) = await driver.settle([handover], now)
        assert isinstance(answer, JobLocked)
        assert "needs job end" in str(answer)
        assert (await driver.inspect("j", now)).state == "inflight"
        await other.rollback()
    assert await driver.settle([handover], now) == [None]
    assert (await driver.inspect("late", now)).waiting_for == ("end",)
    assert mistakes(address) == []


@store_test()
async def test_a_locked_job_does_not_delay_the_others_of_a_call(address, driver, monkeypatch):
    monkeypatch.setattr(admin, "ADMIN_S", 0.01)
    now = await driver.server_time()
    await driver.enqueue([JobRecord(id=f"j{n}", type="t", flow_id="f") for n in range(6)], now)
    async with open_transaction(address, driver, JobRecord(id="n", type="t", depends_on=("j1",))) as connection:
        for decide, ids in (
            (lambda ids: driver.cancel(ids, now), ["j2", "j1", "j0"]),
            (lambda ids: driver.delete(ids), ["j3", "j1", "j0"]),
        ):
            assert [type(answer) for answer in await decide(ids)] == [type(None), JobLocked, type(None)]
        changes = [Amend(id=id, deliveries=0, edits=0, priority=3) for id in ("j4", "j1")]
        assert await driver.amend(changes, now) == [None, None], "the open transaction needs only the id"
        with pytest.raises(BackendUnavailable, match=r"flow f: cancelled 2 job\(s\), but 1 more"):
            await driver.cancel_flow("f", now)
        await connection.rollback()
    assert await driver.cancel_flow("f", now) == 1


@store_test()
async def test_a_cancel_of_a_flow_that_stops_says_how_far_it_came(address, driver, monkeypatch):
    """It goes on in transactions of a thousand jobs, and the first one sets the flag."""
    now = await driver.server_time()
    await driver.enqueue([JobRecord(id=f"j{n:04}", type="t", flow_id="f") for n in range(2001)], now)
    call, calls = driver._call, list[str]()

    async def call_twice(function, *given, **how):
        calls.append(function)
        if len(calls) == 3:
            raise BackendUnavailable("away")
        return await call(function, *given, **how)

    with monkeypatch.context() as patch:
        patch.setattr(driver, "_call", call_twice)
        with pytest.raises(BackendUnavailable, match=r"flow f: cancelled 2000 job\(s\), then: away; cancel it again"):
            await driver.cancel_flow("f", now)
    assert set(calls) == {"cancel_flow(text, bigint, text)"}
    await driver.enqueue([JobRecord(id="late", type="t", flow_id="f")], now)
    assert [(await driver.inspect(id, now)).state for id in ("late", "j2000")] == ["cancelled", "ready"]
    assert await driver.cancel_flow("f", now) == 1
    assert mistakes(address) == []


@store_test()
async def test_two_requeues_bring_back_what_waits_for_both(address, driver):
    """If each saw the other's job as cancelled, both would leave the job behind the two: the later one comes again."""
    now = await driver.server_time()
    ends = [JobRecord(id=id, type="t", flow_id="f") for id in "ab"]
    await driver.enqueue([*ends, JobRecord(id="c", type="t", flow_id="f", depends_on=("a", "b"))], now)
    assert await driver.cancel(["a", "b"], now) == [None, None]
    async with await psycopg.AsyncConnection.connect(address) as other:
        await other.execute(b"select taskharbor.requeue_v1('[\"a\"]', 0, null, false, null)")
        early = await driver.requeue(["b"], now)
        await other.commit()
    if early != [None]:
        assert await driver.requeue(["b"], now) == [None]
    await driver.prune(now, 100)
    assert (await driver.inspect("c", now)).state == "blocked"
    assert mistakes(address) == []


@pytest.mark.parametrize("first", ["prune", "delete", "requeue"])
@store_test()
async def test_requeue_beside_the_end_of_its_dependency(address, driver, first):
    """A cancelled job that is requeued waits for a dependency that is there, or for none: never for one that is
    forgotten at that moment."""
    calls = {
        "prune": "select taskharbor.prune_v1({later}, {later}, 100)",
        "delete": "select taskharbor.delete_jobs_v1('[\"x\"]', null)",
        "requeue": "select taskharbor.requeue_v1('[\"y\"]', {later}, null, false, null)",
    }
    now = await driver.server_time()
    later = round(now.timestamp() * 1000) * 1000 + 60_000_000
    await driver.enqueue(
        [JobRecord(id="x", type="t"), JobRecord(id="y", type="t", depends_on=("x",))],
        now,
    )
    assert await driver.cancel(["x", "y"], now) == [None, None]
    async with await psycopg.AsyncConnection.connect(address) as one, opened(address):
        await one.execute("update taskharbor.history set finished_at = finished_at + 120000000 where id = 'y'")
        await one.commit()
        told = await (await one.execute(calls[first].format(later=later).encode())).fetchone()
        async with await psycopg.AsyncConnection.connect(address) as two:
            await two.execute("set statement_timeout = '20s'")
            if first == "requeue":
                assert told == ([None],)
                assert await (await two.execute(calls["prune"].format(later=later).encode())).fetchone() == (0,)
                row = await (await two.execute(calls["delete"].encode())).fetchone()
                assert row == (["locked"],)
            else:
                row = await (await two.execute(calls["requeue"].format(later=later).encode())).fetchone()
                assert row == (["locked"],)
        await one.commit()
    if first != "requeue":
        assert await driver.requeue(["y"], now) == [None]
    assert (await driver.inspect("y", now)).state == ("blocked" if first == "requeue" else "ready")
    assert mistakes(address) == []


# Flows, and stores that share a database


def flows_of(name, number):
    return [JobRecord(id=f"{name}{n}", type="t", flow_id=f"{name} flow {n}") for n in range(number)]


@pytest.mark.parametrize("number", [1, 60, 200])
def test_cancelling_a_flow_blocks_no_other_flow(number, monkeypatch):
    """An open transaction adds to many flows; another flow is cancelled, and jobs are stored into others still, however
    many of them; also while another call waits to cancel a flow of that transaction."""
    monkeypatch.setattr(admin, "ADMIN_S", 0.01)
    address = f"{emptied()}?statement_timeout=20s"

    async def scenario():
        async with opened(address) as (driver,):
            now = await driver.server_time()
            await driver.enqueue(flows_of("other", 2), now)
            async with open_transaction(address.partition("?")[0], driver, *flows_of("own", number)) as connection:
                if number <= 64:
                    assert await driver.cancel_flow("other flow 0", now) == 1
                    waiting = asyncio.create_task(driver.cancel_flow("own flow 0", now))
                    await until(driver, "select 1 from pg_locks where locktype = 'advisory' and not granted")
                else:
                    with pytest.raises(BackendUnavailable):
                        await driver.cancel_flow("other flow 0", now)
                await driver.enqueue(flows_of("third", 1), now)
                await driver.enqueue(flows_of("many", 100), now)
                await connection.commit()
            if number <= 64:
                assert await waiting == 1
            assert await driver.cancel_flow("own flow 0", now) == (0 if number <= 64 else 1)

    asyncio.run(scenario())


async def until(driver, query):
    async with asyncio.timeout(60):
        while not await driver._execute(query):
            await asyncio.sleep(0)


def test_stores_in_one_database_do_not_wait_for_each_other():
    address = emptied()
    call = "select * from {}.reserve_queues_v1('[\"q\"]', {}, {}, 1, 'w', 'a', null, true)"

    async def scenario():
        async with opened(f"{address}?schema=one") as (one,), opened(f"{address}?schema=two") as (two,):
            now = await one.server_time()
            ticks = round(now.timestamp() * 1000) * 1000
            for driver in (one, two):
                await driver.enqueue([JobRecord(id="j", type="t", queue="q", group="g", flow_id="f")], now)
            async with await psycopg.AsyncConnection.connect(address) as connection:
                rows = await connection.execute(call.format("one", ticks, ticks + 9_000_000).encode())
                assert len(await rows.fetchall()) == 1  # the turns of that queue are taken
                await one.enqueue_on(connection, [JobRecord(id="k", type="t", queue="q", flow_id="f")], now)
                assert len(await two.reserve(["q"], now, LEASE, 1)) == 1
                assert await two.cancel_flow("f", now) == 1

    asyncio.run(scenario())


LOCK = re.compile(r"for (?:no key )?(?:update|share)|for key share")
ALONE = {  # a statement that locks one row, or rows that no other call can have
    "perform from jobs j where j.id = next_id for key share",
    "select y.deliveries, y.memos into held from jobs y where y.id = p_id and y.token = p_token",
    "select h.handed_to into further from history h where h.id = next_id for key share",
}


def test_every_lock_is_skipped_or_taken_in_order():
    """Also where no call meets another in the tests: each statement that locks rows skips locked ones, or takes them in
    order."""
    for name, text in schema.sources("functions"):
        plain = re.sub(r"--[^\n]*", "", text)
        for found in LOCK.finditer(plain):
            before, after = plain[: found.start()], plain[found.end() :]
            statement = " ".join((before[before.rindex(";") + 1 if ";" in before else 0 :] + found.group()).split())
            skips = after.lstrip().startswith("skip locked")
            ordered = re.search(r"order by [\w., ]+$", before.rstrip()) is not None
            assert skips or ordered or any(alone in statement for alone in ALONE), f"{name}: {statement[-200:]}"
