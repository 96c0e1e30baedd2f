"""What users test with: drain, enqueued, faults and the fixtures, each on a Harbor in memory."""

import asyncio
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskharbor import BackendUnavailable, BlockingCall, Fixed, Harbor, JobNotInflight, Snooze
from taskharbor.drivers import JobRecord, Reserved
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.drivers.wrapped import VERBS
from taskharbor.events import Event, JobStarted, OutcomeRefused, StoreLost
from taskharbor.testing import Faults, ManualClock, adrain, aenqueued, drain, enqueued


class World:
    """A harbor on memory with a manual clock, faults on demand, and a task that notes its runs."""

    def __init__(self) -> None:
        self.clock, self.faults, self.heard = ManualClock(), Faults(), list[Event]()
        self.harbor = Harbor(self.faults.wrap("memory://"), clock=self.clock, observers=[self.heard.append])
        self.runs: list[Any] = []
        self.work = self.harbor.task(name="work", retry=Fixed(60), max_attempts=2)(self._work)

    def _work(self, number: int, task: str = "") -> int:
        self.runs.append(number)
        return number

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.heard if type(event) is kind]


@pytest.fixture
def world() -> Any:
    world = World()
    with world.harbor:
        yield world


# drain


def test_drain_runs_all_that_is_due_in_the_order_of_the_store_and_counts_executions(world: World):
    for number in range(5):
        world.work.options(priority=number).enqueue(number)
    assert drain(world.harbor) == 5
    assert world.runs == [4, 3, 2, 1, 0]
    assert drain(world.harbor) == 0


def test_drain_runs_one_job_at_a_time(world: World):
    running: list[int] = []

    @world.harbor.task(name="turns")
    async def turns() -> None:
        running.append(1)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(running) == 1
        running.pop()

    handles = [turns.enqueue() for _ in range(5)]
    assert drain(world.harbor) == 5
    assert [handle.status() for handle in handles] == ["done"] * 5


def test_drain_serves_every_queue_that_has_a_job(world: World):
    for queue in ("a", "b", "c"):
        world.work.options(queue=queue).enqueue(1)
    with pytest.warns(UserWarning, match="queues 'a', 'b', 'c', which no task declares"):
        assert drain(world.harbor) == 3


def test_drain_runs_what_jobs_bring_about(world: World):
    @world.harbor.task(name="parent", queue="parents")
    async def parent(left: int) -> None:
        await world.work.options(queue=f"children-{left}").aenqueue(left)
        if left:
            await parent.aenqueue(left - 1)

    parent.enqueue(3)
    with pytest.warns(UserWarning, match="queues 'children-0', .*, which no task declares"):
        assert drain(world.harbor) == 8
    assert sorted(world.runs) == [0, 1, 2, 3]


def test_what_is_for_later_stays_until_the_clock_is_moved(world: World):
    @world.harbor.task(name="fails", retry=Fixed(60), max_attempts=2)
    def fails() -> None:
        raise ValueError

    @world.harbor.task(name="snoozes")
    def snoozes() -> None:
        raise Snooze(60)

    world.work.options(delay=60).enqueue(1)
    dead = fails.enqueue()
    snoozes.enqueue()
    assert drain(world.harbor) == 2
    assert drain(world.harbor) == 0
    world.clock.advance(60)
    assert drain(world.harbor) == 3
    assert dead.status() == "dlq"


def test_the_harbors_own_observers_receive_the_events_of_drain(world: World):
    world.work.enqueue(1)
    drain(world.harbor)
    assert [event.job.type for event in world.of(JobStarted)] == ["work"]


def test_an_error_in_a_handler_is_described_as_it_was_raised(world: World):
    @world.harbor.task(name="fails", max_attempts=1)
    def fails() -> None:
        raise ValueError("plain")

    fails.enqueue()
    drain(world.harbor)
    (job,) = enqueued(world.harbor, fails)
    assert job.last_error.startswith("ValueError: plain")
    assert "while handling" not in job.last_error


async def test_a_drain_that_would_block_a_loop_names_its_twin(world: World):
    with pytest.raises(BlockingCall, match=r"^drain\(\) would block the running event loop; use: await adrain\(…\)$"):
        drain(world.harbor)
    with pytest.raises(BlockingCall, match=r"use: await aenqueued\(…\)$"):
        enqueued(world.harbor, world.work)
    await world.work.aenqueue(1)
    assert len(await aenqueued(world.harbor, world.work)) == 1
    assert await adrain(world.harbor) == 1
    await world.harbor.aclose()


# enqueued


def test_enqueued_finds_jobs_by_their_arguments_in_any_state(world: World):
    world.work.enqueue(1)
    drain(world.harbor)
    world.work.options(delay=60).enqueue(2, task="x")
    world.work.enqueue(2)
    assert [len(enqueued(world.harbor, world.work, **given)) for given in ({}, {"number": 1}, {"number": 2})] == [
        3,
        1,
        2,
    ]
    assert len(enqueued(world.harbor, world.work, number=2, task="x")) == 1  # a parameter may be named like one of ours
    assert enqueued(world.harbor, world.work, number=3) == []


def test_enqueued_reads_every_page(world: World):
    world.harbor.enqueue_many(world.work.s(number=number) for number in range(250))
    assert len(enqueued(world.harbor, world.work)) == 250


def test_a_misspelt_argument_is_refused_instead_of_matching_nothing(world: World):
    with pytest.raises(TypeError, match=r"^work has no parameter nummer: nothing could ever match$"):
        enqueued(world.harbor, world.work, nummer=1)


# Faults


