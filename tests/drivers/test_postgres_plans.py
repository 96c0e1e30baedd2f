"""The plans: a reserve uses the intended index and touches few pages, whatever is kept beside the jobs it takes.

100,000 jobs of each kind in `make test`, a million in `make full`; with fresh statistics, and with those of an empty
table, with which a planner prefers a scan of the table.
"""

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from taskharbor.drivers import Ack, JobRecord
from taskharbor.drivers.postgres import PostgresDriver
from taskharbor.drivers.postgres.enqueue import _enqueue_many
from tests import lanes
from tests.servers import postgres

pytestmark = pytest.mark.lane("postgres")
NOW = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)
TICKS = 1_000_000_000_000_000
NUMBER = lanes.figure(test=100_000, full=300_000)
PAGES = 3000  # for a hundred jobs: lock, update, and an entry in each of two indexes
FILL = """
insert into taskharbor.jobs (id, queue, type, payload, priority, attempts, max_attempts, deliveries, lost, created_at,
                             state, wake, due, seq, grp)
select '{kind}' || lpad(n::text, 9, '0'), 'q' || mod(n, 3), 'work', '{{}}', {priority}, 0, 0, 0, 0, 1, {state},
       {wake}, {wake}, n, {grp}
from generate_series(1, {number}) as n
"""


