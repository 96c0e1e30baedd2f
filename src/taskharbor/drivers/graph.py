"""Jobs as a graph: cycles among the jobs of a call, and a flow as it reads as a whole. Nothing here asks a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import FlowInfo, JobInfo, flow_status


def refuse_cycle(waits_for: Mapping[str, Iterable[str]]) -> None:
    """InvalidJob if one of the jobs of a call waits for itself. `waits_for`: job → its dependencies."""
    stuck = in_cycle(waits_for)
    if stuck is not None:
        raise InvalidJob(f"depends_on: {stuck} waits for itself over its dependencies; leave one of the edges out")


def in_cycle(waits_for: Mapping[str, Iterable[str]]) -> str | None:
    """A job that waits for itself, over however many edges; None if there is none.

    Only edges between the jobs of a call count: what is stored already cannot wait for what is not. The jobs that wait
    for nothing are taken away, again and again; what is left waits for itself.

    >>> in_cycle({"a": ["b"], "b": ["a"], "c": ["a", "stored"]})
    'a'
    """
    waits: dict[str, int] = {}
    dependents: dict[str, list[str]] = {}
    for id, dependencies in waits_for.items():
        inside = {dependency for dependency in dependencies if dependency in waits_for}
        waits[id] = len(inside)
        for dependency in inside:
            dependents.setdefault(dependency, []).append(id)
    free = [id for id, count in waits.items() if not count]
    for id in free:
        for dependent in dependents.get(id, ()):
            waits[dependent] -= 1
            if not waits[dependent]:
                free.append(dependent)
    return next((id for id, count in waits.items() if count), None)


def flow_info(flow_id: str, nodes: tuple[JobInfo, ...]) -> FlowInfo:
    """A flow from its jobs, of which there is at least one."""
    jobs = [node.job for node in nodes]
    times = [at for job in jobs for at in (job.created_at, job.failed_at, job.finished_at) if at is not None]
    return FlowInfo(
        flow_id,
        flow_status([node.state for node in nodes]),
        min(job.created_at for job in jobs),
        max(times),
        nodes,
        tuple((dependency, job.id) for job in jobs for dependency in job.depends_on),
    )
