"""A handler that cancels every task of the loop, as programs do that end one: its worker goes on."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest

from taskharbor import Fixed, Harbor
from taskharbor.drivers import BackendUnavailable, Driver, Outcome, TaskHarborError, open_driver
from taskharbor.drivers.wrapped import WrappedDriver


@pytest.mark.parametrize("awaits", [True, False])
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_the_worker_of_a_handler_that_cancels_all_tasks_goes_on(store: str, awaits: bool, tmp_path: Path) -> None:
    harbor = Harbor("memory://" if store == "memory" else f"sqlite:///{tmp_path}/jobs.db")
    bombs = []

    @harbor.task(retry=Fixed(0))
    async def bomb() -> None:
        bombs.append(1)
        if len(bombs) == 1:
            for task in asyncio.all_tasks():
                task.cancel()
            if awaits:
                await asyncio.sleep(0)

    @harbor.task(retry=Fixed(0))
    async def good() -> str:
        for _ in range(3):
            await asyncio.sleep(0)
        return "good"

    jobs = [good.enqueue(), good.enqueue(), bomb.enqueue(), good.enqueue()]  # the last begins after the bomb
    harbor.worker().run(until_empty=True)
    assert [job.status() for job in jobs] == ["done"] * 4
    assert len(bombs) == (2 if awaits else 1)
    assert jobs[-1].info().job.attempts == 0, "it had not begun: nothing is counted"
    harbor.close()


def test_an_outcome_that_waits_for_its_record_is_settled_all_the_same() -> None:
    """Another call has the record locked while a handler cancels every task."""
    settled = asyncio.Event()

    class Locked(WrappedDriver):
        tries = 0

        async def settle(self, outcomes: Sequence[Outcome], now: datetime) -> list[TaskHarborError | None]:
            Locked.tries += 1
            if Locked.tries == 1:
                settled.set()
                return [BackendUnavailable("it is locked") for _ in outcomes]
            return await super().settle(outcomes, now)

        def sibling(self) -> Driver:
            return Locked(self.inner.sibling())

    harbor = Harbor(Locked(open_driver("memory://")))

    @harbor.task
    async def quick() -> None: ...

    @harbor.task(retry=Fixed(0))
    async def bomb() -> None:
        await settled.wait()
        await asyncio.sleep(0)  # the settler gets the answer
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    jobs = [bomb.enqueue(), quick.enqueue()]

    harbor.worker().run(until_empty=True)
    assert [job.status() for job in jobs] == ["done"] * 2
    harbor.close()
