"""A step that its key shows to be a job already there, outside of the flow, which is dead or cancelled, or will be.

Nothing that waits for such a job ever runs, so the flow must not read as running: on every store.
"""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from taskharbor import Harbor, JobCancelled, JobDead
from taskharbor.flow import Flow, chain, chord, group
from taskharbor.testing import drain
from tests.flow.tasks import Tasks

BROKEN = 7


def known(tasks: Tasks) -> Any:
    """The step whose key is known: `add` of a number at which it dies."""
    return tasks.add.s(BROKEN).options(idempotency_key="known")


def first(tasks: Tasks, how: str) -> Any:
    """The job that is there before: by itself, or a part of another flow. What it is depends on how it ended."""
    tasks.broken.add(BROKEN)
    if how == "of a flow":
        handle: Any = chain(tasks.number.s(1), known(tasks), tasks.add.s()).enqueue()
    else:
        handle = tasks.add.options(idempotency_key="known").enqueue(BROKEN)
    return handle


FLOWS = {
    "first of a chain": lambda tasks: chain(known(tasks), tasks.add.s(), on_failure=tasks.told.s()),
    "one of a chord": lambda tasks: chord(
        [tasks.number.s(1), known(tasks)], tasks.total.s(), on_failure=tasks.told.s()
    ),
    "one of a group": lambda tasks: group(tasks.number.s(1), known(tasks), on_failure=tasks.told.s()),
    "in a nested part": lambda tasks: chain(
        tasks.number.s(1), chord([known(tasks)], tasks.total.s(), on_failure=tasks.told.s()), tasks.add.s()
    ),
}
RESULTS = {"first of a chain": 9, "one of a chord": 9, "one of a group": [1, 8], "in a nested part": 9}


@pytest.mark.parametrize(("how", "shape"), [*(("alone", shape) for shape in FLOWS), ("of a flow", "first of a chain")])
def test_a_step_that_is_dead_makes_the_flow_fail_at_once(harbor: Harbor, tasks: Tasks, shape: str, how: str) -> None:
    before = first(tasks, how)
    drain(harbor)
    dead = before.id if how == "alone" else next(n.job.id for n in harbor.flow(before.id).nodes if n.state == "dlq")
    handle = FLOWS[shape](tasks).enqueue()
    assert handle.status() == "failed"
    with pytest.raises(JobDead) as raised:
        handle.result(60)
    assert raised.value.job_id == dead
    drain(harbor)
    [failure] = [each for each in tasks.ran if each[0] == "told"]
    assert failure == ("told", handle.id, dead, "add")
    assert handle.status() == "failed"
    found = harbor.flow(handle.id)
    assert (found.status, found.nodes[-1].job.id) == ("failed", dead)
    assert dead in found.states
    with pytest.raises(JobDead):
        found.result(60)
    tasks.broken.clear()
    assert handle.requeue() == 1
    drain(harbor)
    assert handle.status() == "succeeded"
    assert handle.result(60) == RESULTS[shape]
    assert len([each for each in tasks.ran if each[0] == "told"]) == 1


@pytest.mark.parametrize("shape", FLOWS)
def test_a_step_that_is_cancelled_makes_the_flow_cancelled(harbor: Harbor, tasks: Tasks, shape: str) -> None:
    before = first(tasks, "alone")
    before.cancel()
    handle = FLOWS[shape](tasks).enqueue()
    assert handle.status() == "cancelled"
    with pytest.raises(JobCancelled) as raised:
        handle.result(60)
    assert raised.value.job_id == before.id
    drain(harbor)
    assert not [each for each in tasks.ran if each[0] == "told"]
    assert handle.requeue() == 0
    assert handle.progress().done < handle.progress().total


def test_a_step_that_dies_later_makes_the_flow_fail_then(harbor: Harbor, tasks: Tasks) -> None:
    before = first(tasks, "alone")
    handle = FLOWS["first of a chain"](tasks).enqueue()
    assert handle.status() == "running"
    drain(harbor)
    assert handle.status() == "failed"
    with pytest.raises(JobDead) as raised:
        handle.result(60)
    assert raised.value.job_id == before.id
    tasks.broken.clear()
    assert handle.requeue() == 1
    drain(harbor)
    assert handle.result(60) == 9


def test_a_step_that_waits_for_a_dead_job_of_its_own_flow_makes_the_flow_fail(harbor: Harbor, tasks: Tasks) -> None:
    tasks.broken.add(BROKEN)
    behind = tasks.number.s(3).options(idempotency_key="behind")
    other = chain(tasks.add.s(BROKEN), behind).enqueue()
    drain(harbor)
    handle = chain(behind, tasks.add.s(), on_failure=tasks.told.s()).enqueue()
    assert (other.status(), handle.status()) == ("failed", "failed")
    with pytest.raises(JobDead):
        handle.result(60)
    drain(harbor)
    assert [each[3] for each in tasks.ran if each[0] == "told"] == ["add"]
    tasks.broken.clear()
    assert handle.requeue() == 1
    drain(harbor)
    assert handle.result(60) == 4


def test_one_dead_step_among_many_known_ones_is_found(harbor: Harbor, tasks: Tasks) -> None:
    tasks.broken.add(BROKEN)
    alive = [tasks.number.s(n).options(idempotency_key=f"alive {n}", delay=3600) for n in range(50)]
    group(alive).enqueue()
    first(tasks, "alone")
    drain(harbor)
    handle = chord([*alive, known(tasks)], tasks.total.s()).enqueue()
    with pytest.raises(JobDead):
        handle.result(60)


def test_a_flow_of_which_every_step_is_known_is_the_flow_that_was_there(harbor: Harbor, tasks: Tasks) -> None:
    before = first(tasks, "alone")
    drain(harbor)
    handle: Any = chain(known(tasks), on_failure=tasks.told.s()).enqueue()
    assert (handle.existed, handle.status()) == (True, "failed")
    with pytest.raises(JobDead) as raised:
        handle.result(60)
    assert raised.value.job_id == before.id
    drain(harbor)
    assert not [each for each in tasks.ran if each[0] == "told"]


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_the_failure_step_is_stored_in_the_callers_transaction(tmp_path: Path, ends: str) -> None:
    with Harbor(f"sqlite:///{tmp_path / 'jobs.db'}") as harbor:
        tasks = Tasks(harbor)
        first(tasks, "alone")
        drain(harbor)
        connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        flow: Flow[Any] = FLOWS["first of a chain"](tasks)
        flow.options(connection=connection).enqueue()
        connection.execute(ends.upper())
        connection.close()
        drain(harbor)
        assert len([each for each in tasks.ran if each[0] == "told"]) == (ends == "commit")
