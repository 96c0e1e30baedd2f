"""Isolation: our calls see what others have stored while they waited. A caller's stricter transaction cannot, and gets
a serialization failure instead of storing something that is wrong by now."""

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from taskharbor.drivers import Ack, JobRecord, State
from taskharbor.drivers.postgres import PostgresDriver
from taskharbor.model.errors import DriverError
from tests.drivers.postgres_stores import emptied, opened

pytestmark = pytest.mark.lane("postgres")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
CALLS = {
    "ack": "ack('a', 't', null, 1)",
    "settle": "settle('[]', 1, true, false)",
    "hand_over": "hand_over('a', 'b', '[]', 1)",
    "extend": "extend('[]', 1, 2)",
    "release": "release('w', 1, '[]')",
    "cancel": "cancel('[]', 1, '', null)",
    "cancel_flow": "cancel_flow('f', 1, '')",
    "requeue": "requeue('[]', 1, null, false, null)",
    "delete_jobs": "delete_jobs('[]', null)",
    "amend": "amend('[]', 1)",
    "save_step": "save_step('a', 't', 'n', '', 1)",
    "add_figures": "add_figures('[]', 1)",
    "put_audit": "put_audit('[]', 1)",
    "change_schedules": "change_schedules('[]', null, 1)",
    "prune": "prune(1, 1, 1)",
    "set_reserved_aside": "set_reserved_aside('[]', 1)",
    "reserve_queue": "reserve_queue('q', 1, 2, 1, 'w', 't', true)",
    "reserve_queues": "reserve_queues('[\"q\"]', 1, 2, 1, 'w', 't', null, true)",
    "reserve_again": "reserve_again('[\"q\"]', 1, 2, 1, 'w', 't', null, true)",
    "enqueue": "enqueue('[]', null, null, null, null, '[]', 1, false)",
    "enqueue_one": "enqueue_one('a', 'q', 't', '', null, null, 0, 0, 0, null, null, null, 1, false)",
}
LOOKS_ONLY = {
    "sweep", "beat",
    "prepare_spawn", "result_of", "register_waiter", "hint_queue", "queue_names", "count_jobs", "upcoming", "list_ids",
    "queue_heads", "list_flows", "records_of", "list_audit", "list_schedules", "due_schedules",
}  # fmt: skip


def test_no_call_runs_in_another_isolation():
    """An ack in repeatable read would miss a job that was made dependent on its own since: it would stay blocked."""
    address = emptied()

    async def made():
        async with opened(address):
            pass

    asyncio.run(made())
    with psycopg.connect(address) as connection:
        found = connection.execute(
            "select proname from pg_proc where pronamespace = 'taskharbor'::regnamespace and proconfig is not null"
        ).fetchall()
        assert {name.removesuffix("_v1") for (name,) in found} == CALLS.keys() | LOOKS_ONLY
        for level in ("repeatable read", "serializable"):
            for call in CALLS.values():
                connection.rollback()
                connection.execute(f"set transaction isolation level {level}".encode())
                with pytest.raises(psycopg.Error, match=f"expected .* read committed, got {level}") as raised:
                    connection.execute(f"select * from taskharbor.{call.replace('(', '_v1(', 1)}".encode())
                assert raised.value.sqlstate == "TH002"


def in_a_strict_transaction(address, meanwhile, job):
    """What becomes of a job that is stored in repeatable read, after something happened that its snapshot lacks."""

    async def live():
        async with opened(address) as (driver,):
            assert isinstance(driver, PostgresDriver)
            await driver.enqueue([JobRecord(id="a", type="t", flow_id="f", idempotency_key="k")], NOW)
            connection = await psycopg.AsyncConnection.connect(address)
            try:
                await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
                await connection.execute("select 1")
                await meanwhile(driver)
                answer = await driver.enqueue_on(connection, [job], NOW)
                await connection.commit()
            finally:
                await connection.close()
            return answer, (await driver.inspect(answer[0].id, NOW)).state

    return asyncio.run(live())


async def flow_is_cancelled(driver):
    assert await driver.cancel_flow("f", NOW) == 1


async def key_is_gone(driver):
    assert await driver.cancel(["a"], NOW) == [None]
    assert await driver.delete(["a"]) == [None]


async def dependency_is_done(driver):
    (held,) = await driver.reserve(["default"], NOW, LEASE, 1)
    assert await driver.settle([Ack(held.lease)], NOW) == [None]


async def nothing(driver):
    pass


@pytest.mark.parametrize(
    ("meanwhile", "given"),
    [
        (flow_is_cancelled, {"flow_id": "f"}),
        (key_is_gone, {"idempotency_key": "k"}),
        (dependency_is_done, {"depends_on": ("a",)}),
    ],
)
def test_a_change_that_the_callers_snapshot_lacks_is_refused(meanwhile, given):
    """It was stored ready into a cancelled flow; it was not stored at all, because of a job that is gone."""
    job = JobRecord(id="b", type="t", **given)
    with pytest.raises(psycopg.errors.SerializationFailure):
        in_a_strict_transaction(emptied(), meanwhile, job)


@pytest.mark.parametrize("given", [{"flow_id": "f"}, {"idempotency_key": "other"}, {"depends_on": ("a",)}, {}])
def test_a_change_that_it_has_is_accepted(given):
    job = JobRecord(id="b", type="t", **given)
    answer, state = in_a_strict_transaction(emptied(), nothing, job)
    assert [(each.id, each.existed) for each in answer] == [("b", False)]
    assert state == (State.BLOCKED if "depends_on" in given else State.READY)


def test_a_strict_transaction_leaves_no_flow_cancelled():
    """It checks for cancelled flows by writing; nothing of that is left."""
    address = emptied()
    in_a_strict_transaction(address, nothing, JobRecord(id="b", type="t", flow_id="f"))
    with psycopg.connect(address) as connection:
        assert connection.execute("select count(*) from taskharbor.flows").fetchone() == (0,)


@pytest.mark.parametrize("level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
def test_an_operator_call_on_a_connection_with_a_strict_isolation(level):
    """As Django makes it with `isolation_level` in OPTIONS: outside of a transaction it works, inside it is refused."""
    address = emptied()

    async def live():
        async with opened(address) as (driver,):
            assert isinstance(driver, PostgresDriver)
            await driver.enqueue([JobRecord(id=each, type="t") for each in "ab"], NOW)
            with psycopg.connect(address, autocommit=True) as connection:
                connection.isolation_level = level
                mine = driver.on_connection(lambda: connection)
                assert await mine.cancel(["a"], NOW) == [None]
                assert connection.isolation_level == level
                with connection.transaction():
                    for call in (mine.cancel(["b"], NOW), mine.delete(["a"])):
                        with pytest.raises(
                            DriverError, match=r"read committed, got .* outside of the transaction \(of atomic"
                        ):
                            await call
                    assert (await mine.inspect("a", NOW)).state == State.CANCELLED, "the transaction is usable"
                assert await mine.cancel(["b"], NOW) == [None]

    asyncio.run(live())
