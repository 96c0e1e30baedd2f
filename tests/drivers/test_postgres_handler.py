"""What a handler does on the connection of `ctx.transaction()`: whatever it is, its writes and the ack of its job are
stored together or not at all, and a commit that is refused is a failure of the job with its text."""

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from taskharbor import JobContext, State
from taskharbor.drivers import Ack, JobRecord, TransactionFailed
from taskharbor.drivers.postgres import PostgresDriver
from taskharbor.drivers.postgres.transaction import would_end
from taskharbor.policy.retry import Fixed
from tests import lanes
from tests.drivers.postgres_stores import opened
from tests.servers import postgres
from tests.worker.workbench import Bench, job, run

pytestmark = pytest.mark.lane("postgres")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
COLOURS = ("coroutine", "function")
Act = Callable[["Given"], Any]


@pytest.fixture
def address():
    made = postgres.shared().address(postgres.shared().store())
    with psycopg.connect(made, autocommit=True) as connection:
        connection.execute("create table orders (number integer unique deferrable initially deferred)")
        connection.execute("create table lines (number integer primary key)")
    return made


class Given:
    """A handler's connection, synchronous or not: calls on it are awaited where they have to be."""

    def __init__(self, connection: Any, colour: str) -> None:
        self.connection, self.colour = connection, colour

    async def do(self, query: Any, *parameters: Any) -> Any:
        cursor = self.connection.execute(query, parameters or None)
        return await cursor if self.colour == "coroutine" else cursor

    async def tries(self, how: str) -> None:
        if how == "a block":
            await self.as_a_block()
        elif how.endswith("()"):
            done = getattr(self.connection, how[:-2])()
            if self.colour == "coroutine":
                await done
        else:
            await self.do(sql.SQL(how) if len(how) % 2 else how.encode())

    async def set_isolation(self) -> None:
        if self.colour == "coroutine":
            await self.connection.set_isolation_level(psycopg.IsolationLevel.SERIALIZABLE)
        else:
            self.connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE

    async def inner(self, *queries: str) -> None:
        if self.colour == "coroutine":
            async with self.connection.transaction():
                for query in queries:
                    await self.connection.execute(query)
        else:
            with self.connection.transaction():
                for query in queries:
                    self.connection.execute(query)

    async def as_a_block(self) -> None:
        if self.colour == "coroutine":
            async with self.connection:
                pass
        else:
            with self.connection:
                pass


async def lent(driver: PostgresDriver, colour: str, act: Act, *, ack: bool = True, trail: bytes = b"") -> Any:
    """Take job `a`, let the handler act, and commit, or roll back; returns what the commit returned."""
    await driver.enqueue([JobRecord(id="a", type="t")], NOW)
    (held,) = await driver.reserve(["default"], NOW, LEASE, 1)
    if colour == "coroutine":
        shared = driver.transaction(held.lease)
        try:
            async with shared as connection:
                await act(Given(connection, colour))
            return await shared.commit(Ack(held.lease, trail=trail), NOW) if ack else None
        finally:
            await shared.rollback()
    plain = driver.transaction_sync(held.lease)
    try:
        with plain as connection:
            await act(Given(connection, colour))
        return plain.commit(Ack(held.lease, trail=trail), NOW) if ack else None
    finally:
        plain.rollback()


def on(address: str, colour: str, act: Act, *, ack: bool = True, dsn: str = "") -> tuple[Any, State, list[int]]:
    """The result, the state of the job, and the orders that are stored."""

    async def live() -> tuple[Any, State]:
        async with opened(address + dsn) as (driver,):
            answer = await lent(driver, colour, act, ack=ack)
            return answer, (await driver.inspect("a", NOW)).state

    answer, state = asyncio.run(asyncio.wait_for(live(), 60))
    with psycopg.connect(address) as connection:
        return answer, state, [row[0] for row in connection.execute("select number from orders order by 1")]


@pytest.mark.parametrize("colour", COLOURS)
def test_the_trail_is_committed_with_the_ack(address, colour):
    async def live():
        async with opened(address) as (driver,):
            assert await lent(driver, colour, lambda given: given.do("select 1"), trail=b"earlier") is None
            return (await driver.inspect("a", NOW)).job

    job = asyncio.run(live())
    assert (job.trail, job.began_at) == (b"earlier", NOW)


