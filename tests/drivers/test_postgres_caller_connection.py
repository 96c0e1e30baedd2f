"""What a caller's connection must be, on every kind of it: inside a transaction, and to the database of the jobs.

Whatever is refused leaves the caller's transaction as it was: what is written before and after it is committed.
"""

import asyncio
import contextlib
import functools
from typing import Any

import psycopg
import pytest

from taskharbor import Harbor
from taskharbor.drivers import BackendUnavailable, DriverError, JobRecord, StoreMissing, WrongConnection
from taskharbor.drivers.connections import asking
from taskharbor.drivers.postgres import PostgresDriver, caller_connection
from tests import lanes
from tests.drivers.postgres_ways import NOW, every_way
from tests.servers import postgres

pytestmark = pytest.mark.lane("postgres")


@functools.cache
def database(number: int) -> str:
    address = postgres.shared().address(postgres.shared().database())
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("create table orders (number integer)")
    return address


class Store:
    """A schema of its own in a database that is shared, and beside it an empty table of the application's."""

    made = 0

    def __init__(self, schema: str = "") -> None:
        Store.made += 1
        self.schema = schema or f"s{Store.made}"
        self.address = database(1)
        self.dsn = f"{self.address}?schema={self.schema}"
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute("delete from orders")

    def driver(self) -> PostgresDriver:
        return PostgresDriver(self.dsn)

    def stored(self) -> tuple[list[Any], list[Any]]:
        """The application's rows, and the jobs."""
        with psycopg.connect(self.address) as connection:
            orders = [number for (number,) in connection.execute("select number from orders order by 1").fetchall()]
            if connection.execute("select to_regclass(%s)", (f"{self.schema}.jobs",)).fetchone() == (None,):
                return orders, []
            rows = connection.execute(f"select id from {self.schema}.jobs order by 1".encode()).fetchall()
            return orders, [id for (id,) in rows]


@pytest.fixture
def store():
    return Store()


@functools.cache
def made(address: str) -> None:
    async def open() -> None:
        driver = PostgresDriver(f"{address}?schema=ready")
        await driver.open()
        await driver.close()

    asyncio.run(open())


@pytest.fixture
def ready():
    """A store whose schema is there, and empty."""
    store = Store("ready")
    made(store.address)
    postgres.empty(store.address, "ready")
    return store


def within(coroutine: Any) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 60))


@every_way
def test_the_first_job_creates_the_schema_on_a_connection_of_our_own(store, way):
    async def live():
        async with way(store.address, False) as caller:
            await caller.write("insert into orders values (1)")
            await caller.store(store.driver(), "a")
            assert store.stored() == ([], [])
            await caller.store(store.driver(), "b")
            await caller.commit()

    within(live())
    assert store.stored() == ([1], ["a", "b"])


REFUSED: dict[str, tuple[type[Exception], str]] = {
    "no schema": (StoreMissing, "taskharbor migrate"),
    "another database": (WrongConnection, "but the jobs are kept in '.*': one transaction cannot hold both"),
    "not there": (BackendUnavailable, "does not exist"),
    "no right to create": (DriverError, "taskharbor migrate"),
}


@pytest.mark.left_to("full", except_for=lanes.Chosen("no schema", "another database"))
@every_way
@pytest.mark.parametrize("why", REFUSED)
def test_a_refused_job_leaves_the_transaction_usable(store, ready, way, why):
    kind, words = REFUSED[why]
    dsn = store.dsn
    if why == "no schema":
        dsn = f"{dsn}&migrate=manual"
    elif why == "another database":
        store = ready
        dsn = store.dsn.replace(store.address, database(2))
        made(database(2))  # both have a schema of that name
    elif why == "not there":
        dsn = dsn.replace("?", "nowhere?")
    else:
        role(store.address, "guest")
        dsn = dsn.replace("harbor@", "guest@")

    async def live():
        async with way(store.address, False) as caller:
            await caller.write("insert into orders values (1)")
            with pytest.raises(kind, match=words):
                await caller.store(PostgresDriver(dsn), "a")
            await caller.write("insert into orders values (2)")
            await caller.commit()

    within(live())
    assert store.stored() == ([1, 2], [])


