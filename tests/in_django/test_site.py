"""The tests of a Django project (site/), run by Django itself: SQLite in memory, in a file, PostgreSQL, Redis."""

import json
from pathlib import Path

import pytest

from tests.in_django.site_program import BACKEND, run
from tests.servers import postgres, redis

CASES = ("shop.cases.transactions", "shop.cases.results")


def test_in_memory() -> None:
    assert "OK" in run("test", *CASES, "shop.cases.checks", SITE_DATABASE=":memory:")


def test_a_lifespan(tmp_path: Path) -> None:
    options = {"database": "default", "lifespan": "supply.resources.opened"}
    tasks = {"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": options}}
    environment = {"SITE_TASKS": json.dumps(tasks), "SITE_LIFESPAN": str(tmp_path / "lifespans")}
    assert "OK" in run("test", "supply.cases", SITE_DATABASE=":memory:", **environment)


def test_a_file(tmp_path: Path) -> None:
    connections = json.dumps({"TEST": {"NAME": str(tmp_path / "test.sqlite3")}})
    run("test", CASES[0], SITE_DATABASE=str(tmp_path / "db"), SITE_CONNECTIONS=connections)


@pytest.mark.left_to("full")
def test_postgres() -> None:
    """Django drops the test databases at the end: no handler has left a connection open."""
    database = postgres.shared().address(postgres.shared().database())
    assert "OK" in run("test", *CASES, SITE_DATABASE=database)


def test_jobs_elsewhere() -> None:
    redis.shared().empty()
    dsn = redis.shared().url
    tasks = {
        "default": {"BACKEND": BACKEND, "QUEUES": ["default", "mail"], "OPTIONS": {"dsn": dsn}},
        "now": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"dsn": dsn, "enqueue": "now"}},
    }
    assert "OK" in run("test", "shop.cases.elsewhere", SITE_DATABASE=":memory:", SITE_TASKS=json.dumps(tasks))
