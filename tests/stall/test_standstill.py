"""A real store that stands still: it is stopped, and goes on only when every call, or the worker, has ended."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from taskharbor import BackendUnavailable, FeatureMissing, Harbor, JobContext, TaskHarborError
from taskharbor.drivers import open_driver
from taskharbor.worker import waiting
from tests import lanes
from tests.stall.calls import CALLS, LONG, World, all_made
from tests.stall.stores import Store, store

pytestmark = pytest.mark.left_to(
    "full",
    except_for=lanes.Chosen(
        "test_every_call_ends_in_its_own_time[postgres-in use]",
        "test_every_call_ends_in_its_own_time[redis-in use]",
        "test_every_call_ends_in_its_own_time[sqlite write-in use]",
        "test_it_goes_on_when_the_store_does[postgres]",
        "test_a_worker_ends[redis-busy-stop]",
        "test_a_worker_ends[sqlite write-busy-stop]",
        "test_closing_ends[postgres]",
        "test_the_default_budget_is_ten_seconds",
    ),
)

__all__ = ["store"]
VERBS = {"enqueue", "enqueue_many", "cancel", "requeue", "delete", "pause", "resume"}
READS_ONLY = {f"{of}.{requeue}" for of in ("FlowHandle", "FlowRun") for requeue in ("requeue", "arequeue")}
"""No step of the flow is dead, so these find nothing to write."""
WRITES = {name for name in CALLS if name.rpartition(".")[2].removeprefix("a") in VERBS} - READS_ONLY


@pytest.fixture
def quick(monkeypatch):
    """The timeouts of a worker's stop, shortened: the tests check that they end it."""
    for name, seconds in {"STORE_S": 0.3, "HURRIED_S": 0.3, "CANCEL_S": 0.1, "CLOSE_S": 0.2}.items():
        monkeypatch.setattr(waiting, name, seconds)


@pytest.mark.parametrize("opened", [True, False], ids=["in use", "not yet open"])
def test_every_call_ends_in_its_own_time(store: Store, opened: bool):
    """On connections in use, and on those made while it stands still."""
    world = World(store.dsn, call_timeout=0.5)

    async def live() -> dict[str, Any]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(len(CALLS)))
        await world.begin()
        if opened:
            await asyncio.to_thread(
                lambda: world.harbor.within(LONG).job(world.job.id).status()
            )  # on the portal's loop too
        else:
            await world.harbor.aclose()
        with store.still():
            answers = await all_made(world)
            await world.harbor.aclose()
        return answers

    answers = asyncio.run(asyncio.wait_for(live(), LONG))
    assert all(isinstance(answer, TaskHarborError | TimeoutError) for answer in answers.values() if raised(answer))
    ended = {name for name, answer in answers.items() if isinstance(answer, BackendUnavailable)}
    lacking = {name for name, answer in answers.items() if isinstance(answer, FeatureMissing)}
    assert ended >= (WRITES if store.reads else set(CALLS) - lacking)
    for name in ended:
        assert "0.5 s" in str(answers[name]), name
    assert all("may or may not be stored" in str(answers[name]) for name in ended if opened and "enqueue" in name)


def raised(answer: Any) -> bool:
    return isinstance(answer, BaseException)


def test_it_goes_on_when_the_store_does(store: Store):
    """Calls that were given up do not disturb the next ones; no job is stored twice."""
    world = World(store.dsn, call_timeout=0.3)

    async def live() -> None:
        await world.begin()
        with store.still():
            asked = [world.task.options(idempotency_key=str(n)).aenqueue(n) for n in range(30)]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            assert all(isinstance(answer, BackendUnavailable) for answer in answers)
        with world.harbor.within(LONG):
            handles = await asyncio.gather(*(world.task.options(idempotency_key=str(n)).aenqueue(n) for n in range(30)))
        assert len({handle.id for handle in handles}) == 30
        await world.harbor.aclose()
        driver = open_driver(store.dsn)
        await driver.open()
        counts = await driver.counts(await driver.server_time())
        assert sum(counts["default"].values()) == 30 + 4
        await driver.close()

    asyncio.run(asyncio.wait_for(live(), 2 * LONG))


@pytest.mark.parametrize("way", ["stop", "hurry"])
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_a_worker_ends(store: Store, quick: None, way: str, busy: bool):
    harbor = Harbor(store.dsn)
    began, go_on = threading.Event(), threading.Event()

    @harbor.task
    def work(ctx: JobContext) -> str:
        began.set()
        go_on.wait(LONG)
        return "done"

    async def live() -> None:
        worker = harbor.worker(poll_interval=0.05, shutdown_timeout=0.2)
        running = asyncio.create_task(worker.arun())
        if busy:
            await work.aenqueue()
            assert await asyncio.to_thread(began.wait, LONG)
        while worker.health().polled_seconds_ago is None:
            await asyncio.sleep(0)
        with store.still():
            getattr(worker, way)()
            await running
        go_on.set()
        await harbor.aclose()

    asyncio.run(asyncio.wait_for(live(), LONG))


def test_closing_ends(store: Store):
    """With calls under way, awaited and blocking."""
    harbor = Harbor(store.dsn, call_timeout=0.5)

    @harbor.task
    def work() -> None: ...

    def blocks() -> None:
        with pytest.raises(BackendUnavailable):
            work.enqueue()
        told.set()

    told = threading.Event()
    with harbor.within(LONG):
        work.enqueue()
    with store.still():
        blocked = threading.Thread(target=blocks)
        blocked.start()
        harbor.close()
        assert told.wait(LONG)
    blocked.join()
    harbor.close()  # what came after the first close was opened again


def test_the_default_budget_is_ten_seconds():
    harbor = Harbor("memory://")
    assert harbor._store.call_timeout == 10
