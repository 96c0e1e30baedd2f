"""Jobs outside a flow that hold it up: a step of the flow was found to be such a job by its key.

That job stays in its own flow, or in none, so a store that is asked for the flow does not count it. If it is dead or
cancelled, or waits for a job that is, the flow waits for ever. So a caller that asks how the flow stands must learn of
that job.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from taskharbor.drivers.base import Driver
from taskharbor.model.errors import JobNotFound
from taskharbor.model.job import FlowInfo, JobInfo, State, flow_status

MAX_INSPECTED_JOBS = 1000  # for one call


async def read_flow(driver: Driver, id: str, now: datetime) -> FlowInfo:
    """A flow as the store returns it, and the dead and cancelled jobs outside of it that its jobs wait for.

    They come last among the nodes, and count for the status.
    """
    info = await driver.flow(id, now)
    failed = await failed_externals(driver, waits_for_externals(info), now)
    if not failed:
        return info
    nodes = (*info.nodes, *failed)
    return replace(info, status=flow_status([node.state for node in nodes]), nodes=nodes)


def waits_for_externals(info: FlowInfo) -> list[str]:
    """The ids of jobs that are not part of the flow, and that a job of it waits for."""
    own = {node.job.id for node in info.nodes if node.job.flow_id == info.id}
    waited = (id for node in info.nodes for id in node.waiting_for if id not in own)
    return list(dict.fromkeys(waited))


async def failed_externals(driver: Driver, ids: Iterable[str], now: datetime) -> list[JobInfo]:
    """Those of these jobs, and of the jobs that they wait for, that are dead or cancelled: the dead ones first."""
    waiting, seen, failed = list(dict.fromkeys(ids)), set[str](), list[JobInfo]()
    while waiting and len(seen) < MAX_INSPECTED_JOBS:
        id = waiting.pop(0)
        if id in seen:
            continue
        seen.add(id)
        try:
            info = await driver.inspect(id, now)
        except JobNotFound:
            continue
        if info.state in (State.DLQ, State.CANCELLED):
            failed.append(info)
        elif info.job.handed_to is not None:
            waiting.append(info.job.handed_to)
        else:
            waiting += info.waiting_for
    return sorted(failed, key=lambda info: info.state is not State.DLQ)
