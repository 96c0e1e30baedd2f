"""Where a driver's store is, in a form by which a process in another folder and environment finds the same one."""

import os
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from taskharbor.drivers import open_driver
from taskharbor.drivers.postgres.options import parse
from taskharbor.drivers.registry import location_of

pytestmark = pytest.mark.lane("unit")


@pytest.fixture(autouse=True)
def _no_servers_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)


def located(dsn: str) -> str:
    return location_of(open_driver(dsn), dsn)


@pytest.mark.parametrize("name", ["jobs.db", "my jobs.db", "100%?.db", "sub/jobs.db", "ünï#.db"])
def test_a_path_is_that_of_the_folder_where_the_driver_was_made(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from urllib.parse import quote

    monkeypatch.chdir(tmp_path)
    dsn = f"sqlite:///{quote(name)}?synchronous=normal&retention=1h"
    driver: Any = open_driver(dsn)
    monkeypatch.chdir("/")
    again: Any = open_driver(location_of(driver, dsn))
    assert again.options == driver.options
    assert again.options.path == str(tmp_path / name)
    assert located(location_of(driver, dsn)) == location_of(driver, dsn)


@pytest.mark.parametrize(
    ("dsn", "environment", "expected"),
    [
        ("postgresql:///", {"PGHOST": "/run/pg", "PGDATABASE": "a b"}, {"host": "/run/pg", "dbname": "a b"}),
        ("postgresql:///app?schema=s", {"PGDATABASE": "other"}, {"dbname": "app"}),
        ("postgresql:///app?schema=s", {"PGPASSWORD": "p &=%+"}, {"dbname": "app", "password": "p &=%+"}),
        ("postgresql://u:p@h:7/d", {"PGHOST": "x", "PGUSER": "y", "PGPORT": "1"}, {"host": "h", "port": "7"}),
        ("postgresql://h/d", {"PGSSLMODE": "require", "PGOPTIONS": "-c x=y"}, {"sslmode": "require"}),
        ("postgresql:///?service=jobs", {"PGHOST": "never"}, {"service": "jobs"}),
        ("postgresql:///", {"PGSERVICE": "jobs", "PGHOST": "never"}, {"service": "jobs"}),
        ("postgresql://h/d", {}, {"host": "h", "dbname": "d"}),
    ],
)  # fmt: skip
def test_the_location_names_what_the_environment_sets_unless_the_dsn_does(
    dsn: str, environment: dict[str, str], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    location = located(dsn)
    for name in environment:
        monkeypatch.delenv(name)
    found = conninfo_to_dict(parse(location).address)
    assert {name: found[name] for name in expected} == expected
    assert "never" not in location
    assert parse(location).schema == parse(dsn).schema


def test_an_address_without_a_host_reaches_libpq_as_it_is() -> None:
    """It means the server of the environment, or the one behind the machine's socket."""
    assert parse("postgresql:///app").address == "postgresql:///app"
    assert parse("postgresql://").address == "postgresql://"
    assert parse("postgresql:///?host=/tmp").address == "postgresql:///?host=%2Ftmp"
    assert parse("postgresql://h/d?schema=s").address == "postgresql://h/d"


def test_others_are_where_their_dsn_says() -> None:
    for dsn in ("memory://shared", "redis://h:1/2"):
        assert located(dsn) == dsn
