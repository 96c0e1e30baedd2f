"""A store that fails in one verb only, or stands still in it: every call of a client ends in its own time, with
an error.

Worker: tests/worker/test_hanging_store.py.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from taskharbor import BackendUnavailable, DriverError, TaskHarborError
from taskharbor.drivers import Driver, WrappedDriver, open_driver
from taskharbor.drivers.wrapped import VERBS
from taskharbor.store import access as retries
from tests import lanes
from tests.stall.calls import CALLS, LONG, PARTS, World, all_made, found


class Broken(WrappedDriver):
    """A driver in which one verb hangs, or raises, from a moment on; shared with its siblings."""

    def __init__(self, inner: Driver, plan: dict[str, str], asked: set[str]) -> None:
        super().__init__(inner)
        self._plan, self._asked = plan, asked

    def sibling(self) -> Any:
        return Broken(self.inner.sibling(), self._plan, self._asked)

    async def around(self, verb: str, call: Any, args: Any) -> Any:
        how = self._plan.get(verb)
        if how is None:
            return await call()
        self._asked.add(verb)
        if how == "hangs":
            await asyncio.Event().wait()
        raise BackendUnavailable("it is away") if how == "is away" else DriverError("it refused")


def test_every_public_call_is_made():
    assert set(CALLS) | PARTS == set(found())


@pytest.mark.left_to("full", except_for=lanes.Chosen("hangs"))
@pytest.mark.parametrize("how", ["hangs", "is away", "refuses"])
@pytest.mark.parametrize("verb", VERBS)
def test_every_call_ends(verb, how, monkeypatch):
    monkeypatch.setattr(retries, "FIRST_PAUSE_S", 0.001)
    plan: dict[str, str] = {}
    asked: set[str] = set()
    # Only a call that hangs needs its budget to end: on a busy machine five tries may take longer than 0.2 s.
    world = World(Broken(open_driver("memory://"), plan, asked), call_timeout=0.2 if how == "hangs" else LONG)

    async def live() -> dict[str, Any]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(len(CALLS)))
        await world.begin()
        plan[verb] = how
        if verb in {"open", "server_time"}:
            await world.harbor.aclose()  # opened anew by the next call
        answers = await all_made(world)
        try:
            await world.harbor.aclose()
        except TaskHarborError:
            assert verb == "close"
        return answers

    answers = asyncio.run(asyncio.wait_for(live(), LONG))
    failed = {name: answer for name, answer in answers.items() if isinstance(answer, Exception)}
    assert all(isinstance(answer, TaskHarborError | TimeoutError) for answer in failed.values()), failed
    words = {"hangs": "within 0.2 s", "is away": " times in ", "refuses": "it refused"}[how]
    told = [str(answer) for answer in failed.values() if words in str(answer)]
    assert bool(told) is bool(asked - {"close"})


def test_an_error_says_what_is_in_doubt():
    """And what to do about it; whether the job is stored is found by its id."""
    plan: dict[str, str] = {}
    world = World(Broken(open_driver("memory://"), plan, set()), call_timeout=0.05)

    async def live() -> None:
        await world.begin()
        plan["enqueue"] = "hangs"
        with pytest.raises(BackendUnavailable) as told:
            await world.task.aenqueue(1)
        assert "enqueue: the store did not answer within 0.05 s (tried once). The job may or may not be stored" in str(
            told.value
        )
        assert "give it an idempotency_key" in str(told.value)
        with pytest.raises(BackendUnavailable, match="again with the same idempotency key: it is stored once"):
            await world.task.options(idempotency_key="k").aenqueue(1)
        with pytest.raises(BackendUnavailable, match=r"The jobs may or may not be stored.* and the 1 other"):
            await world.chain().aenqueue()
        with world.harbor.within(0.01), pytest.raises(BackendUnavailable, match=r"within 0\.01 s"):
            await world.task.aenqueue(1)
        plan["cancel"] = plan["requeue"] = "hangs"
        with pytest.raises(BackendUnavailable, match="may or may not be cancelled"):
            await world.job.acancel()
        plan["inspect"] = "hangs"
        with pytest.raises(BackendUnavailable, match=r"status: .* \(tried once\)$"):
            await world.job.astatus()
        await world.harbor.aclose()
        plan["open"] = "hangs"
        with pytest.raises(BackendUnavailable, match=r"could not be opened within 0\.05 s \(tried once\)$"):
            await world.task.aenqueue(1)  # nothing was sent, so nothing is in doubt
        await world.harbor.aclose()

    asyncio.run(asyncio.wait_for(live(), LONG))


def test_a_store_that_answers_late_stores_the_job_once():
    """The reply is lost again and again: all tries carry the same id."""
    lost = [3]

    class Late(Broken):
        def sibling(self) -> Any:
            return Late(self.inner.sibling(), self._plan, self._asked)

        async def enqueue(self, jobs: Any, now: Any) -> Any:
            answers = await self.inner.enqueue(jobs, now)
            if lost[0]:
                lost[0] -= 1
                raise BackendUnavailable("the reply is lost")
            return answers

    world = World(Late(open_driver("memory://"), {}, set()))

    async def live() -> None:
        handle = await world.task.aenqueue(1)
        assert not handle.existed
        assert await world.harbor.driver.counts(world.harbor.clock.now()) == {"default": {"ready": 1}}
        await world.harbor.aclose()

    asyncio.run(asyncio.wait_for(live(), LONG))
    assert lost == [0]


@pytest.mark.parametrize("given", [0, -1, "5", float("nan"), True])
def test_an_invalid_budget_is_refused(given):
    with pytest.raises((ValueError, TypeError), match="call_timeout: expected"):
        World("memory://", call_timeout=given)
    world = World("memory://")
    with pytest.raises((ValueError, TypeError), match="within: expected"):
        world.harbor.within(given)
    with pytest.raises((ValueError, TypeError), match="within: expected"):
        world.client.within(given)


def test_a_blocking_caller_leaves_a_driver_that_ignores_cancellation():
    """A blocking caller waits no longer than its budget and a moment, also for a driver that ignores cancellation."""
    over = asyncio.Event()

    class Deaf(Broken):
        async def inspect(self, id: str, now: Any) -> Any:
            while not over.is_set():
                try:
                    await over.wait()
                except asyncio.CancelledError:
                    continue
            raise asyncio.CancelledError

    world = World(Deaf(open_driver("memory://"), {}, set()), call_timeout=0.1)
    handle = world.client.handle("a")
    with pytest.raises(BackendUnavailable, match="its driver does not end the call"):
        handle.status()
    loop = world.client._store.portal.loop
    assert loop is not None
    loop.call_soon_threadsafe(over.set)
    world.harbor.close()
