"""`taskharbor outbox sql`: the tables that `harbor.outbox.create` makes."""

import sqlite3
from contextlib import closing

import pytest

from taskharbor import Harbor
from tests.cli.shell import taskharbor


def test_the_sql_makes_the_same_tables() -> None:
    printed = taskharbor("outbox", "sql", "--dsn", "sqlite:///shop.db")
    assert printed.code == 0
    with closing(sqlite3.connect(":memory:")) as one, closing(sqlite3.connect(":memory:")) as other:
        one.executescript(printed.out)
        Harbor("memory://").outbox.create(other)
        tables = "select sql from sqlite_master where sql is not null order by sql"
        assert one.execute(tables).fetchall() == other.execute(tables).fetchall() != []


@pytest.mark.parametrize("dsn", ["redis://ada:secret@host/0", "nothing"])
def test_an_address_that_is_not_one_of_a_sql_database_is_refused(dsn: str) -> None:
    refused = taskharbor("outbox", "sql", "--dsn", dsn)
    assert refused.code == 2
    assert "secret" not in refused.err
    assert "expected" in refused.err
