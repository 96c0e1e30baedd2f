"""The contract through pgbouncer in transaction mode: nothing depends on a session."""

import functools

import pytest

from taskharbor.conformance import DriverCases
from taskharbor.drivers.postgres import PostgresDriver
from tests.drivers.test_conformance_postgres import damage
from tests.servers import postgres


@functools.cache
def store() -> str:
    return postgres.shared().database()


@pytest.mark.lane("pgbouncer")
class TestPgbouncer(DriverCases):
    def make_driver(self):
        server = postgres.shared()
        postgres.empty(server.address(store()))
        return PostgresDriver(f"{server.address(store(), server.pgbouncer())}?pgbouncer=1")

    def damage(self, driver, id, how):
        damage(postgres.shared().address(store()), id, how)