def test_a_settle_that_is_not_answered_is_sent_again(world: World):
    handle = world.work.enqueue(1)
    world.faults.fail("settle")
    assert drain(world.harbor) == 1
    assert (handle.status(), world.faults.pending()) == ("done", {})
    assert len(world.of(StoreLost)) == 1


def test_an_enqueue_whose_reply_is_lost_is_one_job(world: World):
    world.faults.fail("enqueue", after=True)

    async def scenario() -> None:
        sending = asyncio.create_task(world.work.aenqueue(1))
        while not sending.done():
            world.clock.advance(1)
            await asyncio.sleep(0)
        assert not (await sending).existed
        await world.harbor.aclose()

    asyncio.run(scenario())
    assert len(enqueued(world.harbor, world.work)) == 1


def test_a_delivery_whose_end_is_lost_runs_twice(world: World):
    handle = world.work.enqueue(1)
    world.faults.deliver_twice(handle.id)
    assert drain(world.harbor) == 2
    assert world.runs == [1, 1]
    assert handle.status() == "done"
    assert len(world.of(OutcomeRefused)) == 1


async def test_a_lease_ends_on_request(world: World):
    ids: list[str] = []

    @world.harbor.task(name="loses")
    async def loses() -> None:
        if len(ids) == 1:
            await world.faults.expire(ids.pop())

    handle = await loses.aenqueue()
    other = await world.work.aenqueue(7)
    ids.append(handle.id)
    await adrain(world.harbor)
    assert len(world.of(OutcomeRefused)) == 1
    assert [await handle.astatus(), await other.astatus()] == ["done", "done"]
    assert (await aenqueued(world.harbor, loses))[0].deliveries == 2
    with pytest.raises(JobNotInflight, match="no worker holds"):
        await world.faults.expire(handle.id)  # done: there is no lease to end
    with pytest.raises(JobNotInflight, match="no worker on this driver has reserved nobody"):
        await world.faults.expire("nobody")
    await world.harbor.aclose()


async def test_only_the_lease_that_was_named_ends():
    faults, now = Faults(), ManualClock().now()
    driver = faults.wrap("memory://")
    await driver.enqueue([JobRecord(id=name, type="t") for name in "abc"], now)
    await driver.reserve(["default"], now, timedelta(seconds=30), 2, "one")
    await driver.reserve(["default"], now, timedelta(seconds=30), 1, "two")
    await faults.expire("a")
    assert [(await driver.inspect(name, now)).state for name in "abc"] == ["ready", "inflight", "inflight"]


def test_a_lease_that_ends_takes_nothing_with_it_whose_reply_is_on_its_way():
    """The store has done the reserve, the worker has not got its reply, and another job of the worker's is expired."""

    class Late(MemoryDriver):
        async def reserve(self, *given: Any, **named: Any) -> list[Reserved]:
            batch = await super().reserve(*given, **named)
            await hold.wait()
            return batch

    async def scenario() -> None:
        faults, now = Faults(), ManualClock().now()
        driver = faults.wrap(Late("memory://"))
        await driver.enqueue([JobRecord(id=name, type="t") for name in "ab"], now)
        hold.set()
        await driver.reserve(["default"], now, timedelta(seconds=30), 1, "worker")
        hold.clear()
        under_way = asyncio.create_task(driver.reserve(["default"], now, timedelta(seconds=30), 1, "worker"))
        await asyncio.sleep(0)
        ending = asyncio.create_task(faults.expire("a"))
        await asyncio.sleep(0)
        hold.set()
        await asyncio.gather(under_way, ending)
        assert [(await driver.inspect(name, now)).state for name in "ab"] == ["ready", "inflight"]

    hold = asyncio.Event()
    asyncio.run(scenario())


# reserve and settle look at their arguments first: the scenarios above have them. A close never fails.
@pytest.mark.parametrize("verb", sorted(set(VERBS) - {"reserve", "settle", "close"}))
async def test_every_call_of_the_contract_can_fail_as_often_as_asked(verb: str):
    faults = Faults()
    driver = faults.wrap("memory://")
    faults.fail(verb, times=2)
    assert faults.pending() == {verb: 2}
    for _ in range(2):
        with pytest.raises(BackendUnavailable, match=f"^injected: {verb} failed before the store did it$"):
            await getattr(driver, verb)()
    assert faults.pending() == {}


async def test_a_fault_may_be_any_error_and_siblings_share_the_plan():
    faults = Faults()
    driver = faults.wrap("memory://")
    faults.fail("queues", error=OSError("cut"))
    with pytest.raises(OSError, match="cut"):
        await driver.sibling().queues()
    assert await driver.queues() == []


def test_a_plan_that_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match=r"verb: expected one of .*enqueue.*, got 'ack'"):
        Faults().fail("ack")
    with pytest.raises(ValueError, match="times: expected 1 or more, got 0"):
        Faults().fail("settle", times=0)


# The fixtures, as another project has them


def test_the_fixtures_are_there_as_soon_as_the_package_is_installed(tmp_path: Path):
    (tmp_path / "test_theirs.py").write_text(
        "from taskharbor import Harbor\n"
        "from taskharbor.testing import drain\n"
        "def test_it(manual_clock, faults):\n"
        "    harbor = Harbor(faults.wrap('memory://'), clock=manual_clock)\n"
        "    @harbor.task\n"
        "    def work(): return 5\n"
        "    handle = work.options(delay=60).enqueue()\n"
        "    assert drain(harbor) == 0\n"
        "    manual_clock.advance(60)\n"
        "    assert drain(harbor) == 1\n"
        "    assert handle.result(0) == 5\n"
        "    harbor.close()\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", str(tmp_path)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 passed" in ended.stdout
