"""What schedules cost in pages, beside 10,000 others, and beside the dead rows of 10,000 changes.

A page counts each time it is looked at. The plans are made on an empty table, or on the full one with statistics that
are stale or fresh; or the settings of the session make an index look dear.
"""

import json
import re

import psycopg
import pytest

from tests import lanes
from tests.drivers.test_postgres_cost import TICKS, made, pages_of
from tests.drivers.test_postgres_plans import explained
from tests.drivers.test_postgres_reading import DEAR

pytestmark = pytest.mark.lane("cost-postgres")
NUMBER = lanes.figure(test=10_000, full=100_000)
CHANGES = 10_000
FILL = """
insert into taskharbor.schedules (name, queue, revision, next_at, body)
select '{queue}' || lpad(n::text, 9, '0'), '{queue}', '1', {next_at}, convert_to(repeat('x', 300), 'UTF8')
from generate_series(1, {number}) as n
"""
LATER = f"{TICKS} + n"
PLANNED = ["on an empty table", "with stale statistics", "with fresh statistics", "where an index looks dear"]


def fill(connection, queue: str, next_at: str, number: int = NUMBER) -> None:
    connection.execute(FILL.format(queue=queue, next_at=next_at, number=number).encode())


def due(*queues: str, limit: int = 11, after: tuple[int, str] = (0, "")) -> str:
    at, name = after
    return f"select * from taskharbor.due_schedules_v1('{json.dumps(queues)}', {TICKS}, {at}, '{name}', {limit})"


def listed(names: str = "null", queue: str = "null", after: str = "", limit: int = 11) -> str:
    return f"select * from taskharbor.list_schedules_v1({names}, {queue}, '{after}', {limit})"


def change(name: str, expect: str, revision: str, *jobs: str, queue: str = "q", next_at: int = TICKS + 5) -> str:
    given = {"o": 0, "name": name, "expect": expect, "revision": revision, "queue": queue, "next_at": next_at}
    stored = [{"o": n, "id": id, "queue": queue, "type": "t", "payload": ""} for n, id in enumerate(jobs)]
    sent = f"'{json.dumps([stored])}'" if jobs else "null"
    return f"select taskharbor.change_schedules_v1('{json.dumps([given])}', {sent}, {TICKS})"


CALLS = {
    "due": due("q", "empty"),
    "all": listed(),
    "of a queue": listed(queue="'q'"),
    "by name": listed(names='\'["q000000005", "none"]\''),
    "change": change("q000000005", "1", "2", "job"),
    "refused": change("q000000005", "0", "2", "job"),
    "absent": change("absent", "0", "2"),
}


@pytest.fixture(scope="module", params=PLANNED)
def store(request):
    """Schedules that are due later in `q`; as many that are due in another queue; as many that never are."""
    connection = psycopg.connect(made(), autocommit=True)
    connection.execute("alter table taskharbor.schedules set (autovacuum_enabled = false)")
    connection.execute("vacuum analyze")
    if request.param == "where an index looks dear":
        for setting in DEAR:
            connection.execute(f"set {setting}".encode())
    if request.param == "on an empty table":
        for call in CALLS.values():  # plpgsql keeps the plans of a session
            with connection.transaction(force_rollback=True):
                connection.execute(call.encode())
    fill(connection, "q", LATER)
    fill(connection, "other", f"{TICKS} - n")
    fill(connection, "never", "null")
    if request.param == "with fresh statistics":
        connection.execute("vacuum analyze taskharbor.schedules")
    yield connection
    connection.close()


def pages(store, call: str) -> int:
    """What a call touches that is not the first of its kind in the session; nothing of it stays."""
    for _ in range(2):
        with store.transaction(force_rollback=True):
            touched = pages_of(store, call)
    return touched


def names(store, call: str) -> list[str]:
    return [name for name, *_ in store.execute(call.encode()).fetchall()]


def test_a_look_at_queues_in_which_nothing_is_due(store):
    """Whatever is due in other queues, and later in these."""
    assert store.execute(due("q", "never", "empty").encode()).fetchall() == [(None, None, None, TICKS + 1, None)]
    assert pages(store, due("q")) < 12
    many = [f"queue{n}" for n in range(100)]
    assert pages(store, due("q", *many)) < 12 + 8 * len(many)


