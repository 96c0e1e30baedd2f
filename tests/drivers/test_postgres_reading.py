"""What listings, counts, `upcoming` and the audit cost in pages, in a store with much that they are not about.

A page counts each time it is looked at. The statistics are those of empty tables, with which a planner prefers a scan
of the table, or fresh; and the settings of the session are ours, or ones that make an index look dear.
"""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from taskharbor.drivers import JobRecord
from taskharbor.model.times import to_us
from tests import lanes
from tests.drivers.postgres_stores import emptied, opened
from tests.drivers.test_postgres_cost import made, pages_of
from tests.drivers.test_postgres_plans import TICKS

pytestmark = [
    pytest.mark.lane("cost-postgres"),
    pytest.mark.left_to("full", except_for=lanes.Chosen("stale statistics")),
]
NUMBER = lanes.figure(test=40_000, full=200_000)
FEW = 30
MOST = 10_000  # records that a listing looks at
DEAR = ("random_page_cost = 1000", "cpu_index_tuple_cost = 10", "effective_cache_size = 1")
FILL = """
insert into taskharbor.{table} (id, queue, type, payload, priority, attempts, max_attempts, deliveries, lost,
                                created_at, state, wake, run_at, due, seq, finished_at, flow_id, keep_for, worker)
select '{kind}' || lpad(n::text, 9, '0'), 'q' || mod(n, 3), 'work', '', 0, 0, 0, 0, 0, n, {state}, {wake},
       nullif({wake}, 0), {wake}, n,       {finished}, {flow}, {keep_for}, 'w'
from generate_series(1, {number}) as n
"""


def fill(connection, table, kind, state, number, *, wake="0", finished="null", flow="null", keep_for="null"):
    given = {"kind": kind, "state": state, "number": number, "wake": wake, "finished": finished, "flow": flow}
    connection.execute(FILL.format(table=table, keep_for=keep_for, **given).encode())


@pytest.fixture(scope="module", params=["stale statistics", "fresh statistics", "an index looks dear"])
def store(request):
    """Many done and ready jobs, and a few in each of the other states, with ids among theirs."""
    connection = psycopg.connect(made(), autocommit=True)
    fill(connection, "history", "m", 5, NUMBER, finished="n")
    fill(connection, "jobs", "m1", 2, NUMBER)
    for kind, state in (("m2", 6), ("m3", 7)):
        fill(connection, "history", kind, state, FEW, finished="n", flow="'flow' || mod(n, 3)")
    fill(connection, "jobs", "m4", 3, FEW, wake=f"{TICKS + 1000} + n")
    fill(connection, "jobs", "m5", 0, FEW)
    fill(connection, "jobs", "m6", 1, FEW, wake=f"{TICKS + 2000} + n")
    if request.param != "stale statistics":
        connection.execute("vacuum analyze")
    if request.param == "an index looks dear":
        for setting in DEAR:
            connection.execute(f"set {setting}".encode())
    yield connection
    connection.close()


def pages(store, call: str) -> int:
    """What a call touches that is not the first of its kind in the session: without what planning reads."""
    pages_of(store, call)
    return pages_of(store, call)


def listing(newest: bool = False, limit: int = 100, **wanted) -> str:
    return f"select * from taskharbor.list_ids_v1('{json.dumps(wanted)}', {newest}, {limit}, {MOST}, {TICKS})"


