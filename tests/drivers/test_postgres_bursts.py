"""A burst of jobs that become due at once, and calls that were given up: work goes on in bounded steps."""

from datetime import timedelta

import psycopg
import pytest

from taskharbor.drivers import BackendUnavailable, JobRecord
from taskharbor.model.times import to_us
from tests.drivers.postgres_stores import emptied, store_test
from tests.drivers.test_postgres_blocking import NOW, Blocking, job

pytestmark = pytest.mark.lane("postgres")
LEASE = timedelta(seconds=60)
QUEUES = [f"q{number}" for number in range(4)]
EACH = 6_000
DUE = """
insert into taskharbor.jobs (id, queue, type, payload, priority, attempts, max_attempts, deliveries, lost, group_limit,
                             created_at, state, run_at, wake, due, seq, grp)
select 'j' || q || '-' || n, 'q' || q, 'work', '{}', 0, 0, 0, 0, 0, 0, 1, 1, %(run_at)s,
       case when n %% 2 = 0 then 0 else %(run_at)s end, %(run_at)s, n, case when n %% 2 = 0 then 'g' || n %% 100 end
from generate_series(0, 3) as q, generate_series(1, %(each)s) as n
"""


@store_test()
async def test_a_burst_is_lined_up_a_bounded_number_of_jobs_at_a_time(address, driver):
    now = await driver.server_time()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(DUE, {"run_at": to_us(now) - 1, "each": EACH})

        def left() -> dict[str, int]:
            rows = connection.execute("select queue, count(*) from taskharbor.jobs where state = 1 group by queue")
            return dict(rows.fetchall())

        before = 4 * EACH
        while before:
            assert await driver.reserve(QUEUES, now, LEASE, 1)
            found = left()
            assert before - 10_000 <= sum(found.values()) < before
            if before == 4 * EACH:
                assert max(found.values()) < EACH, "each queue gets its share"
            before = sum(found.values())


@store_test()
async def test_what_a_reserve_was_given_up_for_ends_on_the_server(address, driver):
    now = await driver.server_time()
    await driver.enqueue([JobRecord(id="a", type="t", run_at=now)], now)
    async with await psycopg.AsyncConnection.connect(address) as other:
        await other.execute("lock table taskharbor.jobs in share mode")
        with pytest.raises(BackendUnavailable, match="within 2 s"):
            await driver.reserve(["default"], now, timedelta(seconds=6), 1)
        # It waits for nothing any more: it would go on as soon as the lock is free.
        cursor = await other.execute("select count(*) from pg_locks where not granted")
        assert await cursor.fetchone() == (0,)
    assert (await driver.counts(now))["default"] == {"ready": 1}
    assert len(await driver.reserve(["default"], now, LEASE, 1)) == 1


@store_test()
async def test_the_next_reserve_gives_back_what_one_in_doubt_has_leased(address, driver):
    """The reply was lost, twice: the server leased the jobs, and the caller has none of them."""
    now = await driver.server_time()
    due = now - timedelta(seconds=5)
    await driver.enqueue([JobRecord(id="a", type="t")], due)
    assert await driver.reserve(["default"], due, timedelta(seconds=1), 1)
    await driver.enqueue([JobRecord(id=name, type="t", attempts=2, run_at=due) for name in "bc"], now)
    run = driver._pool.run

    async def lost(*given, **named):
        await run(*given, **named)
        raise BackendUnavailable("the reply was lost")

    driver._pool.run = lost
    with pytest.raises(BackendUnavailable):
        await driver.reserve(["default"], now, LEASE, 2, "w")
    driver._pool.run = run
    assert (await driver.counts(now))["default"] == {"inflight": 2, "ready": 1}
    later = now + timedelta(seconds=1)
    held = await driver.reserve(["default"], later, LEASE, 3, "w")
    found = {(each.job.id, each.job.attempts, each.job.lost, each.job.run_at) for each in held}
    assert found == {("a", 0, 1, None), ("b", 2, 0, due), ("c", 2, 0, due)}


def test_a_blocking_call_that_is_given_up_ends_on_the_server():
    address = emptied()
    store = Blocking(address)
    with psycopg.connect(address, autocommit=True) as looking, psycopg.connect(address) as other:
        other.execute("lock table taskharbor.jobs")
        with pytest.raises(BackendUnavailable, match="did not answer within"):
            store.call("enqueue", [job("late")], NOW, within=1.0)
        assert looking.execute("select count(*) from pg_locks where not granted").fetchone() == (0,)
    assert store.call("list", now=NOW).items == ()
    store.calls.close()
