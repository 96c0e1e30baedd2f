"""What flows do when they are run: results, order, retries, options."""

import asyncio
import dataclasses
from typing import Any

import pytest

from taskharbor import BlockingCall, Harbor, JobContext, JobDead
from taskharbor.flow import chain, chord, group
from taskharbor.model.job import FlowStatus
from taskharbor.testing import Faults, ManualClock, drain, enqueued
from tests.flow.stores import MakeHarbor
from tests.flow.tasks import Tasks


def test_a_chain_hands_each_result_to_the_next_step(harbor: Harbor, tasks: Tasks) -> None:
    handle = chain(tasks.number.s(1), tasks.add.s(), tasks.add.s(y=10)).enqueue()
    assert handle.status() is FlowStatus.RUNNING
    drain(harbor)
    assert (handle.result(1), handle.status()) == (12, "succeeded")
    assert tasks.names() == ["number", "add", "add"]


def test_a_step_that_lacks_none_receives_nothing_and_waits_all_the_same(harbor: Harbor, tasks: Tasks) -> None:
    handle = chain(tasks.number.s(1), tasks.nothing.s(), tasks.number.s(5)).enqueue()
    drain(harbor)
    assert handle.result(1) == 5
    assert tasks.ran == [("number", 1), "nothing", ("number", 5)]


def test_none_is_handed_on_as_none(harbor: Harbor, tasks: Tasks) -> None:
    handle = chain(group(tasks.nothing.s(), tasks.number.s(1)), tasks.collect.s()).enqueue()
    alone = chain(tasks.nothing.s(), tasks.collect.s()).enqueue()
    drain(harbor)
    assert (handle.result(1), alone.result(1)) == ([None, 1], None)


def test_a_finalizer_receives_the_results_in_the_order_of_the_group(harbor: Harbor, tasks: Tasks) -> None:
    late = tasks.number.s(0).options(priority=-5)
    handle = chord([late, *(tasks.number.s(i) for i in range(1, 6))], tasks.collect.s()).enqueue()
    drain(harbor)
    assert tasks.ran[-2] == ("number", 0)
    assert handle.result(1) == [0, 1, 2, 3, 4, 5]


def test_a_group_waits_for_all_and_returns_the_list(harbor: Harbor, tasks: Tasks) -> None:
    handle = group(tasks.number.s(i) for i in range(4)).enqueue()
    assert str(handle.progress()) == "0 of 4"
    drain(harbor)
    assert handle.result(1) == [0, 1, 2, 3]
    assert str(handle.progress()) == "4 of 4"
    one = group(tasks.number.s(7)).enqueue()
    drain(harbor)
    assert one.result(1) == [7]


def test_a_chord_over_an_empty_group_runs_its_finalizer(harbor: Harbor, tasks: Tasks) -> None:
    handle = chord([], tasks.total.s()).enqueue()
    after = chain(tasks.number.s(1), group([]), tasks.total.s()).enqueue()
    ending: Any = chain(tasks.number.s(1), group([])).enqueue()
    drain(harbor)
    assert (handle.result(1), after.result(1), ending.result(1)) == (0, 0, [])


def test_one_member_retries_and_the_finalizer_waits(harbor: Harbor, tasks: Tasks) -> None:
    tasks.again = {1: 3}
    handle = chord((tasks.add.s(i) for i in range(3)), tasks.total.s()).enqueue()
    drain(harbor)
    assert handle.result(1) == 6
    assert tasks.names() == ["add"] * 6 + ["total"]


def test_a_retry_that_waits_holds_the_finalizer_back(harbor: Harbor, tasks: Tasks) -> None:
    tasks.again = {1: 1}
    from taskharbor import Fixed

    slow = tasks.add.s(1).options(retry=Fixed(60))
    handle = chord([tasks.add.s(0), slow], tasks.total.s()).enqueue()
    drain(harbor)
    assert (handle.status(), tasks.names()) == ("running", ["add", "add"])
    with pytest.raises(TimeoutError, match=r"runs after 0.01 seconds"):
        handle.result(0.01)
    assert isinstance(harbor.clock, ManualClock)
    harbor.clock.advance(60)
    drain(harbor)
    assert handle.result(1) == 3


def test_steps_in_different_queues(harbor: Harbor, tasks: Tasks) -> None:
    steps = [tasks.number.s(i).options(queue=f"q{i}") for i in range(3)]
    handle = chain(group(steps), group(tasks.total.s().options(queue="q9"), tasks.collect.s())).enqueue()
    with pytest.warns(UserWarning, match="drain ran jobs of the queues 'q0', 'q1', 'q2', 'q9'"):
        drain(harbor)
    assert handle.result(1) == [3, [0, 1, 2]]


def test_members_in_a_group_with_a_limit_run_one_at_a_time(harbor: Harbor, tasks: Tasks) -> None:
    handle = group(tasks.number.s(i).options(group="tenant", group_limit=1) for i in range(5)).enqueue()
    harbor.worker(concurrency=5, heart="loop").run(until_empty=True)
    assert handle.result(1) == [0, 1, 2, 3, 4]
    assert [n for _, n in tasks.ran] == [0, 1, 2, 3, 4]