def test_a_look_that_finds_many(store):
    found = names(store, due("q", "other"))
    assert found == [*(f"other{n:09}" for n in range(NUMBER, NUMBER - 11, -1)), None]
    assert pages(store, due("q", "other")) < 40
    middle = NUMBER // 2
    after = (TICKS - middle, f"other{middle:09}")
    assert names(store, due("other", after=after)) == [*(f"other{middle - n:09}" for n in range(1, 12)), None]
    assert pages(store, due("other", after=after)) < 40


def test_a_page_reads_little_more_than_the_page(store):
    middle = NUMBER // 2
    for call in (
        listed(after=f"other{middle:09}"),
        listed(queue="'q'", after=f"q{middle:09}"),
        listed(queue="'never'"),  # its names come before those of the others: all of them would be read
        listed(queue="'q'"),
        listed(names=f"'{json.dumps([f'q{n:09}' for n in range(1, 12)])}'", queue="'q'"),
    ):
        assert len(names(store, call)) == 11
        assert pages(store, call) < 60, call
    everyone = json.dumps([f"q{n:09}" for n in range(1, 1001)])
    assert pages(store, listed(names=f"'{everyone}'")) < 120, "it stops when the page is full"


def test_a_change_among_many(store):
    """With a job it costs what storing the job costs, and a few pages more."""
    for call, results in (("change", [True]), ("refused", [False]), ("absent", [False])):
        with store.transaction(force_rollback=True):
            assert store.execute(CALLS[call].encode()).fetchone() == (results,)
        assert pages(store, CALLS[call]) < 60, call


def test_every_statement_reads_the_index_that_was_made_for_it():
    """On an empty table, too, where any index would do."""
    address = made()
    expected = {
        "due": ["schedules_due", "schedules_due"],
        "all": ["schedules_pkey"],
        "of a queue": ["schedules_queue"],
        "by name": ["schedules_pkey"],
        "change": ["schedules_pkey"],
        "absent": ["schedules_pkey", "schedules_pkey"],
    }
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("alter table taskharbor.schedules set (autovacuum_enabled = false)")
        for number in (0, 1, 1000):
            fill(connection, f"q{number}", LATER, number)
            for seen in ("before", "now"):
                if seen == "now":
                    connection.execute("vacuum analyze taskharbor.schedules")
                for call, indexes in expected.items():
                    text = "\n".join(explained(address, CALLS[call])[0])
                    assert "Seq Scan on schedules" not in text, text
                    found = re.findall(r"Index(?: Only)? Scan using (\w+) on schedules", text)
                    assert found[: len(indexes)] == indexes, f"{call} beside {number}: {text}"


@pytest.mark.left_to("full", except_for=lanes.Chosen("many schedules"))
@pytest.mark.parametrize("of", ["one schedule", "many schedules"])
def test_dead_rows_are_not_read_again_and_again(of):
    """Nothing is vacuumed. An entry of an index whose row is dead is marked by the first call that meets it."""
    with psycopg.connect(made(), autocommit=True) as connection:
        connection.execute("alter table taskharbor.schedules set (autovacuum_enabled = false)")
        number = 1 if of == "one schedule" else 100
        fill(connection, "q", "n", number)
        before = pages(connection, change("q000000001", "1", "2")), pages(connection, due("q", limit=1))
        rounds = CHANGES // number
        for turn in range(1, rounds + 1):
            given = [
                {"o": n, "name": f"q{n + 1:09}", "expect": f"{turn}", "revision": f"{turn + 1}", "queue": "q",
                 "next_at": turn * 1000 + n}
                for n in range(number)
            ]  # fmt: skip
            call = f"select taskharbor.change_schedules_v1('{json.dumps(given)}', null, {TICKS})"
            assert connection.execute(call.encode()).fetchone() == ([True] * number,)
        again = change("q000000001", f"{rounds + 1}", "new")
        with connection.transaction(force_rollback=True):
            assert connection.execute(again.encode()).fetchone() == ([True],)
        after = pages(connection, again), pages(connection, due("q", limit=1))
        assert after[0] < before[0] + 60, (before, after)
        assert after[1] < before[1] + CHANGES // 100, (before, after)