@pytest.fixture(scope="module", params=["fresh statistics", "stale statistics"])
def full(request):
    """A store with three deep queues, more scheduled before them, dead ones, and many groups."""
    address = postgres.shared().address(postgres.shared().store())

    asyncio.run(made(address))
    with psycopg.connect(address, autocommit=True) as connection:
        for table in ("jobs", "history", "groups"):
            connection.execute(f"alter table taskharbor.{table} set (autovacuum_enabled = false)".encode())
        connection.execute("analyze")
        fills = (
            ("r", 0, 2, 0, "null", NUMBER),
            ("s", 9, 1, TICKS * 2, "null", NUMBER),
            ("b", 9, 0, 0, "null", NUMBER // 10),
            ("g", 9, 2, 0, "'g' || (n / 3)", NUMBER // 10),
        )
        for kind, priority, state, wake, grp, number in fills:
            text = FILL.format(kind=kind, priority=priority, state=state, wake=wake, grp=grp, number=number)
            connection.execute(text.encode())
        dead = FILL.format(kind="d", priority=9, state=6, wake=0, grp="null", number=100_000)
        connection.execute(dead.replace("taskharbor.jobs", "taskharbor.history").encode())
        # Nearly all groups are full: their jobs are in the index, and no call may scan them.
        connection.execute(
            "insert into taskharbor.groups (queue, grp, lim, inflight, waiting) select queue, grp, 1, "
            "case when mod(row_number() over (), 100) = 0 then 0 else 1 end, count(*) from taskharbor.jobs "
            "where grp is not null group by queue, grp"
        )
        if request.param == "fresh statistics":
            connection.execute("vacuum analyze")
    return address


def explained(address: str, call: str, parameters: Any = None, before: Any = None) -> tuple[list[str], int]:
    """The plans of all statements inside a call, and the pages it touched; rolled back.

    Plans are made by a first call, with the parameters `before`, and kept, as on a connection of a pool.
    """
    plans: list[str] = []
    with psycopg.connect(address) as connection:
        connection.add_notice_handler(lambda notice: plans.append(notice.message_primary or ""))
        connection.execute("load 'auto_explain'")
        connection.execute("set auto_explain.log_min_duration = 0")
        connection.execute("set auto_explain.log_nested_statements = on")
        connection.execute("set client_min_messages = log")
        connection.commit()
        connection.execute(call.encode(), before or parameters)
        plans.clear()
        connection.rollback()
        rows = connection.execute(f"explain (analyze, buffers) {call}".encode(), parameters).fetchall()
        connection.rollback()
    text = "\n".join(row[0] for row in rows)
    found = re.search(r"Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?", text)
    assert found is not None, text
    return plans, sum(int(number or 0) for number in found.groups())


def reserve(queues: str) -> str:
    tokens = ",".join(f"{n:032x}" for n in range(100))
    given = f"{TICKS}, {TICKS + 60_000_000}, 100, 'w', '{tokens}'"
    names = json.loads(queues)
    if len(names) == 1:
        return f"select * from taskharbor.reserve_queue_v1('{names[0]}', {given}, true)"
    return f"select * from taskharbor.reserve_queues_v1('{queues}', {given}, null, true)"


@pytest.mark.parametrize("queues", ['["q0"]', '["q0", "q1", "q2"]'])
def test_reserve(full, queues):
    plans, pages = explained(full, reserve(queues))
    text = "\n".join(plans)
    assert "Index Scan using jobs_line on jobs" in text
    for table in ("jobs", "history", "groups"):
        assert f"Seq Scan on {table}" not in text, text
    assert pages < PAGES * (1 + queues.count(",")), f"a reserve of 100 touched {pages} pages"


def test_the_columns_of_a_reserved_job_are_inlined(full):
    """A function that is called for each of 15 columns would build each row 15 times."""
    with psycopg.connect(full) as connection:
        connection.execute("set search_path = taskharbor")
        rows = connection.execute("explain (verbose) select (as_reserved_v1(j)).* from jobs j").fetchall()
    assert "Output: id, queue, type, payload, run_at" in "\n".join(row[0] for row in rows)


def test_release(full):
    """It finds the jobs of a worker among the leased ones, not among all."""
    plans, pages = explained(full, f"select taskharbor.release_v1('nobody', {TICKS}, '[]')")
    assert "jobs_leases" in "\n".join(plans)
    assert pages < 200, f"a release of nothing touched {pages} pages"


@pytest.mark.parametrize("seen", ["nothing", "empty tables", "ten jobs", "cancelled flows"])
def test_pages_of_an_enqueue_grow_as_it_does(seen):
    """Twenty times as many jobs in a call touch as many times more (and deeper trees), whatever the planner saw before;
    a search of one list for each entry of another would touch four hundred times as much."""
    pages = []
    for number in (200, 4000):
        address = postgres.shared().address(postgres.shared().store())
        asyncio.run(made(address))
        with psycopg.connect(address, autocommit=True) as connection:
            for table in ("jobs", "history", "flows", "keys"):
                connection.execute(f"alter table taskharbor.{table} set (autovacuum_enabled = false)".encode())
            if seen == "ten jobs":
                filled = FILL.format(kind="r", priority=0, state=2, wake=0, grp="null", number=10)
                connection.execute(filled.encode())
            if seen == "cancelled flows":
                connection.execute("insert into taskharbor.flows select n from generate_series(1, 50) as n")
            if seen != "nothing":
                connection.execute("analyze")
        known = [JobRecord(id=f"known{n}", type="t", idempotency_key=f"key{n}") for n in range(number // 2)]
        asyncio.run(stored(address, known))
        small, large = (_enqueue_many("taskharbor", chord(size), NOW, False) for size in (10, number))
        plans, touched = explained(address, large.sql.replace("?", "%s"), large.parameters, small.parameters)
        pages.append(touched)
        text = "\n".join(plans)
        assert not re.search(r"Filter: .*\bid = ANY", text), text
        # What ties jobs to their dependencies joins nothing: a planner that takes the table for empty turns such a join
        # round, and adds up all edges anew for every row. Edges are arrays, so pages do not show it.
        (tied,) = {plan.split("Update on", 1)[1] for plan in plans if "set depends_on" in plan}
        assert "jobs_pkey" in tied, tied
        assert not re.search(r"Nested Loop|Join", tied), tied
        for found in re.findall(r"(?:using|on) (\w+)[^\n]*\n *Index Cond: \(\(?id = ", text):
            assert found.endswith("_pkey"), text
    assert pages[1] < pages[0] * 80, pages


def chord(number: int) -> list[JobRecord]:
    """A large call: half of the members are known by their keys, the others have groups; one job waits for all."""
    half = number // 2
    members = [JobRecord(id=f"a{n}", type="t", flow_id="run", idempotency_key=f"key{n}") for n in range(half)]
    members += [JobRecord(id=f"b{n}", type="t", flow_id="run", group=f"g{n}", group_limit=2) for n in range(half)]
    waits = tuple(member.id for member in members)
    return [*members, JobRecord(id="last", type="t", flow_id="run", depends_on=waits)]


async def made(address: str) -> None:
    driver = PostgresDriver(address)
    await driver.open()
    await driver.close()


async def stored(address: str, jobs: list[JobRecord]) -> None:
    driver = PostgresDriver(address)
    await driver.open()
    await driver.enqueue(jobs, NOW)
    await driver.close()


def test_pages_do_not_grow_with_the_backlog(full):
    """The same reserve on a store that holds just enough touches about as much."""
    address = postgres.shared().address(postgres.shared().store())

    asyncio.run(made(address))
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(FILL.format(kind="r", priority=0, state=2, wake=0, grp="null", number=600).encode())
    _, few = explained(address, reserve('["q0"]'))
    _, many = explained(full, reserve('["q0"]'))
    assert many < few * 3 + 300, f"{few} pages with 600 jobs, {many} with {NUMBER} of each kind"


def test_settle_enqueue_and_peek(full):
    given = '[{"o":0,"id":"r000000003","token":"x","was":1,"kind":1}]'
    jobs = '[{"o":0,"id":"new","queue":"q0","type":"work","payload":""}]'
    one = "'new', 'q0', 'work', '', null, null, 0, 0, 0, null, null, null"
    for call, most in (
        (f"select * from taskharbor.settle_v1('{given}', {TICKS}, true, false)", 200),
        (f"select taskharbor.ack_v1('r000000003', 'x', null, {TICKS})", 200),
        (f"select taskharbor.enqueue_one_v1({one}, {TICKS}, false)", 200),
        (
            f"select * from taskharbor.enqueue_v1('{jobs}', null, null, null, null, '[\"q0\"]', {TICKS}, false)",
            200,
        ),
        ("select taskharbor.register_waiter_v1('{q0,q1,q2}', 'me')", 200),
    ):
        plans, pages = explained(full, call)
        text = "\n".join(plans)
        for table in ("jobs", "history", "groups"):
            assert f"Seq Scan on {table}" not in text, text
        assert pages < most, f"{call[:40]} touched {pages} pages"


SEEN = ("nothing", "an empty table", "one job", "all of them", "a swept table")


@pytest.mark.parametrize("seen", SEEN)
def test_reserve_and_ack_find_rows_by_their_ctid(seen):
    """A planner that takes the table for empty may walk through all of it and look at the line, or the list, anew for
    each row: that costs more with every job there is, and takes more than the limit. It is left no choice."""
    address = postgres.shared().address(postgres.shared().store())
    asyncio.run(made(address))
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("alter table taskharbor.jobs set (autovacuum_enabled = false)")
        if seen == "an empty table":
            connection.execute("vacuum analyze taskharbor.jobs")
        if seen == "one job":
            connection.execute(FILL.format(kind="a", priority=0, state=2, wake=0, grp="null", number=1).encode())
            connection.execute("analyze taskharbor.jobs")
        if seen == "a swept table":
            connection.execute(FILL.format(kind="a", priority=0, state=2, wake=0, grp="null", number=900).encode())
            connection.execute("delete from taskharbor.jobs")
            connection.execute("vacuum analyze taskharbor.jobs")
        connection.execute(FILL.format(kind="r", priority=0, state=2, wake=0, grp="null", number=3000).encode())
        if seen == "all of them":
            connection.execute("vacuum analyze taskharbor.jobs")
    asyncio.run(by_turns(address))
    plans, _ = explained(address, reserve('["q0"]'))
    (claim,) = (plan for plan in plans if "Update on jobs" in plan)
    plans, _ = explained(address, f"select taskharbor.ack_v1('r000000003', 'x', null, {TICKS})")
    (acked,) = (plan for plan in plans if "Delete on jobs" in plan)
    for plan in (claim, acked):
        assert "Tid Scan on jobs j" in plan, plan
        assert re.findall(r"Index.*Scan using (\w+) on jobs", plan) in (["jobs_line"], ["jobs_pkey"]), plan


async def by_turns(address: str) -> None:
    """Never more than was asked for, in order."""
    driver = PostgresDriver(address)
    await driver.open()
    order = []
    for limit in (1, 2, 1, 5, 1, 1):
        held = await driver.reserve(["q1"], NOW, timedelta(seconds=60), limit)
        assert len(held) == limit
        order += [each.job.id for each in held]
        assert await driver.settle([Ack(each.lease) for each in held], NOW) == [None] * limit
    assert order == sorted(order)
    await driver.close()