@pytest.mark.parametrize("colour", COLOURS)
def test_an_inner_transaction_is_a_savepoint(address, colour):
    async def act(given):
        await given.inner("insert into orders values (1)")
        with pytest.raises(psycopg.errors.UndefinedTable):
            await given.inner("insert into orders values (2)", "select * from nowhere")
        await given.do("insert into orders values (3)")

    assert on(address, colour, act, ack=False)[1:] == (State.INFLIGHT, [])
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("delete from taskharbor.jobs")
    assert on(address, colour, act) == (None, State.DONE, [1, 3])


ENDS = (
    "commit", "COMMIT AND CHAIN", "end", "/* a ; */ Commit work", "-- no\ncommit", "rollback", "abort",
    "ROLLBACK AND CHAIN", "insert into orders values (9); commit", "commit; begin", "prepare transaction 'x'", "; end;",
    "commit prepared 'x'", "/* /* x */ */ commit",
)  # fmt: skip
HARMLESS = (
    "select 'commit; commit'", "select $x$ ; commit $x$", 'select 1 as "; commit"', "select case when true then 1 end",
    "select e'\\'; commit'", "select 1 -- ; commit", "select 1 /* ; commit; */", "select 1; select 2",
    "/* /* commit */ ; commit */ select 1",
)  # fmt: skip


@pytest.mark.left_to("full", except_for=lanes.Chosen("commit()", "a block"))
@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("how", ["commit()", "rollback()", "close()", "a block", *ENDS])
def test_no_statement_of_a_handler_ends_the_transaction(address, colour, how):
    async def act(given):
        await given.do("insert into orders values (1)")
        with pytest.raises(psycopg.ProgrammingError, match="the transaction belongs to the job"):
            await given.tries(how)
        await given.do("insert into orders values (2)")

    assert on(address, colour, act, ack=False)[1:] == (State.INFLIGHT, [])
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("delete from taskharbor.jobs")
    assert on(address, colour, act) == (None, State.DONE, [1, 2])


def test_statements_that_end_a_transaction_are_recognised(address):
    assert all(would_end(text) for text in ENDS)
    with psycopg.connect(address) as connection:
        for text in (*HARMLESS, "savepoint a; rollback to a; rollback work to savepoint a", "prepare x as select 1"):
            assert not would_end(text), text
            connection.execute(text.encode())
            assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("how", ["commit", "rollback"])
def test_ending_the_transaction_in_another_way_is_noticed(address, colour, how):
    """A cursor of another class is not checked. What it committed stays; the job is not done."""

    async def act(given):
        await given.do("insert into orders values (1)")
        kind = psycopg.AsyncRawCursor if colour == "coroutine" else psycopg.RawCursor
        done: Any = kind(given.connection).execute(how)
        if colour == "coroutine":
            await done
        with pytest.raises(psycopg.InterfaceError, match="has ended the transaction of its job"):
            await given.do("insert into orders values (2)")

    answer, state, orders = on(address, colour, act)
    assert isinstance(answer, TransactionFailed)
    assert "has ended the transaction" in str(answer.__cause__)
    assert (state, orders) == (State.INFLIGHT, [1] if how == "commit" else [])


