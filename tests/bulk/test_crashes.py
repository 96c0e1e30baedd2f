"""Operations whose runner dies at every call of the store: nothing is lost, done twice, or touched after the cut."""

from typing import Any

import pytest

from taskharbor import State
from taskharbor.drivers import Driver, WrappedDriver
from taskharbor.store.bulk.runner import OperationRunner
from tests import lanes
from tests.bulk.bench import Store, run


class Killed(BaseException):
    """The process is gone: nothing that the runner would do afterwards happens."""


class Mortal(WrappedDriver):
    """A driver that dies before or after the n-th call of a verb that changes or reads something."""

    VERBS = ("reserve", "list", "requeue", "delete", "cancel", "settle", "put_audit", "inspect")

    def __init__(self, inner: Driver, call: int, *, after: bool) -> None:
        super().__init__(inner)
        self._left = call
        self._after = after
        self.died = False

    async def around(self, verb: str, call: Any, args: Any) -> Any:
        self._left -= verb in self.VERBS
        last = verb in self.VERBS and self._left == 0
        if last and not self._after:
            self.died = True
            raise Killed
        result = await call()
        if last:
            self.died = True
            raise Killed
        return result


async def survives(options: dict[str, Any], call: int, after: bool) -> bool:
    """Run an operation whose first runner dies at that call; whether it lived that long."""
    store = Store()
    before = await store.kill(60)
    store.later(1)
    operation = await store.client.dead().arequeue(**options)
    late = await store.kill(7)
    mortal = Mortal(store.driver, call, after=after)
    runner = OperationRunner(mortal, store.clock, "mortal")
    try:
        for _ in range(40):
            if not await runner.run_one():
                await store.to_next_slice(operation)
            await end_canary(store, options)
            if (await operation.aprogress()).status.ended:
                break
    except Killed:
        pass
    for _ in range(200):
        if (await operation.aprogress()).status.ended:
            break
        if not await store.runner.run_one():
            await store.to_next_slice(operation)
        await end_canary(store, options)
    assert await operation.astatus() == "done"
    states = await store.states()
    assert sorted(id for id, state in states.items() if state is State.DLQ) == late
    for id in before:
        assert (await store.info(id)).job.deliveries <= 2, id  # died once, and ran at most once more
    (entry,) = [entry async for entry in store.client.audit()]
    assert entry.status == "done"
    return mortal.died


async def end_canary(store: Store, options: dict[str, Any]) -> None:
    """Let what was brought back be done, so that a canary can end."""
    from taskharbor.drivers import Ack
    from tests.bulk.bench import LEASE

    if options.get("canary"):
        batch = await store.driver.reserve(("default",), store.clock.now(), LEASE, 100, "w")
        await store.driver.settle([Ack(each.lease) for each in batch], store.clock.now())


@pytest.mark.left_to("full", except_for=lanes.Chosen("plain", "canary-after"))
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("options", [{}, {"spread": 20}, {"canary": 5}], ids=["plain", "spread", "canary"])
def test_a_runner_that_dies_at_any_call(options: dict[str, Any], after: bool) -> None:
    async def test() -> None:
        call = 1
        while await survives(options, call, after):
            call += 1
        assert call > 4  # it died at several calls, and once at none

    run(test())


@pytest.mark.left_to("full", except_for=lanes.Chosen("{}-after"))
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("options", [{}, {"spread": 20}, {"canary": 5, "max_failures": 5}], ids=str)
def test_a_runner_that_dies_at_any_call_keeps_to_the_limit(options: dict[str, Any], after: bool) -> None:
    async def test() -> None:
        call, died = 0, True
        while died:
            call += 1
            store = Store()
            await store.kill(60)
            store.later(1)
            operation = await store.client.dead().arequeue(limit=12, **options)
            mortal = Mortal(store.driver, call, after=after)
            runner = OperationRunner(mortal, store.clock, "mortal")
            back = set[str]()
            for _ in range(200):
                try:
                    ran = await runner.run_one()
                except Killed:
                    runner, ran = store.runner, True
                back |= {id for id, state in (await store.states()).items() if state is not State.DLQ}
                await end_canary(store, options)
                if (await operation.aprogress()).status.ended:
                    break
                if not ran:
                    await store.to_next_slice(operation)
            assert await operation.astatus() == "done"
            assert sorted(back) == [f"job-{number:06}" for number in range(1, 13)], call
            died = mortal.died
        assert call > 4

    run(test())
