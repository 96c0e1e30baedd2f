"""The Postgres driver keeps the contract: every case of the suite, on a real server, each on an empty store."""

import functools

import psycopg
import pytest

from taskharbor.conformance import DriverCases
from taskharbor.drivers.postgres import PostgresDriver
from tests.servers import postgres

DAMAGES = {
    "type": "type = null",
    "payload": "payload = null",
    "number": "attempts = null",
    "state": "state = 99",
}


@functools.cache
def store() -> str:
    return postgres.shared().database()


def damage(address: str, id: str, how: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        found = connection.execute(f"update taskharbor.jobs set {DAMAGES[how]} where id = %s".encode(), (id,))
        assert found.rowcount == 1


@pytest.mark.lane("conformance-postgres")
class TestPostgres(DriverCases):
    def make_driver(self):
        postgres.empty(postgres.shared().address(store()))
        return PostgresDriver(postgres.shared().address(store()))

    def damage(self, driver, id, how):
        damage(postgres.shared().address(store()), id, how)
