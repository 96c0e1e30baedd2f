"""The start/stop skeleton of the worker's services, under stress."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from taskharbor.worker.service import Service


class Loop(Service):
    """Rests until it is asked to stop, and counts its turns."""

    def __init__(self, waiter: Callable[[], Coroutine[Any, Any, Any]] | None = None) -> None:
        super().__init__()
        self.waiter = waiter
        self.turns = 0
        self.ended = False

    async def run(self) -> None:
        while not self.stopping:
            self.turns += 1
            waiters = [asyncio.ensure_future(self.waiter())] if self.waiter else []
            await self.rest(*waiters)
        self.ended = True


class Broken(Service):
    async def run(self) -> None:
        raise LookupError("broken")


NO_TASK_LEFT = True  # a service leaves no task behind: tests/coroutines.py checks it


async def test_it_runs_from_start_to_stop():
    service = Loop()
    service.start()
    await asyncio.sleep(0)
    assert (service.turns, service.ended) == (1, False)
    await service.stop()
    assert (service.ended, service.task.done()) == (True, True)


async def test_a_stop_before_the_start_is_remembered():
    service = Loop()
    await service.stop()
    service.start()
    await service.task
    assert (service.turns, service.ended) == (0, True)


async def test_a_stop_right_after_the_start_ends_it():
    service = Loop()
    service.start()
    await service.stop()
    assert service.ended


async def test_concurrent_stops_all_wait_for_the_end():
    service = Loop()
    service.start()
    await asyncio.sleep(0)
    await asyncio.gather(*(service.stop() for _ in range(50)))
    assert service.ended
    await service.stop()


async def test_a_second_start_is_refused():
    service = Loop()
    service.start()
    with pytest.raises(RuntimeError, match="Loop was started already"):
        service.start()
    await service.stop()
    with pytest.raises(RuntimeError, match="Loop was started already"):
        service.start()


async def test_a_service_that_was_not_started_has_no_task():
    with pytest.raises(RuntimeError, match="Loop was not started"):
        _ = Loop().task


async def test_an_error_of_the_loop_is_kept_on_its_task_and_stop_still_works():
    service = Broken()
    service.start()
    await service.stop()
    await service.stop()
    with pytest.raises(LookupError, match="broken"):
        await service.task


async def test_a_cancelled_stop_lets_the_loop_end_by_itself():
    service, released = Loop(), asyncio.Event()

    class Slow(Loop):
        async def run(self) -> None:
            await super().run()
            await released.wait()

    service = Slow()
    service.start()
    stopping = asyncio.create_task(service.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)
    assert stopping.cancelled()
    assert not service.task.done()
    released.set()
    await service.stop()
    assert service.task.exception() is None


async def test_a_rest_ends_with_the_first_waiter_and_cancels_the_others():
    service = Loop()
    quick, slow = asyncio.ensure_future(asyncio.sleep(0)), asyncio.ensure_future(asyncio.Event().wait())
    await service.rest(quick, slow)
    assert quick.done()
    assert slow.cancelled()


async def test_a_rest_ends_at_a_stop_and_waits_for_what_it_cancelled():
    cleaned = asyncio.Event()

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    service = Loop(waits)
    service.start()
    await asyncio.sleep(0)
    await service.stop()
    assert cleaned.is_set()


async def test_a_waiter_that_raises_ends_only_the_rest():
    async def fails() -> None:
        raise OSError

    service = Loop(fails)
    service.start()
    while service.turns < 10:
        await asyncio.sleep(0)
    await service.stop()
    assert service.ended


async def test_a_rest_that_is_cancelled_cancels_its_waiters():
    service = Loop()
    slow = asyncio.ensure_future(asyncio.Event().wait())
    resting = asyncio.create_task(service.rest(slow))
    await asyncio.sleep(0)
    resting.cancel()
    await asyncio.gather(resting, return_exceptions=True)
    assert (resting.cancelled(), slow.cancelled()) == (True, True)


@pytest.mark.parametrize("turns", range(8))
async def test_a_stop_at_any_moment_ends_the_service(turns: int):
    services = [Loop(lambda: asyncio.sleep(0)), Loop(), Loop(lambda: asyncio.Event().wait())]
    for service in services:
        service.start()
    for _ in range(turns):
        await asyncio.sleep(0)
    await asyncio.gather(*(service.stop() for service in services), *(service.stop() for service in services))
    assert all(service.ended for service in services)
