"""Corners of flows that random walks rarely meet: handovers to known jobs, finished dependents, orders of release."""

from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import Ack, InvalidJob, JobRecord, State
from taskharbor.drivers.memory import MemoryDriver
from tests.drivers.memory_recount import recount

pytestmark = pytest.mark.lane("unit")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)


def job(id, *depends_on, **fields):
    return JobRecord(id=id, type="t", depends_on=depends_on, **fields)


class Store:
    """A driver with shorter calls."""

    def __init__(self):
        self.driver = MemoryDriver()

    async def put(self, *jobs):
        await self.driver.enqueue(jobs, NOW)

    async def take(self):
        return {one.job.id: one.lease for one in await self.driver.reserve(["default"], NOW, LEASE, 100)}

    async def end(self, lease, *spawn, handover=None):
        answers = await self.driver.settle([Ack(lease, None, spawn, handover)], NOW)
        recount(self.driver.store)
        return answers[0]

    async def info(self, id):
        return await self.driver.inspect(id, NOW)


async def test_a_handover_to_a_job_that_the_dependent_waits_for_already():
    """Two of its dependencies become one: it waits for one, and is released by it."""
    store = Store()
    await store.put(job("a"), job("s"), job("b", "a", "s", "a"))
    held = await store.take()
    assert await store.end(held["a"], job("s"), handover="s") is None
    assert (await store.info("b")).job.depends_on == ("s", "s", "s")
    assert (await store.info("b")).waiting_for == ("s",)
    assert await store.end(held["s"]) is None
    assert list(await store.take()) == ["b"]


async def test_a_handover_to_a_job_that_is_done():
    store = Store()
    await store.put(job("s"), job("a"), job("b", "a"))
    held = await store.take()
    await store.end(held["s"])
    assert await store.end(held["a"], job("s"), handover="s") is None
    assert list(await store.take()) == ["b"]


async def test_a_cancelled_dependent_follows_every_handover():
    store = Store()
    await store.put(job("a"), job("b", "a"))
    held = await store.take()
    await store.driver.cancel(["b"], NOW)
    await store.end(held["a"], job("s"), handover="s")
    held = await store.take()
    await store.end(held["s"], job("z"), handover="z")
    assert (await store.info("b")).job.depends_on == ("z",)
    await store.driver.requeue(["b"], NOW)
    assert (await store.info("b")).waiting_for == ("z",)
    assert await store.driver.delete(["z", "s", "a"]) != [None, None, None]
    await store.end((await store.take())["z"])
    assert list(await store.take()) == ["b"]


async def test_dependents_are_released_in_the_order_in_which_they_were_stored():
    store = Store()
    await store.put(job("a"), job("old", "a"))
    held = await store.take()
    await store.end(held["a"], job("s"), job("new", "s"), handover="s")
    await store.end((await store.take())["s"])
    assert list(await store.take()) == ["old", "new"]


async def test_dependents_are_released_before_the_spawned_jobs():
    """An ack with a spawn is an ack and then an enqueue, except that no other call can come in between."""
    store = Store()
    await store.put(job("a"), job("z-dependent", "a"))
    held = await store.take()
    await store.end(held["a"], job("b-spawned"), job("a-spawned", "a"))
    assert list(await store.take()) == ["z-dependent", "b-spawned", "a-spawned"]


async def test_spawned_jobs_may_depend_on_the_acked_job_and_not_on_its_heir():
    store = Store()
    await store.put(job("a"), job("b", "a"))
    held = await store.take()
    assert await store.end(held["a"], job("s", "t"), job("t", "a"), handover="s") is None
    assert (await store.info("t")).job.depends_on == ("a",)
    assert (await store.info("b")).waiting_for == ("s",)
    assert list(await store.take()) == ["t"]


@pytest.mark.parametrize("heir", ["b", "nobody", "a"], ids=["dependent", "not spawned", "itself"])
async def test_refused_handovers_change_nothing(heir):
    store = Store()
    await store.put(job("a"), job("b", "a"), job("c", "b"))
    held = await store.take()
    spawn = [job(heir)] if heir != "nobody" else [job("s")]
    assert isinstance(await store.end(held["a"], *spawn, handover=heir), InvalidJob)
    assert isinstance(await store.end(held["a"], job("s", "c"), handover="s"), InvalidJob)
    assert (await store.info("a")).state is State.INFLIGHT
    assert len(store.driver.store.entries) == 3
    assert await store.end(held["a"]) is None


async def test_a_new_job_with_the_id_of_a_deleted_dependency_is_not_that_dependency():
    store = Store()
    await store.put(job("a"), job("x"), job("b", "a", "x"))
    await store.driver.cancel(["b"], NOW)
    await store.driver.delete(["a"])
    await store.driver.requeue(["b"], NOW)
    assert (await store.info("b")).waiting_for == ("x",)
    await store.put(job("a", run_at=NOW + LEASE))
    assert (await store.info("b")).waiting_for == ("x",)
    await store.end((await store.take())["x"])
    assert list(await store.take()) == ["b"]
