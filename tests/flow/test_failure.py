"""Flows that fail: what stays, what is released once, and how they go on."""

from datetime import timedelta
from typing import Any

import pytest

from taskharbor import Harbor, JobCancelled, JobDead, Unrecoverable
from taskharbor.drivers import DriverError, JobRecord
from taskharbor.flow import chain, chord, group
from taskharbor.tasks.failure_step import ON_FAILURE_KEY
from taskharbor.testing import ManualClock, drain
from tests.flow.stores import call_store
from tests.flow.tasks import Tasks


def requeue(harbor: Harbor, *ids: str) -> list[DriverError | None]:
    client = harbor.client
    now = harbor.clock.now()
    return call_store(client, lambda driver: driver.requeue(ids, now, reset_attempts=True))


def dead(harbor: Harbor, flow_id: str) -> list[str]:
    return [id for id, state in harbor.flow(flow_id).states.items() if state == "dlq"]


def test_a_dead_job_leaves_what_is_behind_it_blocked_and_a_requeue_goes_on_there(harbor: Harbor, tasks: Tasks) -> None:
    tasks.broken = {2}
    handle = chain(tasks.number.s(1), tasks.add.s(), tasks.add.s(), tasks.add.s()).enqueue()
    drain(harbor)
    assert handle.status() == "failed"
    assert list(harbor.flow(handle.id).states.values()) == ["done", "done", "dlq", "blocked"]
    with pytest.raises(JobDead, match="2 is broken") as caught:
        handle.result(1)
    tasks.broken = set()
    tasks.ran.clear()
    assert requeue(harbor, caught.value.job_id) == [None]
    assert handle.status() == "running"
    drain(harbor)
    assert (handle.result(1), handle.status()) == (4, "succeeded")
    assert tasks.ran == [("add", 2), ("add", 3)]  # nothing before it ran again


def test_a_dead_member_of_a_chord(harbor: Harbor, tasks: Tasks) -> None:
    tasks.broken = {1, 3}
    handle = chord((tasks.add.s(i) for i in range(5)), tasks.total.s()).enqueue()
    drain(harbor)
    assert (len(dead(harbor, handle.id)), handle.status(), str(handle.progress())) == (2, "failed", "3 of 6")
    tasks.broken = set()
    assert handle.requeue() == 2
    assert handle.requeue() == 0
    drain(harbor)
    assert handle.result(1) == 15
    assert tasks.names().count("total") == 1


def test_a_dead_job_of_a_returned_workflow_is_requeued_in_it(harbor: Harbor, tasks: Tasks) -> None:
    tasks.broken = {1}
    handle = chain(tasks.spread.s(3), tasks.total.s()).enqueue()
    drain(harbor)
    assert handle.status() == "failed"
    tasks.broken = set()
    assert harbor.flow(handle.id).requeue() == 1
    drain(harbor)
    assert handle.result(1) == 6
    assert tasks.names().count("spread") == 1


def test_on_failure_is_released_once_with_what_happened(harbor: Harbor, tasks: Tasks) -> None:
    tasks.broken = {1, 2}
    flow = chord((tasks.add.s(i) for i in range(4)), tasks.total.s(), on_failure=tasks.alert.s(tag="import"))
    handle = flow.enqueue()
    drain(harbor)
    assert [each for each in tasks.ran if each[0] == "alert"] == [("alert", "import", "1 is broken")]
    assert handle.status() == "failed"
    requeue(harbor, *dead(harbor, handle.id))
    drain(harbor)  # it fails again: the step was there already
    assert tasks.names().count("alert") == 1
    tasks.broken = set()
    requeue(harbor, *dead(harbor, handle.id))
    drain(harbor)
    assert (handle.result(1), handle.status(), str(handle.progress())) == (10, "succeeded", "5 of 5")
    assert harbor.flow(handle.id).result(1) == 10


def test_on_failure_belongs_to_the_transaction_that_makes_the_flow_fail(harbor: Harbor, tasks: Tasks) -> None:
    tasks.broken = {1}

    @harbor.task(name="watch", queue="other")
    def watch() -> None:
        raise AssertionError("not run here")

    handle = chain(tasks.add.s(1), on_failure=watch.s()).enqueue()
    harbor.worker(queues=["default"], heart="loop").run(until_empty=True)
    assert sorted(harbor.flow(handle.id).states.values()) == ["dlq", "ready"]


def test_no_failure_step_after_success_cancel_or_retry(harbor: Harbor, tasks: Tasks) -> None:
    tasks.again = {1: 2}
    fine = chain(tasks.add.s(1), on_failure=tasks.alert.s()).enqueue()
    cancelled = chain(tasks.cancels.s(1), tasks.add.s(), on_failure=tasks.alert.s()).enqueue()
    drain(harbor)
    assert fine.result(1) == 2
    assert cancelled.status() == "cancelled"
    with pytest.raises(JobCancelled, match="not wanted"):
        cancelled.result(1)
    assert "alert" not in tasks.names()


def test_nested_failure_steps_are_released_from_the_inside_out(harbor: Harbor, tasks: Tasks) -> None:
    tasks.broken = {1}
    inner = chain(tasks.add.s(1), on_failure=tasks.alert.s(tag="inner"))
    sound = chain(tasks.add.s(5), on_failure=tasks.alert.s(tag="neighbour"))
    chain(group(inner, sound), tasks.total.s(), on_failure=tasks.alert.s(tag="outer")).enqueue()
    drain(harbor)
    assert [tag for kind, tag, *_ in [e for e in tasks.ran if e[0] == "alert"]] == ["inner", "outer"]


