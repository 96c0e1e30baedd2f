"""The canary of an operation: some jobs are tried first, and the rest follows only if they do well."""

from datetime import timedelta
from typing import Any

import pytest

from taskharbor import State
from taskharbor.drivers import Ack
from tests.bulk.bench import Store, run
from tests.bulk.test_operations import of


class TestCanary:
    def test_a_canary_that_does_well_lets_the_rest_follow(self) -> None:
        async def test() -> None:
            store = Store()
            ids = await store.kill(20)
            store.later(1)
            operation = await store.client.dead().arequeue(canary=3)
            await store.runner.run_one()
            assert of(await store.states(), State.READY) == ids[:3]
            for _ in range(5):  # they have not ended: it waits
                await store.to_next_slice(operation)
                await store.runner.run_one()
            assert of(await store.states(), State.READY) == ids[:3]
            batch = await store.driver.reserve(("default",), store.clock.now(), timedelta(seconds=5), 3, "w")

            await store.driver.settle([Ack(each.lease) for each in batch], store.clock.now())
            assert await store.finish(operation) == "done"
            assert of(await store.states(), State.READY) == ids[3:]
            assert (await operation.aprogress()).done == 20

        run(test())

    @pytest.mark.parametrize(("max_failures", "status"), [(0, "held"), (1, "held"), (2, "done")])
    def test_a_canary_that_dies_again_holds_the_rest(self, max_failures: int, status: str) -> None:
        async def test() -> None:
            store = Store()
            ids = await store.kill(10)
            store.later(1)
            operation = await store.client.dead().arequeue(canary=2, max_failures=max_failures)
            await store.runner.run_one()
            store.later(1)
            await store.die(2)
            assert await store.finish(operation) == status
            states = await store.states()
            assert of(states, State.DLQ) == (ids if status == "held" else ids[:2])
            assert (await operation.aprogress()).failures == 2

        run(test())

    def test_a_job_of_the_canary_that_is_skipped_is_replaced_and_no_more_are_sent(self) -> None:
        async def test() -> None:
            store = Store()
            ids = await store.kill(20)
            store.later(1)
            operation = await store.client.dead().arequeue(canary=5)
            requeued = store.driver.requeue

            async def requeue_late(wanted: Any, *given: Any, **options: Any) -> Any:
                if ids[0] in wanted:
                    await requeued(ids[:2], store.clock.now())  # another operator, in this very moment
                return await requeued(wanted, *given, **options)

            store.driver.requeue = requeue_late  # type: ignore[method-assign,assignment]  # a race, staged
            await store.runner.run_one()
            await store.runner.run_one()
            progress = await operation.aprogress()
            assert (progress.done, progress.skipped, progress.phase) == (5, 2, "await")
            assert of(await store.states(), State.READY) == ids[:7]

        run(test())

    @pytest.mark.parametrize("options", [{}, {"spread": 60}], ids=["at once", "spread"])
    def test_a_canary_as_large_as_the_limit_is_all(self, options: dict[str, Any]) -> None:
        async def test() -> None:
            store = Store()
            await store.kill(20)
            store.later(1)
            operation = await store.client.dead().arequeue(canary=5, limit=5, max_failures=5, **options)
            await store.runner.run_one()  # finds where the limit ends
            await store.runner.run_one()
            await store.die(5)
            assert await store.finish(operation) == "done"
            assert (await operation.aprogress()).done == 5

        run(test())

    def test_a_canary_larger_than_what_fits_is_all(self) -> None:
        async def test() -> None:
            store = Store()
            ids = await store.kill(2)
            store.later(1)
            operation = await store.client.dead().arequeue(canary=5)
            await store.runner.run_one()
            store.later(2)
            await store.driver.delete(ids)
            assert await store.finish(operation) == "done"

        run(test())

    def test_nothing_fits(self) -> None:
        async def test() -> None:
            store = Store()
            dead = store.client.dead()
            for operation in (await dead.arequeue(), await dead.arequeue(canary=3), await dead.arequeue(spread=60)):
                assert await store.finish(operation) == "done"
                assert (await operation.aprogress()).done == 0

        run(test())

    def test_a_canary_that_is_cancelled_holds_the_rest(self) -> None:
        async def test() -> None:
            store = Store()
            ids = await store.kill(5)
            store.later(1)
            operation = await store.client.dead().arequeue(canary=2)
            await store.runner.run_one()
            await store.driver.cancel(ids[:1], store.clock.now())
            await store.driver.delete(ids[1:2])
            assert await store.finish(operation) == "held"
            assert of(await store.states(), State.DLQ) == ids[2:]

        run(test())
