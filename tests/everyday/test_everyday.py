"""Everyday operation on every durable store: nothing acknowledged is lost, and nothing runs twice without a reason."""

import sqlite3
from contextlib import closing

import psycopg
import pytest

from tests import lanes
from tests.everyday.scene import Scene
from tests.flow.stores import DURABLE, STORES


@pytest.mark.parametrize("store", DURABLE)
def test_nothing_is_lost_while_everything_comes_and_goes(store, tmp_path):
    dsn = STORES[store](tmp_path) or pytest.fail(f"{store} cannot run here")
    scene = Scene(dsn, tmp_path, lanes.seed())
    try:
        scene.play(rounds=6, seconds=lanes.figure(test=0, chaos=300))
    finally:
        scene.close()
    assert scene.lost() == set()
    assert scene.out_of_nothing() == set()
    assert scene.unexplained() == {}
    assert [look for look in scene.looks if look[1] not in (0, 1) or "Traceback" in look[2]] == []
    if store == "sqlite":
        with closing(sqlite3.connect(tmp_path / "harbor.db")) as file:
            assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    if store == "postgresql":
        with psycopg.connect(dsn) as connection:
            found = connection.execute("select deadlocks from pg_stat_database where datname = current_database()")
            assert found.fetchone() == (0,)
