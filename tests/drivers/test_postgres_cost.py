"""What calls cost in pages that the server touches, beside much that has nothing to do with them.

A page counts each time it is looked at, in memory or not: that does not depend on the machine. The stores are small in
`make test`; in `make full` a flow has 100,000 jobs.
"""

import asyncio
import re
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from taskharbor.drivers import Ack, JobRecord, Retry
from taskharbor.drivers.postgres import PostgresDriver
from tests import lanes
from tests.drivers.test_postgres_plans import explained, reserve
from tests.servers import postgres

pytestmark = pytest.mark.lane("cost-postgres")
LARGE = lanes.figure(test=10_000, full=100_000)
TICKS = 1_000_000_000_000_000
FINISHED = """
insert into taskharbor.history (id, queue, type, payload, attempts, max_attempts, deliveries, lost, created_at, state,
                                finished_at, flow_id)
select '{kind}' || lpad(n::text, 9, '0'), 'q', 'work', '', 0, 0, 1, 0, 1, {state}, n, {flow}
from generate_series(1, {number}) as n
"""


def made() -> str:
    """The address of a store that is never vacuumed, and whose statistics are those of empty tables."""
    address = postgres.shared().address(postgres.shared().store())

    async def open_once() -> None:
        driver = PostgresDriver(address)
        await driver.open()
        await driver.close()

    asyncio.run(open_once())
    with psycopg.connect(address, autocommit=True) as connection:
        for table in ("jobs", "history", "groups", "edges", "keys"):
            connection.execute(f"alter table taskharbor.{table} set (autovacuum_enabled = false)".encode())
        connection.execute("vacuum analyze")
    return address


def fill(connection, kind: str, state: int, number: int, flow: str = "null") -> None:
    connection.execute(FINISHED.format(kind=kind, state=state, number=number, flow=flow).encode())


def pages_of(connection, call: str) -> int:
    """What a call touches. It is really made."""
    rows = connection.execute(f"explain (analyze, buffers) {call}".encode()).fetchall()
    text = "\n".join(row[0] for row in rows)
    found = re.search(r"Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?", text)
    assert found is not None, text
    return sum(int(number or 0) for number in found.groups())


def number(connection, condition: str) -> int:
    found = connection.execute(f"select count(*) from taskharbor.history where {condition}".encode()).fetchone()
    return int(found[0])


PRUNE = f"select taskharbor.prune_v1({TICKS}, 0, 500)"
BEFORE_HAND = (
    "select taskharbor.prune_v1(0, 0, 500)"  # so that the session has its plans, and they were made on what is there
)


@pytest.mark.parametrize("planned", ["on an empty store", "on the full one"])
def test_prune_does_not_cost_more_in_a_larger_flow(planned):
    pages = {}
    for size in (1000, LARGE):
        with psycopg.connect(made(), autocommit=True) as connection:
            if planned == "on an empty store":
                connection.execute(BEFORE_HAND)
            fill(connection, "a", 5, size, "'run'")
            connection.execute(BEFORE_HAND)
            pages[size] = pages_of(connection, PRUNE)
            assert number(connection, "true") == size - 500
    assert pages[LARGE] < pages[1000] * 1.5, pages


@pytest.mark.parametrize("holder", ["a dead letter", "a waiting job"])
def test_one_job_that_holds_a_large_flow_stops_no_retention(holder):
    """It comes first in any order. Beside it stand jobs of no flow, small flows that are over, and held ones."""
    small = LARGE // 10
    with psycopg.connect(made(), autocommit=True) as connection:
        connection.execute(BEFORE_HAND)
        fill(connection, "a", 5, LARGE, "'a run'")
        if holder == "a dead letter":
            fill(connection, "dead", 6, 1, "'a run'")
        else:
            connection.execute("insert into taskharbor.jobs (id, queue, flow_id, state) values ('w', 'q', 'a run', 1)")
        fill(connection, "b", 5, small)
        fill(connection, "c", 7, small, "'c' || n / 4")
        fill(connection, "d", 5, small, "'d' || n")
        fill(connection, "dead-d", 6, small, "'d' || n")
        others = number(connection, "state in (5, 7) and (flow_id is null or flow_id like 'c%')")
        pages = list[int]()
        while others and len(pages) < 100:
            pages.append(pages_of(connection, PRUNE))
            others = number(connection, "state in (5, 7) and (flow_id is null or flow_id like 'c%')")
        assert not others
        assert number(connection, "flow_id = 'a run' and state = 5") == LARGE
        assert number(connection, "flow_id like 'd%'") == small * 2
        # Nothing is left to delete: one check for each flow that is held, and no more than a call may make.
        pages += [pages_of(connection, PRUNE) for _ in range(3)]
        assert max(pages) < 50_000, pages
        assert pages[-1] < 20 * min(small, 5000) + 1000, pages


