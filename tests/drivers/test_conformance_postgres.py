"""The Postgres driver keeps the contract: every case of the suite, on a real server, each on an empty store."""

import functools

import psycopg
import pytest

from taskharbor.conformance import DriverCases
from taskharbor.drivers.postgres import PostgresDriver
from tests import lanes
from tests.servers import postgres

DAMAGES = {
    "type": "type = null",
    "payload": "payload = null",
    "number": "attempts = null",
    "state": "state = 99",
}
# What the columns can hold of each kind of damage; a value that PostgreSQL refuses to store is no damage.
VALUES = {
    "missing": "null",
    "empty": "''",
    "word": "'many'",
    "bytes": "'\\xfffe'",
    "negative": "'-1'",
    "huge": f"'{2**62}'",
    "fraction": "'1.5'",
    "infinite": "'NaN'",
    "nested": "'[[\"x\"]]'",
}
NESTED = {"depends_on": "'{{x},{y}}'", "metadata": """'{"a": [["x"]]}'"""}
COLUMNS = {"group": "grp", "idempotency_key": "key", "ran_on": "worker", "has_memos": "memos"}


@functools.cache
def store() -> str:
    return postgres.shared().database()


def damage(address: str, id: str, how: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        found = connection.execute(f"update taskharbor.jobs set {DAMAGES[how]} where id = %s".encode(), (id,))
        assert found.rowcount == 1


def damage_field(address: str, id: str, field: str, kind: str) -> bool:
    """Put a wrong value into a column of a job, if it can hold that."""
    value = NESTED.get(field, VALUES[kind]) if kind == "nested" else VALUES[kind]
    column = COLUMNS.get(field, field)
    with psycopg.connect(address, autocommit=True) as connection:
        try:
            for table in ("jobs", "history"):
                connection.execute(f"update taskharbor.{table} set {column} = {value} where id = %s".encode(), (id,))
        except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError):
            return False
    return True


class PostgresCases(DriverCases):
    """For each way to run them a class of its own."""

    def make_driver(self):
        postgres.empty(postgres.shared().address(store()))
        return PostgresDriver(postgres.shared().address(store()))

    def damage(self, driver, id, how):
        damage(postgres.shared().address(store()), id, how)

    def damage_field(self, driver, id, field, kind):
        return damage_field(postgres.shared().address(store()), id, field, kind)


@pytest.mark.lane("conformance-postgres")
class TestPostgres(PostgresCases):
    damage_samples = lanes.figure(test=5, full=200, chaos=1_000)
    damage_seed = lanes.seed()