def test_the_same_flow_twice_with_keys_runs_once(harbor: Harbor, tasks: Tasks) -> None:
    def flow() -> Any:
        first = tasks.number.s(1).options(idempotency_key="first")
        return chain(first, tasks.add.s().options(idempotency_key="second"))

    one, two = flow().enqueue(), flow().enqueue()
    assert (one.existed, two.existed) == (False, True)
    drain(harbor)
    assert one.result(1) == two.result(1) == 2
    assert (two.status(), len(tasks.ran)) == ("succeeded", 2)


def test_a_step_known_by_its_key_gives_its_result(harbor: Harbor, tasks: Tasks) -> None:
    known = tasks.number.options(idempotency_key="k").enqueue(40)
    drain(harbor)
    handle = chain(tasks.number.s(1).options(idempotency_key="k"), tasks.add.s()).enqueue()
    drain(harbor)
    assert (known.result(1), handle.result(1)) == (40, 41)


def test_typed_values_travel_between_steps(harbor: Harbor) -> None:
    @harbor.task(name="make")
    def make(n: int) -> Point:
        return Point(n, n + 1)

    @harbor.task(name="sum")
    def points(points: list[Point], ctx: JobContext) -> int:
        assert all(isinstance(each, Point) for each in points)
        return sum(each.x * each.y for each in points)

    handle = chord((make.s(i) for i in range(3)), points.s()).enqueue()
    group_handle = group(make.s(i) for i in range(2)).enqueue()
    drain(harbor)
    assert handle.result(1) == 0 + 2 + 6
    assert group_handle.result(1) == [Point(0, 1), Point(1, 2)]


@dataclasses.dataclass
class Point:
    x: int
    y: int


def test_a_result_that_does_not_fit_kills_the_step_that_receives_it(harbor: Harbor, tasks: Tasks) -> None:
    @harbor.task(name="text")
    def text() -> str:
        return "no number"

    handle = chain(text.s(), tasks.add.s()).enqueue()
    drain(harbor)
    with pytest.raises(JobDead, match="add: parameter 'x': expected int, got str"):
        handle.result(1)
    assert handle.status() == "failed"


async def test_the_awaitable_methods(dsn: str) -> None:
    harbor = Harbor(dsn)
    tasks = Tasks(harbor)
    handle = await chain(tasks.number.s(1), tasks.add.s()).aenqueue()
    with pytest.raises(BlockingCall, match=r"use: await flow\.aenqueue"):
        chain(tasks.number.s(1)).enqueue()
    await harbor.worker(heart="loop").arun(until_empty=True)
    assert await handle.aresult(1) == 2
    assert await handle.astatus() == "succeeded"
    assert str(await handle.aprogress()) == "2 of 2"
    found = await harbor.aflow(handle.id)
    assert await found.aresult(1) == 2
    assert await found.acancel() == 0
    await harbor.aclose()


def test_a_lost_reply_stores_one_flow(dsn: str, harbor_on: MakeHarbor) -> None:
    faults = Faults()
    harbor = harbor_on(faults.wrap(dsn))
    tasks = Tasks(harbor)
    faults.fail("enqueue", after=True)
    handle = chord((tasks.number.s(i) for i in range(3)), tasks.total.s()).enqueue()
    assert not handle.existed
    drain(harbor)
    assert handle.result(1) == 3
    assert len(tasks.ran) == 4


def test_a_zombie_member_releases_nothing_twice(dsn: str, harbor_on: MakeHarbor) -> None:
    """Its end is lost with its worker, and another executes it again; then its old worker is refused."""
    faults = Faults()
    harbor = harbor_on(faults.wrap(dsn))
    tasks = Tasks(harbor)
    handle = chord((tasks.number.s(i) for i in range(3)), tasks.total.s()).enqueue()
    for node in harbor.flow(handle.id).nodes:
        faults.deliver_twice(node.job.id)
    drain(harbor)
    assert handle.result(1) == 3
    assert sorted(tasks.names()) == ["number"] * 6 + ["total"] * 2
    deliveries = {node.job.type: node.job.deliveries for node in harbor.flow(handle.id).nodes}
    assert deliveries == {"number": 2, "total": 2}


def test_a_flow_is_enqueued_inside_the_callers_transaction() -> None:
    from tests.client.tools import Sql

    harbor = Harbor(Sql())
    tasks = Tasks(harbor)
    mine: list[Any] = []
    flow = chain(tasks.number.s(1), group(tasks.add.s(), tasks.add.s()))
    handle = flow.options(connection=mine).enqueue()
    assert {job.flow_id for job in mine} == {handle.id}
    assert len(mine) == 4
    step = tasks.number.s(1).options(connection=mine)
    asyncio.run(group(step, tasks.number.s(2)).aenqueue())
    assert len(mine) == 7
    other: list[Any] = []
    with pytest.raises(ValueError, match="expected one connection= for the whole flow"):
        chain(step).options(connection=other).enqueue()
    assert not other
    harbor.close()


def test_enqueued_finds_blocked_steps(harbor: Harbor, tasks: Tasks) -> None:
    chain(tasks.number.s(1), tasks.add.s(y=5), tasks.add.s()).enqueue()
    assert len(enqueued(harbor, tasks.add)) == 2
    assert len(enqueued(harbor, tasks.add, y=5)) == 1
    assert enqueued(harbor, tasks.add, x=1) == []