def test_a_prune_with_nothing_to_do_is_a_lookup():
    """Beside many queues and flows whose jobs are too young, every worker asks once a minute."""
    with psycopg.connect(made(), autocommit=True) as connection:
        connection.execute(BEFORE_HAND)
        for kind, state, flow in (("a", 5, "null"), ("b", 7, "null"), ("c", 5, "'f' || n / 4"), ("d", 6, "'d' || n")):
            fill(connection, kind, state, LARGE // 5, flow)
        connection.execute("update taskharbor.history set queue = 'q' || finished_at % 500")
        connection.execute("update taskharbor.history set keep_for = 5 where finished_at % 9 = 0")
        connection.execute("vacuum taskharbor.history")
        nothing = "select taskharbor.prune_v1(0, 0, 500)"
        pages = [pages_of(connection, nothing) for _ in range(4)]
        assert max(pages[1:]) < 40, pages  # the first plans its statements, too
        assert number(connection, "true") == LARGE // 5 * 4


def test_jobs_that_are_needed_are_not_checked_by_every_prune():
    """Done jobs that one dead job depends on: they stay, and each round checks each of them once."""
    with psycopg.connect(made(), autocommit=True) as connection:
        connection.execute(BEFORE_HAND)
        fill(connection, "a", 5, LARGE)
        fill(connection, "dead", 6, 1)
        connection.execute(
            "insert into taskharbor.edges select id, 'dead000000001' from taskharbor.history where state = 5"
        )
        fill(connection, "b", 5, 1000, "'z'")
        pages = [pages_of(connection, PRUNE) for _ in range(2 + LARGE // 1000)]
        assert number(connection, "flow_id = 'z'") == 0
        assert number(connection, "flow_id is null") == LARGE + 1
        assert max(pages) < 90_000, pages


@pytest.mark.parametrize(("began", "more"), [("'m'", "null"), ("'m'", "'a'"), ("null", "null"), ("'m'", "'m'")])
def test_a_prune_that_starts_in_the_middle_wraps_around(began, more):
    """What has come since before the place at which the last one ended is not left for another call."""
    with psycopg.connect(made(), autocommit=True) as connection:
        fill(connection, "x", 5, 10, began)
        assert connection.execute(f"select taskharbor.prune_v1({TICKS}, 0, 3)").fetchall() == [(3,)]
        fill(connection, "a", 5, 2, more)
        fill(connection, "z", 5, 2, "'z'")
        assert connection.execute(f"select taskharbor.prune_v1({TICKS}, 0, 500)").fetchall() == [(11,)]
        assert connection.execute(f"select taskharbor.prune_v1({TICKS}, 0, 500)").fetchall() == [(0,)]


ROUNDS = lanes.figure(test=60, full=1000)
NOW = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)
LEASE = timedelta(seconds=60)


async def churn(address: str, rounds: int, first: int) -> None:
    """Jobs come, some of them in groups, are taken, given back once, and end; as many stay as there were."""
    driver = PostgresDriver(address)
    await driver.open()
    for turn in range(first, first + rounds):
        jobs = [JobRecord(id=f"{turn} {n}", type="t", queue="q0", group="g" if n % 5 == 0 else None) for n in range(20)]
        await driver.enqueue(jobs, NOW)
        for outcome in (lambda lease: Retry(lease, None, 1), Ack):
            held = await driver.reserve(["q0"], NOW, LEASE, 20)
            assert await driver.settle([outcome(each.lease) for each in held], NOW) == [None] * len(held)
    await driver.close()


def test_churn_without_vacuum():
    """Finished jobs leave dead rows that are not vacuumed: a scan that meets their index entries marks them."""
    address = made()
    asyncio.run(churn(address, 30, 0))
    call = reserve('["q0"]')
    before = explained(address, call)[1]
    asyncio.run(churn(address, ROUNDS, 10_000))
    after = explained(address, call)[1]
    assert after < before * 2 + 500, (before, after)


def test_prune_beside_a_transaction_that_stays_open():
    """What it has forgotten stays in the index as long as that lasts: each call goes on behind it. Reserving is held in
    test_postgres_long_transactions."""
    with psycopg.connect(made(), autocommit=True) as connection, psycopg.connect(connection.info.dsn) as open_one:
        fill(connection, "a", 5, LARGE)
        fill(connection, "b", 5, LARGE // 10, "'run'")
        open_one.execute("create table mine (n integer)")
        connection.execute(BEFORE_HAND)
        pages = [pages_of(connection, PRUNE) for _ in range((LARGE + LARGE // 10) // 500)]
        assert number(connection, "true") == 0
        assert max(pages) < min(pages) * 2 + 1000, pages


COUNTED = """
insert into taskharbor.jobs (id, queue, type, payload, priority, state, wake, run_at, due, seq, grp)
select '{name}' || n, 'q' || mod(n, 100), 'work', repeat('x', 300)::bytea, 0, {state}, {wake},
       nullif({wake}, 0), {wake}, n, {grp}
from generate_series(1, 5000) as n
"""


def test_a_capped_count_of_many_queues_reads_no_jobs():
    """Those of a hundred queues are everywhere in the table: each would be a page of its own."""
    kinds = (("line", 2, 0, "null"), ("grouped", 2, 0, "'g'"), ("later", 1, TICKS + 1, "null"), ("over", 3, 1, "null"))
    with psycopg.connect(made(), autocommit=True) as connection:
        for name, state, wake, grp in kinds:
            connection.execute(COUNTED.format(name=name, state=state, wake=wake, grp=grp).encode())
        connection.execute("vacuum taskharbor.jobs")
        call = f"select queue, state, n from taskharbor.count_jobs_v1({TICKS}, 50)"
        rows = connection.execute(f"{call} where queue = 'q7'".encode()).fetchall()
        pages = pages_of(connection, call)
    assert sorted(rows) == [("q7", "ready", 150), ("q7", "scheduled", 50)]
    assert pages < 100 * 50, f"{pages} pages for a hundred queues"
