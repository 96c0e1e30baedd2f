"""Figures on Postgres: what is too old goes faster than new ones come, and one queue is read by an index."""

import asyncio
from datetime import timedelta

import psycopg
import pytest

from taskharbor.drivers import Figures
from taskharbor.drivers.postgres import PostgresDriver
from tests.drivers.head_stores import NOW, PLACES

pytestmark = pytest.mark.lane("postgres")
DAY = timedelta(days=1)
NAMES = 40


def busy(queues: int, minute: timedelta) -> list[Figures]:
    """A minute of many queues, each with many names."""
    return [Figures(NOW + minute, f"q{at}", {f"n{name:02}": 1 for name in range(NAMES)}) for at in range(queues)]


def test_a_call_forgets_more_than_it_adds(tmp_path):
    address = PLACES["postgres"].empty(tmp_path)

    async def story() -> None:
        driver = PostgresDriver(address)
        await driver.open()
        for minute in range(3):
            await driver.add_figures(busy(100, timedelta(minutes=minute)), NOW)
        await driver.add_figures(busy(100, 10 * DAY), NOW + 10 * DAY)
        await driver.close()

    asyncio.run(story())
    with psycopg.connect(address, autocommit=True) as connection:
        found = connection.execute(
            "select count(*) filter (where n = 1 and minute < %s), count(*) from taskharbor.figures",
            (int((NOW + DAY).timestamp()) * 1_000_000,),
        ).fetchone()
        assert found == (100 * NAMES, 200 * NAMES)  # of 12,000 that were too old
        connection.execute("analyze taskharbor.figures")
        plan = connection.execute(
            "explain select * from taskharbor.figures where queue = 'q7' and minute > 0 and minute < 99999999999999999"
        ).fetchall()
        assert "figures_queue" in str(plan), plan
