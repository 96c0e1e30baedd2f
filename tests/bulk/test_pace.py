"""A worker keeps the pace of an operation with a spread: it looks when the next slice is due, not seconds later."""

import asyncio

import pytest

from taskharbor import State
from taskharbor.worker.operations import ASK_INTERVAL_S, Operations
from tests.bulk.bench import Store, run
from tests.worker.workbench import parts_of


@pytest.mark.parametrize("spread", [6, 20])
def test_one_worker_requeues_within_the_spread(spread: int) -> None:
    async def test() -> None:
        store = Store()
        await store.kill(40)
        store.later(1)
        operation = await store.client.dead().arequeue(spread=spread)
        service = Operations(parts_of(store.driver, store.clock))
        service.start()
        waited = 0.0
        while (await operation.aprogress()).status == "running":
            while not store.clock.sleepers:
                await asyncio.sleep(0)
            store.clock.advance(0.1)
            waited += 0.1
            for _ in range(20):
                await asyncio.sleep(0)
            assert waited < 5 * spread
        await service.stop()
        assert waited <= ASK_INTERVAL_S + spread + 1, f"{waited:.1f} s"
        assert State.DLQ not in (await store.states()).values()

    run(test())