REFUSED: dict[str, tuple[list[str], str]] = {
    "a deferred constraint": (["insert into orders values (1), (1)"], "duplicate key value"),
    "an error that was swallowed": (["insert into lines values (1), (1)"], "went on after .* UniqueViolation: dup"),
    "read only": (["set transaction read only"], "read-only transaction"),
    "a timeout of the handler's": (
        ["set local idle_in_transaction_session_timeout = 1", "wait"],
        "idle-in-transaction|closed the connection",  # its words may be overtaken by the end of the connection
    ),
}


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("why", REFUSED)
def test_a_commit_that_is_refused_is_a_failure_with_its_text(address, colour, why):
    """Through a worker: an attempt with its text, the retry policy, and in the end the dead letter queue."""
    queries, words = REFUSED[why]
    tried: list[int] = []

    def connections() -> int:
        with psycopg.connect(address) as connection:
            query = "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in%'"
            return int((connection.execute(query).fetchone() or (0,))[0])

    async def act(given: Given) -> None:
        tried.append(1)
        for query in queries:
            if query == "wait":
                while await asyncio.to_thread(connections):
                    pass
            else:
                with contextlib.suppress(psycopg.Error):
                    await given.do(query)

    async def coroutine(ctx: JobContext) -> None:
        async with ctx.transaction() as connection:
            await act(Given(connection, colour))

    def function(ctx: JobContext) -> None:
        with ctx.transaction() as connection:
            asyncio.run(act(Given(connection, colour)))

    async def live() -> None:
        async with opened(address) as (driver,):
            bench = Bench(driver)
            worker = bench.worker(retry=Fixed(0))
            worker.register("t", coroutine if colour == "coroutine" else function)
            await bench.enqueue(job("j", max_attempts=2))
            await worker.arun(until_empty=True)
            info = await bench.info("j")
            assert (len(tried), info.state, info.job.attempts, info.job.lost) == (2, State.DLQ, 2, 0)
            assert re.search(words, info.job.last_error), info.job.last_error

    run(live())
    with psycopg.connect(address) as connection:
        assert connection.execute("select count(*) from orders").fetchone() == (0,)


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("default", ["repeatable read", "serializable"])
def test_the_isolation_is_ours(address, colour, default):
    """In a stricter one the ack would miss jobs that were made dependent since, and that its lease was extended:
    one would wait for ever, the other would never commit."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"alter role harbor in database {connection.info.dbname} set "
                           f"default_transaction_isolation = '{default}'")  # fmt: skip

    async def act(given):
        with pytest.raises(psycopg.Error, match=r"must (not be called in a subtransaction|be called before any query)"):
            await given.inner(f"set transaction isolation level {default}")
        with pytest.raises(psycopg.ProgrammingError, match="can't change"):
            await given.set_isolation()
        await given.do("insert into orders values (1)")
        async with opened(address) as (other,):
            await other.enqueue([JobRecord(id="b", type="t", depends_on=("a",))], NOW)
            (held,) = (await other.list(now=NOW, state=State.INFLIGHT)).items
            assert held.job.id == "a"

    assert on(address, colour, act) == (None, State.DONE, [1])

    async def state() -> State:
        async with opened(address) as (driver,):
            return (await driver.inspect("b", NOW)).state

    assert asyncio.run(state()) == State.READY


@pytest.mark.parametrize("colour", COLOURS)
def test_a_heartbeat_during_the_transaction(address, colour):
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            f"alter database {connection.info.dbname} set default_transaction_isolation = 'serializable'"
        )

    async def act(given):
        await given.do("select count(*) from orders")
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("update taskharbor.jobs set wake = wake + 1, due = due + 1")
        await given.do("insert into orders values (1)")

    assert on(address, colour, act) == (None, State.DONE, [1])


@pytest.mark.parametrize("colour", COLOURS)
def test_the_first_statement_cannot_choose_the_isolation(address, colour):
    async def act(given):
        await given.do("set transaction isolation level serializable")

    with pytest.raises(psycopg.Error, match="must be called before any query"):
        on(address, colour, act)


@pytest.mark.parametrize("colour", COLOURS)
def test_statement_timeout_does_not_apply_to_the_handler(address, colour):
    """The ack has the store's limits again, whatever the handler has set: here it has to wait for its job."""
    holder = psycopg.connect(address)

    def let_go_when_waited_for():
        with psycopg.connect(address, autocommit=True) as connection:
            while connection.execute("select from pg_locks where not granted").fetchone() is None:
                pass
        holder.close()

    async def act(given):
        for name in ("statement_timeout", "lock_timeout"):
            cursor = await given.do(f"show {name}")
            found = cursor.fetchone()
            assert (await found if colour == "coroutine" else found) == ("0",)
        await given.do("insert into orders values (1)")
        holder.execute("select from taskharbor.jobs for key share")
        threading.Thread(target=let_go_when_waited_for).start()
        await given.do("set local lock_timeout = 1")

    assert on(address, colour, act, dsn="?statement_timeout=20s") == (None, State.DONE, [1])


def rows_as_dicts(connection):
    connection.row_factory = dict_row


def another_cursor(connection):
    asynchronous = isinstance(connection, psycopg.AsyncConnection)
    connection.cursor_factory = psycopg.AsyncRawCursor if asynchronous else psycopg.RawCursor


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("change", [rows_as_dicts, another_cursor])
def test_settings_of_a_handler_do_not_affect_the_ack(address, colour, change):
    async def act(given):
        await given.do("insert into orders values (1)")
        change(given.connection)
        await given.do("set local search_path = nowhere")

    assert on(address, colour, act) == (None, State.DONE, [1])
