"""A handler that cancels every task of the loop, as programs do that end one: its worker goes on."""

import asyncio
from pathlib import Path

import pytest

from taskharbor import Fixed, Harbor


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