def test_a_spawned_workflow_is_part_of_its_jobs_flow(harbor: Harbor, tasks: Tasks) -> None:
    tasks.broken = {1}
    handle = chain(tasks.spread.s(3), tasks.total.s(), on_failure=tasks.alert.s(tag="all")).enqueue()
    drain(harbor)
    assert handle.status() == "failed"
    assert [e for e in tasks.ran if e[0] == "alert"] == [("alert", "all", "1 is broken")]


def test_a_workflow_that_cannot_be_stored_makes_the_flow_fail(harbor: Harbor, tasks: Tasks) -> None:
    @harbor.task(name="wrong")
    def wrong() -> Any:
        return chain(tasks.add.s())

    chain(wrong.s(), on_failure=tasks.alert.s(tag="compile")).enqueue()
    drain(harbor)
    assert [tag for _, tag, _ in tasks.ran] == ["compile"]


def test_a_job_that_crashes_its_workers_makes_the_flow_fail(harbor: Harbor, tasks: Tasks) -> None:
    handle = chain(tasks.number.s(1), on_failure=tasks.alert.s(tag="crash")).enqueue()
    assert isinstance(harbor.clock, ManualClock)
    for _ in range(3):
        _reserve_and_die(harbor)
        harbor.clock.advance(31)
    drain(harbor)
    assert handle.status() == "failed"
    assert tasks.ran == [("alert", "crash", "crashed 3 times")]


def _reserve_and_die(harbor: Harbor) -> None:
    client, now = harbor.client, harbor.clock.now()
    call_store(client, lambda d: d.reserve(["default"], now, timedelta(seconds=30), 1, "dead"))


def test_a_failure_step_keeps_its_options(harbor: Harbor, tasks: Tasks) -> None:
    tasks.broken = {1}
    step = tasks.alert.s(tag="later").options(queue="alerts", delay=60, max_attempts=2, priority=4, timeout=9)
    handle = chain(tasks.add.s(1), on_failure=step).enqueue()
    drain(harbor)
    (job,) = [node.job for node in harbor.flow(handle.id).nodes if node.job.type == "alert"]
    assert (job.queue, job.max_attempts, job.priority) == ("alerts", 2, 4)
    assert job.run_at is not None
    assert (job.run_at - harbor.clock.now()).total_seconds() == 60
    assert tasks.names() == ["add"]


def test_a_failure_step_that_carries_too_much_is_refused(tasks: Tasks) -> None:
    with pytest.raises(ValueError, match="on_failure: every job of the flow carries its steps"):
        chain(tasks.number.s(1), on_failure=tasks.alert.s(tag="x" * 9000)).enqueue()


def test_a_damaged_mark_releases_nothing_and_the_job_dies_all_the_same(harbor: Harbor, tasks: Tasks) -> None:
    tasks.broken = {1}
    record = JobRecord(id="a", type="add", payload=b'{"x":1}', metadata={ON_FAILURE_KEY: "nonsense"})
    harbor._store.enqueue(lambda now: [record], None, "test")
    drain(harbor)
    assert harbor.client.handle("a").status() == "dlq"


def test_a_failure_step_that_cannot_be_stored_does_not_keep_the_job_alive(harbor: Harbor, tasks: Tasks) -> None:
    mark = '[{"id":"{}","type":"alert","queue":"default"}]'  # braces are no id
    record = JobRecord(id="a", type="dies", payload=b"{}", metadata={ON_FAILURE_KEY: mark})

    @harbor.task(name="dies")
    def dies() -> None:
        raise Unrecoverable("as it should")

    harbor._store.enqueue(lambda now: [record], None, "test")
    drain(harbor)
    with pytest.raises(JobDead, match="as it should"):
        harbor.client.handle("a").result(1)


def test_a_flow_with_a_dead_and_a_cancelled_step_has_failed(harbor: Harbor, tasks: Tasks) -> None:
    """Its waiting caller learns that, and the reason of the dead one."""
    tasks.broken = {6}
    handle = group([tasks.cancels.s(1), tasks.add.s(6)]).enqueue()
    drain(harbor)
    assert (handle.status(), handle.wait(1)) == ("failed", "failed")
    with pytest.raises(JobDead, match="6 is broken"):
        handle.result(1)


def test_the_error_for_a_returned_workflow_says_why_it_was_cancelled(harbor: Harbor, tasks: Tasks) -> None:
    @harbor.task
    def wrapped() -> Any:
        return chain(tasks.cancels.s(1), tasks.add.s())

    handle = wrapped.enqueue()
    drain(harbor)
    with pytest.raises(JobCancelled, match="not wanted"):
        handle.result(1)


def test_a_step_whose_payload_was_amended_comes_back_with_the_cancelled_one(harbor: Harbor, tasks: Tasks) -> None:
    """The reason of its end is kept, although the old payload holds a word of it."""
    handle = chain(tasks.nothing.s(), tasks.alert.s(tag="cancelled")).enqueue()
    first, second = handle.info().nodes
    harbor.job(first.job.id).cancel()
    harbor.job(second.job.id).amend(payload={"tag": "changed"})
    harbor.job(first.job.id).requeue()
    assert handle.status() == "running"
