"""Figures of a flow as the store returned it: which job ends it, its progress, how long its jobs took."""

from __future__ import annotations

from datetime import timedelta

from taskharbor.model.job import FlowInfo, JobInfo, State
from taskharbor.tasks.flow_metadata import JOIN_TYPE, ON_FAILURE_ROLE, ROLE_KEY


def is_failure_step(node: JobInfo) -> bool:
    """Whether this job was released by a failure."""
    return node.job.metadata.get(ROLE_KEY) == ON_FAILURE_ROLE


def end_of(info: FlowInfo) -> str:
    """The job whose result is the flow's: nothing waits for it, and no other has taken its place."""
    waited_for = {dependency for dependency, _ in info.edges}
    ends = [
        node.job.id
        for node in info.nodes
        if node.job.id not in waited_for and node.job.handed_to is None and not is_failure_step(node)
    ]
    return ends[-1] if ends else info.nodes[-1].job.id


def progress_of(info: FlowInfo) -> tuple[int, int]:
    """How many jobs are done, of how many. Joins, failure steps and jobs that handed over to others do not count."""
    counted = [
        node
        for node in info.nodes
        if node.job.type != JOIN_TYPE and node.job.handed_to is None and not is_failure_step(node)
    ]
    return sum(node.state is State.DONE for node in counted), len(counted)


def durations_of(info: FlowInfo) -> dict[str, timedelta | None]:
    """How long each job took from the moment at which it could start to its end; None while it has not ended."""
    ended = {node.job.id: node.job.finished_at for node in info.nodes}
    startable = {node.job.id: max(node.job.created_at, node.job.run_at or node.job.created_at) for node in info.nodes}
    for dependency, dependent in info.edges:
        at = ended.get(dependency)
        if at is not None and dependent in startable:
            startable[dependent] = max(startable[dependent], at)
    return {id: None if at is None else max(at - startable[id], timedelta()) for id, at in ended.items()}
