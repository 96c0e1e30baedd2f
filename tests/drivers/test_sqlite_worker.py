"""A worker on SQLite whose handlers share a transaction with their ack; what all stores do is in test_store_worker."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from taskharbor import JobContext
from taskharbor.drivers.sqlite import SqliteDriver
from taskharbor.policy.retry import Fixed
from tests.worker.workbench import Bench, job, run

pytestmark = pytest.mark.lane("sqlite")


@pytest.fixture
def on_file(tmp_path: Any) -> Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]:
    def go(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        async def live() -> None:
            driver = SqliteDriver(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal")
            await driver.open()
            try:
                await scenario(Bench(driver))
            finally:
                await driver.close()

        run(live())

    return go


@pytest.mark.parametrize("coroutine", [True, False])
def test_a_handler_shares_a_transaction_with_its_ack(on_file, coroutine):
    async def scenario(bench: Bench) -> None:
        worker = bench.worker(retry=Fixed(0))
        tried: list[int] = []

        async def pays(ctx: JobContext) -> None:
            tried.append(1)
            async with ctx.transaction() as connection:
                connection.execute("CREATE TABLE IF NOT EXISTS payments (id INTEGER PRIMARY KEY)")
                connection.execute("INSERT INTO payments DEFAULT VALUES")
            if len(tried) == 1:
                raise ValueError("after the block: everything is undone")

        def pays_plainly(ctx: JobContext) -> None:
            tried.append(1)
            with ctx.transaction() as connection:
                connection.execute("CREATE TABLE IF NOT EXISTS payments (id INTEGER PRIMARY KEY)")
                connection.execute("INSERT INTO payments DEFAULT VALUES")
            if len(tried) == 1:
                raise ValueError("after the block: everything is undone")

        worker.register("t", pays if coroutine else pays_plainly)
        await bench.enqueue(job("j"))
        await worker.arun(until_empty=True)
        assert len(tried) == 2
        assert (await bench.info("j")).state == "done"
        driver: Any = bench.driver
        rows = await driver.database.read(lambda session: session.all("SELECT id FROM payments"))
        assert rows == [(1,)]

    on_file(scenario)
