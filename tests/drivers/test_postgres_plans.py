"""The plans: a reserve uses the intended index and touches few pages, whatever is kept beside the jobs it takes.

100,000 jobs of each kind in `make test`, a million in `make chaos`; with fresh statistics, and with those of an empty
table, which a planner that believes them answers with a scan.
"""

import asyncio
import re
from datetime import UTC, datetime

import psycopg
import pytest

from taskharbor.drivers.postgres import PostgresDriver
from tests import lanes
from tests.servers import postgres

pytestmark = pytest.mark.lane("postgres")
NOW = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)
TICKS = 1_000_000_000_000_000
NUMBER = lanes.figure(test=100_000, chaos=1_000_000)
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
    address = postgres.shared().address(postgres.shared().database())

    async def made() -> None:
        driver = PostgresDriver(address)
        await driver.open()
        await driver.close()

    asyncio.run(made())
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
        dead = FILL.format(kind="d", priority=9, state=6, wake=0, grp="null", number=NUMBER // 10)
        connection.execute(dead.replace("taskharbor.jobs", "taskharbor.history").encode())
        # Nearly all groups are full: their members stand in line, and nothing may look through them.
        connection.execute(
            "insert into taskharbor.groups (queue, grp, lim, inflight, waiting) select queue, grp, 1, "
            "case when mod(row_number() over (), 100) = 0 then 0 else 1 end, count(*) from taskharbor.jobs "
            "where grp is not null group by queue, grp"
        )
        if request.param == "fresh statistics":
            connection.execute("vacuum analyze")
    return address


def explained(address: str, call: str) -> tuple[list[str], int]:
    """The plans of all statements inside a call, and the pages it touched; rolled back."""
    plans: list[str] = []
    with psycopg.connect(address) as connection:
        connection.add_notice_handler(lambda notice: plans.append(notice.message_primary or ""))
        connection.execute("load 'auto_explain'")
        connection.execute("set auto_explain.log_min_duration = 0")
        connection.execute("set auto_explain.log_nested_statements = on")
        connection.execute("set client_min_messages = log")
        connection.commit()
        connection.execute(call.encode())  # plans are made, and caches filled
        plans.clear()
        connection.rollback()
        rows = connection.execute(f"explain (analyze, buffers) {call}".encode()).fetchall()
        connection.rollback()
    text = "\n".join(row[0] for row in rows)
    found = re.search(r"Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?", text)
    assert found is not None, text
    return plans, sum(int(number or 0) for number in found.groups())


def reserve(queues: str) -> str:
    return (
        f"select * from taskharbor.reserve('{queues}', {TICKS}, {TICKS + 60_000_000}, 100, 'w', "
        f"'{'0123456789abcdef' * 200}', false)"
    )


@pytest.mark.parametrize("queues", ['["q0"]', '["q0", "q1", "q2"]'])
def test_reserve(full, queues):
    plans, pages = explained(full, reserve(queues))
    text = "\n".join(plans)
    assert "Index Scan using jobs_line on jobs" in text
    for table in ("jobs", "history", "groups"):
        assert f"Seq Scan on {table}" not in text, text
    assert pages < PAGES * (1 + queues.count(",")), f"a reserve of 100 touched {pages} pages"


def test_pages_do_not_grow_with_the_backlog(full):
    """The same reserve on a store that holds just enough touches about as much."""
    address = postgres.shared().address(postgres.shared().database())

    async def small() -> None:
        driver = PostgresDriver(address)
        await driver.open()
        await driver.close()

    asyncio.run(small())
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(FILL.format(kind="r", priority=0, state=2, wake=0, grp="null", number=600).encode())
    _, few = explained(address, reserve('["q0"]'))
    _, many = explained(full, reserve('["q0"]'))
    assert many < few * 3 + 300, f"{few} pages with 600 jobs, {many} with {NUMBER} of each kind"


def test_settle_enqueue_and_peek(full):
    given = '[{"o":0,"id":"r000000003","token":"x","was":1,"kind":1}]'
    jobs = '[{"o":0,"id":"new","queue":"q0","type":"work","payload":""}]'
    for call, most in (
        (f"select * from taskharbor.settle('{given}', {TICKS}, true)", 200),
        (
            f"select * from taskharbor.enqueue('{jobs}', null, null, null, null, '[\"q0\"]', {TICKS}, false)",
            200,
        ),
        ("select taskharbor.watch('{q0,q1,q2}', 'me')", 200),
    ):
        plans, pages = explained(full, call)
        text = "\n".join(plans)
        for table in ("jobs", "history", "groups"):
            assert f"Seq Scan on {table}" not in text, text
        assert pages < most, f"{call[:40]} touched {pages} pages"