def role(address: str, name: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        if not connection.execute("select 1 from pg_roles where rolname = %s", (name,)).fetchone():
            connection.execute(f"create role {name} login".encode())


@every_way
def test_a_connection_in_autocommit_mode_is_refused(ready, way):
    async def live():
        async with way(ready.address, True) as caller:
            with pytest.raises(WrongConnection, match=r"got a .* in autocommit mode.* or leave connection= out"):
                await caller.store(ready.driver(), "a")
            await caller.write("insert into orders values (1)")

    within(live())
    assert ready.stored() == ([1], [])


def test_a_block_of_psycopg_on_a_connection_in_autocommit_mode_is_a_transaction(ready):
    with psycopg.connect(ready.address, autocommit=True) as connection:
        with connection.transaction():
            ready.driver().enqueue_on_sync(connection, [JobRecord(id="a", type="work")], NOW)
        with contextlib.suppress(ZeroDivisionError), connection.transaction():
            ready.driver().enqueue_on_sync(connection, [JobRecord(id="b", type="work")], NOW)
            raise ZeroDivisionError
    assert ready.stored() == ([], ["a"])


@every_way
def test_a_connection_is_checked_once(ready, way, monkeypatch):
    """Pooled connections serve many transactions: only the first pays for the check."""
    looks: list[Any] = []
    monkeypatch.setattr(caller_connection, "_note", counted(caller_connection._note, looks))

    async def live():
        async with way(ready.address, False) as caller:
            for id in "abc":
                await caller.store(ready.driver(), id)
            await caller.commit()

    within(live())
    assert len(looks) == 1


def test_a_later_connection_to_the_same_server_costs_one_statement(ready, monkeypatch):
    """As in Django without CONN_MAX_AGE, where each request connects."""
    asked: list[Any] = []
    monkeypatch.setattr(caller_connection, "asking", lambda inner: counted(asking(inner), asked))
    statements = list[int]()
    for id in "abc":
        asked.clear()
        with psycopg.connect(ready.address) as connection:
            ready.driver().enqueue_on_sync(connection, [JobRecord(id=id, type="work")], NOW)
        statements.append(len(asked))
    assert statements[1:] == [1, 1]


def counted(function: Any, calls: list[Any]) -> Any:
    def call(*args: Any) -> Any:
        calls.append(args)
        return function(*args)

    return call


def test_a_recreated_database_is_recognised():
    """Under the same address stands another database, or the same without its schema: as in the tests of a program."""
    server = postgres.shared()
    name = server.database()
    address = server.address(name)
    for change in ("", "drop schema taskharbor cascade", "drop database"):
        if change == "drop database":
            with psycopg.connect(server.address(), autocommit=True) as admin:
                admin.execute(f"drop database {name}".encode())
                admin.execute(f"create database {name}".encode())
        elif change:
            with psycopg.connect(address, autocommit=True) as admin:
                admin.execute(change.encode())
        with psycopg.connect(address) as connection:
            PostgresDriver(address).enqueue_on_sync(connection, [JobRecord(id="a", type="work")], NOW)


def test_a_role_that_may_not_read_the_system_identifier_can_enqueue(ready):
    """It may use the tables, on a server where few roles may call pg_control_system."""
    store = ready
    role(store.address, "clerk")
    clerk = store.address.replace("harbor@", "clerk@")
    with psycopg.connect(store.address, autocommit=True) as connection:
        for statement in (
            "revoke execute on function pg_control_system() from public",
            f"grant usage on schema {store.schema} to clerk",
            f"grant select, insert, update, delete on all tables in schema {store.schema} to clerk",
            f"grant usage on all sequences in schema {store.schema} to clerk",
        ):
            connection.execute(statement.encode())
        try:
            for id, dsn in enumerate((store.dsn, store.dsn.replace("harbor@", "clerk@"))):
                with psycopg.connect(clerk) as caller:
                    PostgresDriver(dsn).enqueue_on_sync(caller, [JobRecord(id=f"{id}", type="work")], NOW)
        finally:
            connection.execute("grant execute on function pg_control_system() to public")
    assert store.stored() == ([], ["0", "1"])


def test_the_example_of_the_documentation(store):
    """The first use of a harbor is within a transaction."""
    harbor = Harbor(store.dsn)

    @harbor.task
    def send(number: int) -> None: ...

    with psycopg.connect(store.address) as connection:
        connection.execute("insert into orders values (1)")
        made = send.options(connection=connection).enqueue(1)
    assert store.stored() == ([1], [made.id])
    with psycopg.connect(store.address, autocommit=True) as connection, pytest.raises(WrongConnection):
        send.options(connection=connection).enqueue(2)
    harbor.close()
