"""What holds a flow up from outside: a job that a step of it was found to be by its key, in another flow or in none.

Such a job stays where it was, so a store that is asked for the flow does not count it. If it is dead, cancelled, or
waits for one that is, the flow waits for ever: whoever asks how the flow stands has to be told of that job.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from taskharbor.drivers.contract import Driver
from taskharbor.model.errors import JobNotFound
from taskharbor.model.job import FlowInfo, JobInfo, State, flow_status

MOST = 1000  # jobs that are looked at for one answer


async def look_at_flow(driver: Driver, id: str, now: datetime) -> FlowInfo:
    """A flow as the store tells of it, and with it the dead and cancelled jobs outside that its jobs wait for.

    They come last among the nodes, and count for the status.
    """
    info = await driver.flow(id, now)
    found = await stuck(driver, waits_outside(info), now)
    if not found:
        return info
    nodes = (*info.nodes, *found)
    return replace(info, status=flow_status([node.state for node in nodes]), nodes=nodes)


def waits_outside(info: FlowInfo) -> list[str]:
    """The ids of jobs that are no part of the flow, and that a job of it waits for."""
    own = {node.job.id for node in info.nodes if node.job.flow_id == info.id}
    waited = (id for node in info.nodes for id in node.waiting_for if id not in own)
    return list(dict.fromkeys(waited))


async def stuck(driver: Driver, ids: Iterable[str], now: datetime) -> list[JobInfo]:
    """Those of these jobs that are dead or cancelled, and those that they wait for: the dead ones first."""
    waiting, seen, found = list(dict.fromkeys(ids)), set[str](), list[JobInfo]()
    while waiting and len(seen) < MOST:
        id = waiting.pop(0)
        if id in seen:
            continue
        seen.add(id)
        try:
            info = await driver.inspect(id, now)
        except JobNotFound:
            continue
        if info.state in (State.DLQ, State.CANCELLED):
            found.append(info)
        elif info.job.handed_to is not None:
            waiting.append(info.job.handed_to)
        else:
            waiting += info.waiting_for
    return sorted(found, key=lambda info: info.state is not State.DLQ)