@pytest.mark.parametrize("newest", [False, True], ids=["up", "down"])
@pytest.mark.parametrize("queue", [None, "q1"])
@pytest.mark.parametrize("state", ["dlq", "cancelled", "inflight"])
def test_jobs_in_a_rare_state_are_found_among_many(store, state, queue, newest):
    wanted = {"state": state} | ({"queue": queue} if queue else {})
    (row,) = store.execute(listing(newest, **wanted).encode()).fetchall()
    assert (len(row[0]), row[1]) == (FEW // 3 if queue else FEW, None)
    assert row[0] == sorted(row[0], reverse=newest)
    assert pages(store, listing(newest, **wanted)) < 400


def test_blocked_jobs_of_a_queue_are_found_among_many(store):
    (row,) = store.execute(listing(state="blocked", queue="q1").encode()).fetchall()
    assert (len(row[0]), row[1]) == (FEW // 3, None)
    assert pages(store, listing(state="blocked", queue="q1")) < 200


@pytest.mark.parametrize("newest", [False, True], ids=["up", "down"])
@pytest.mark.parametrize("wanted", [{}, {"queue": "q1"}, {"state": "done"}, {"state": "ready"}], ids=str)
def test_a_page_of_what_there_is_much_of_reads_little_more_than_the_page(store, wanted, newest):
    assert pages(store, listing(newest, after="m000020000", **wanted)) < 600


@pytest.mark.parametrize("state", ["dlq", "cancelled"])
def test_a_page_of_many_that_have_ended_otherwise(store, state):
    """They are read in the order of ids, and not sorted."""
    with store.transaction(force_rollback=True):
        fill(store, "history", "n", 6 if state == "dlq" else 7, lanes.figure(test=20_000, full=100_000), finished="n")
        assert pages(store, listing(state=state)) < 200
    store.execute("vacuum taskharbor.history")  # the tests after this one must not step over dead rows


@pytest.mark.parametrize("state", [None, "done", "ready", "blocked"])
def test_a_listing_that_finds_nothing_stops(store, state):
    """It has looked at ten thousand: once for what fits, and once for where the next page begins."""
    wanted = {"type": "none"} | ({"state": state} if state else {})
    (row,) = store.execute(listing(**wanted).encode()).fetchall()
    assert row[0] == []
    assert row[1] is not None
    assert pages_of(store, listing(**wanted)) < 5 * MOST


def test_counts_up_to_a_cap(store):
    call = f"select queue, state, n from taskharbor.count_jobs_v1({TICKS}, 50)"
    rows = store.execute(f"{call} order by 1, 2".encode()).fetchall()
    some = FEW // 3
    each = {
        "blocked": some,
        "cancelled": some,
        "dlq": some,
        "done": 50,
        "inflight": some,
        "ready": 50,
        "scheduled": some,
    }
    assert rows == [(f"q{n}", state, number) for n in range(3) for state, number in each.items()]
    assert pages(store, call) < 1000
    assert pages(store, "select * from taskharbor.queue_names_v1()") < 300


def test_upcoming_of_a_thousand_queues(store):
    queues = json.dumps([f"q{n}" for n in range(1000)])
    call = f"select taskharbor.upcoming_v1('{queues}', {TICKS})"
    assert store.execute(call.encode()).fetchall() == [(TICKS + 1001,)]
    assert pages_of(store, call) < 30_000, "three lookups in an index for each, and a few for those that hold something"


def test_upcoming_and_counts_for_a_clock_that_is_behind():
    """What a faster clock has brought into the line is there, and this one has to wait for it."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    later = {n: now + timedelta(seconds=n) for n in range(20)}

    async def scenario():
        address = emptied()
        async with opened(address) as (driver,):
            await driver.enqueue(
                [
                    JobRecord(id="high", type="t", queue="a", priority=5, run_at=later[6]),
                    JobRecord(id="low", type="t", queue="a", run_at=later[4]),
                    JobRecord(id="ready", type="t", queue="a"),
                    JobRecord(id="grouped", type="t", queue="b", group="g", run_at=later[3]),
                    JobRecord(id="held", type="t", queue="c"),
                ],
                now,
            )
            await driver.reserve(["c"], now, timedelta(seconds=8), 1, "w")
            for queue in "abc":
                await driver.pause(queue)
                with psycopg.connect(address) as connection:
                    connection.execute("set search_path = taskharbor")
                    connection.execute("select promote_v1(array[%s], %s, -1)", (queue, to_us(later[10])))
            assert await driver.upcoming(["a"], now) == later[4]
            assert await driver.upcoming(["a"], later[5]) == later[6]
            assert await driver.upcoming(["b"], now) == later[3]
            assert await driver.upcoming(["c", "b"], later[3]) == later[8]
            assert await driver.upcoming(["a", "b", "c"], later[8]) is None
            assert await driver.counts(later[5], 9) == {
                "a": {"ready": 2, "scheduled": 1},
                "b": {"ready": 1},
                "c": {"inflight": 1},
            }

    asyncio.run(scenario())


def test_flows_whatever_their_size(store):
    """A flow of ten thousand jobs costs what one of three costs."""
    call = "select * from taskharbor.list_flows_v1({}, false, null, null, null, 10, 1000)"
    with store.transaction(force_rollback=True):
        before = pages(store, call.format("null"))
        fill(store, "history", "f", 5, 10_000, finished="n", flow="'large'")
        fill(store, "jobs", "g", 2, 10_000, flow="'larger'")
        fill(store, "history", "h", 7, 10_000, finished="n", flow="'largest'")
        rows = store.execute(call.format("'flow2'").encode()).fetchall()
        each = {"large": "succeeded", "larger": "running", "largest": "cancelled"}
        assert rows == [(name, status, 1, 10_000, None) for name, status in each.items()]
        assert pages(store, call.format("null")) < before + 150


ENTRIES = lanes.figure(test=20_000, full=100_000)
AUDITED = """
insert into taskharbor.audit (id, at, done_by, data)
select 'entry' || n, {newest} - n / 3, 'someone', convert_to(repeat('x', 300), 'UTF8')
from generate_series(1, {number}) as n
"""


def test_the_audit_beside_many_entries(store):
    """A page reads little more than the page; one that finds nothing stops; forgetting takes a thousand at a time."""
    call = "select * from taskharbor.list_audit_v1(0, {}, '', {}, 10, {})"
    forget = f"select taskharbor.put_audit_v1('[]', {TICKS})"
    with store.transaction(force_rollback=True):
        store.execute(AUDITED.format(newest=TICKS - 1, number=ENTRIES).encode())
        for start in (TICKS, TICKS - ENTRIES // 6):
            rows = store.execute(call.format(start, "null", MOST).encode()).fetchall()
            assert len(rows) == 11
            assert rows[0][1] == start - 1
            assert pages(store, call.format(start, "null", MOST)) < 100
        nobody = call.format(TICKS, "'nobody'", MOST)
        assert [row[3] for row in store.execute(nobody.encode()).fetchall()] == [None]
        assert pages(store, nobody) < 3 * MOST
        entry = json.dumps([{"id": "entry5", "at": TICKS, "done_by": "anna", "data": ""}])
        assert pages(store, f"select taskharbor.put_audit_v1('{entry}', 0)") < 100
        assert pages_of(store, forget) < 8 * 1000
        left = store.execute('select count(*), min(id collate "C") from taskharbor.audit where at < %s', (TICKS,))
        assert left.fetchone()[0] == ENTRIES - 1 - 1000


def test_a_condition_costs_no_page(store):
    """What was seen is compared with the row that the call has locked."""
    calls = {
        "cancel": "cancel_v1('[\"m1000000005\"]', 1, 'no', {})",
        "requeue": "requeue_v1('[\"m2000000005\"]', 1, null, false, {})",
        "delete": "delete_jobs_v1('[\"m2000000006\"]', {})",
    }
    seen = {"cancel": "0 0 -", "requeue": "0 0 5", "delete": "0 0 6"}
    for verb, call in calls.items():
        cost = []
        for given in ("null", f"'[\"{seen[verb]}\"]'"):
            for _ in range(2):  # the first of its kind in the session reads what planning needs
                with store.transaction(force_rollback=True):
                    text = f"select taskharbor.{call.format(given)}"
                    assert store.execute(text.encode()).fetchall() == [([None],)]
                with store.transaction(force_rollback=True):
                    spent = pages_of(store, text)
            cost.append(spent)
        assert cost[1] <= cost[0] + 8, f"{verb}: {cost}"


def test_prune_beside_many_jobs_that_are_kept(store):
    """They are in an index of their own, by the moment at which they may go."""
    prune = f"select taskharbor.prune_v1({TICKS}, 1000, 500)"
    with store.transaction(force_rollback=True):
        few = pages_of(store, prune)
    with store.transaction(force_rollback=True):
        fill(store, "history", "a", 5, 20_000, finished="n", keep_for="1000000")
        many = pages_of(store, prune)
        left = store.execute("select count(*) from taskharbor.history where keep_for is not null").fetchone()
        assert left == (20_000,)
    assert many < few * 2 + 500


def test_prune_of_what_was_kept_long_enough(store):
    """Those held back are behind it in the next call, and do not stop those that come after them."""
    prune = f"select taskharbor.prune_v1(0, {TICKS}, 1000)"
    with store.transaction(force_rollback=True):
        fill(store, "history", "a", 5, 12_000, finished="n", keep_for="5", flow="'flow1'")
        fill(store, "history", "b", 7, 3000, finished="n + 20000", keep_for="5")
        gone = [store.execute(prune.encode()).fetchone()[0] for _ in range(8)]
        assert gone == [0, 0, 1000, 1000, 1000, 0, 0, 0], "a call checks 5,000 that are held back"
        kept = "select left(id, 1), count(*) from taskharbor.history where keep_for is not null group by 1"
        assert store.execute(kept.encode()).fetchall() == [("a", 12_000)], "a dead job holds the flow"
        assert pages_of(store, prune) < 20_000
