"""The contract on one connection of the caller's, where calls are savepoints of the transaction that is open there.

So Django's test helpers run jobs, and so its blocking calls read. `left_out` says what one connection cannot do.
"""

import functools
import itertools
import re
import sqlite3

import psycopg
import pytest

from taskharbor.conformance import DriverCases, all_cases
from taskharbor.drivers.postgres import PostgresDriver
from taskharbor.drivers.sqlite import SqliteDriver, schema
from tests.drivers.sqlite_files import fast_folder
from tests.servers import postgres

_number = itertools.count()
LIFE = re.compile("test_(enqueue|settle|flows)_")


def in_a_life(name: str) -> bool:
    """Whether a test is about what most jobs go through: these run in `make test` too."""
    return LIFE.match(name) is not None


def left_out() -> list[str]:
    """Tests of what such a driver does not offer.

    Nothing wakes a waiting worker: `wait` polls. One thread at a time uses the connection. Nothing but the transaction
    sees its records, so no other program can damage them.
    """
    cases = [(case.theme, case.name) for case in all_cases()]
    themes = ("wait", "damaged", "damaged_fields")
    other = re.compile("wakes|woken|in_threads|damaged_record")
    found = [(theme, name) for theme, name in cases if theme in themes or other.search(name)]
    return [f"test_{theme}_{name}" for theme, name in (*found, ("argument_bounds", ASKED_BESIDE_OTHERS))]


ASKED_BESIDE_OTHERS = "queues_that_cannot_exist_beside_others"  # ends with a wait that is woken


@pytest.mark.lane("conformance-sqlite")
@pytest.mark.left_to("full", except_for=in_a_life)
class TestSqliteOnConnection(DriverCases):
    @pytest.fixture(autouse=True)
    def _folder(self, fast_sqlite_folder):
        self.folder = fast_sqlite_folder
        self.connection = None
        yield
        if self.connection is not None:
            self.connection.close()

    def make_driver(self):
        path = f"{self.folder}/connection-{next(_number)}.db"
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("BEGIN")
        schema.prepare(self.connection, path, "auto")
        return SqliteDriver(f"sqlite:///{path}").on_connection(lambda: self.connection)


@functools.cache
def store() -> str:
    return postgres.shared().address(postgres.shared().store())


@pytest.mark.lane("conformance-postgres")
@pytest.mark.left_to("full", except_for=in_a_life)
class TestPostgresOnConnection(DriverCases):
    @pytest.fixture(autouse=True)
    def _connection(self):
        with psycopg.connect(store()) as self.connection:
            self.connection.execute("select 1")
            yield
            self.connection.rollback()

    def make_driver(self):
        return PostgresDriver(store()).on_connection(lambda: self.connection)


for _name in left_out():
    for _suite in (TestSqliteOnConnection, TestPostgresOnConnection):
        setattr(_suite, _name, None)  # pytest collects functions

fast_sqlite_folder = fast_folder
