"""Handlers that return workflows: these take the place of their jobs."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from taskharbor import Harbor, JobCancelled, JobDead, Unrecoverable
from taskharbor.drivers import Ack, WrappedDriver, open_driver
from taskharbor.flow import chain, chord, group
from taskharbor.testing import drain
from tests.flow.tasks import Tasks


def test_the_result_of_a_returned_workflow_is_the_jobs_result(harbor: Harbor, tasks: Tasks) -> None:
    plain = tasks.spread.enqueue(3)
    counted = tasks.counted.enqueue(4)
    inside = chain(tasks.number.s(2), tasks.spread.s(), tasks.total.s()).enqueue()
    drain(harbor)
    assert plain.result(1) == [1, 2, 3]
    assert counted.result(1) == 10
    assert inside.result(1) == 3
    assert inside.status() == "succeeded"


def test_a_member_of_a_chord_may_grow(harbor: Harbor, tasks: Tasks) -> None:
    handle = chord([tasks.number.s(1), tasks.spread.s(2), tasks.spread.s(0)], tasks.collect.s()).enqueue()
    ends = group(tasks.spread.s(2), tasks.counted.s(3)).enqueue()
    many = chord((tasks.spread.s(n) for n in range(7)), tasks.collect.s()).enqueue()
    drain(harbor)
    assert handle.result(1) == [1, [1, 2], []]
    assert ends.result(1) == [[1, 2], 6]
    assert many.result(1) == [list(range(1, n + 1)) for n in range(7)]
    assert str(ends.progress()) == "6 of 6"
    assert harbor.flow(ends.id).result(1) == [[1, 2], 6]


def test_the_last_step_may_grow(harbor: Harbor, tasks: Tasks) -> None:
    handle = chain(tasks.number.s(3), tasks.spread.s()).enqueue()
    drain(harbor)
    assert handle.result(1) == [1, 2, 3]
    assert harbor.flow(handle.id).result(1) == [1, 2, 3]


def test_workflows_may_return_workflows_a_hundred_levels_deep(harbor: Harbor, tasks: Tasks) -> None:
    deep, too_deep = tasks.down.enqueue(100), tasks.down.enqueue(101)
    drain(harbor)
    assert deep.result(1) == 0
    with pytest.raises(JobDead, match="down returned a workflow 101 deep, expected at most 100"):
        too_deep.result(1)
    assert too_deep.status() == "dlq"


def test_a_returned_workflow_that_is_too_large_or_wrong_kills_its_job(harbor: Harbor, tasks: Tasks) -> None:
    @harbor.task(name="huge")
    def huge() -> Any:
        return group(tasks.number.s(1) for _ in range(10_000))

    @harbor.task(name="lacks")
    def lacks() -> Any:
        return chain(tasks.add.s())

    large, wrong = huge.enqueue(), lacks.enqueue()
    drain(harbor)
    with pytest.raises(JobDead, match=r"its workflow cannot be stored: .*10001 jobs, expected at most 10000"):
        large.result(1)
    with pytest.raises(JobDead, match=r"its workflow cannot be stored: .*nothing comes before this step"):
        wrong.result(1)
    assert tasks.ran == []


def test_a_dead_job_of_a_returned_workflow_ends_the_wait_for_its_job(harbor: Harbor, tasks: Tasks) -> None:
    tasks.broken = {1}
    handle = tasks.counted.enqueue(3)
    drain(harbor)
    with pytest.raises(JobDead, match="1 is broken"):
        handle.result(1)
    assert handle.status() == "dlq"


def test_cancelling_the_job_cancels_the_workflow_that_took_its_place(harbor: Harbor, tasks: Tasks) -> None:
    handle = tasks.spread.options(queue="first").enqueue(3)
    harbor.worker(queues=["first"], heart="loop").run(until_empty=True)
    handle.cancel()
    drain(harbor)
    with pytest.raises(JobCancelled):
        handle.result(1)
    assert tasks.names() == ["spread"]


def test_a_job_acked_while_it_is_being_cancelled_takes_its_workflow_along(dsn: str) -> None:
    """Between the look and the cancel the job hands over: the cancel then meets a done job, and reads it again."""

    async def main() -> None:
        driver = open_driver(dsn)
        harbor = Harbor(Handing(driver))
        tasks = Tasks(harbor)
        handle = await tasks.spread.aenqueue(2)
        await handle.acancel()
        with pytest.raises(JobCancelled, match="flow cancelled"):
            await handle.aresult(1)
        await harbor.aclose()

    class Handing(WrappedDriver):
        """Before its first cancel the job is acked, with a workflow."""

        first = True

        async def cancel(self, *args: Any, **named: Any) -> Any:
            now = args[1]
            if self.first:
                self.first = False
                (held,) = await self.inner.reserve(["default"], now, timedelta(seconds=30), 1)
                spawned = group(Tasks(Harbor("memory://")).number.s(1))._compile(held.job, now)
                ack = Ack(held.lease, None, spawned.jobs, spawned.handover)
                assert await self.inner.settle([ack], now) == [None]
            return await super().cancel(*args, **named)

    asyncio.run(main())


def test_jobs_spawned_while_the_flow_is_cancelled_never_run(harbor: Harbor, tasks: Tasks) -> None:
    @harbor.task(name="late")
    async def late(n: int) -> Any:
        tasks.ran.append("late")
        await handle.acancel()  # while it runs; its own ack is then refused
        await harbor._store.drivers.close()  # the one that this loop has opened
        return group(tasks.number.s(i) for i in range(n))

    handle = chain(late.s(3), tasks.collect.s()).enqueue()
    drain(harbor)
    assert (handle.status(), tasks.ran) == ("cancelled", ["late"])
    assert len(harbor.flow(handle.id).nodes) == 2


def test_a_workflow_of_a_process_job(harbor: Harbor) -> None:
    from tests.flow import process_tasks

    process_tasks.fan.handler.signature  # noqa: B018 - its own harbor: the types are what counts
    task = harbor.task(name="process_tasks.fan", process=True)(process_tasks.fan.function)
    harbor.task(name="process_tasks.double")(process_tasks.double.function)
    handle = task.enqueue(3)
    drain(harbor)
    assert handle.result(60) == [0, 2, 4]


def test_a_handler_that_fails_first_spawns_once(harbor: Harbor, tasks: Tasks) -> None:
    failures = iter([True, False])

    @harbor.task(name="shaky", retry=lambda attempts, error: 0)
    def shaky() -> Any:
        flow = group(tasks.number.s(1), tasks.number.s(2))
        if next(failures):
            raise ValueError("not yet")
        return flow

    handle = shaky.enqueue()
    drain(harbor)
    assert handle.result(1) == [1, 2]
    assert tasks.names() == ["number", "number"]


def test_a_failing_flow_is_dead_only_where_it_died(harbor: Harbor, tasks: Tasks) -> None:
    @harbor.task(name="dies")
    def dies() -> None:
        raise Unrecoverable("no")

    handle = chord([dies.s(), tasks.number.s(1)], tasks.collect.s()).enqueue()
    drain(harbor)
    assert sorted(harbor.flow(handle.id).states.values()) == ["blocked", "dlq", "done"]
