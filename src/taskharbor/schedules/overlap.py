"""Whether a job that a schedule has made still runs: what `overlap="skip"` asks before a slot gets another one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from taskharbor.drivers.base import Driver
from taskharbor.model.errors import JobNotFound
from taskharbor.model.job import JobInfo, State

MAX_HANDOVERS = 200
"""How far a job is followed to those that took its place: more than workflows nest."""

_FAILED = (State.DLQ, State.CANCELLED)
_GOING = (State.READY, State.INFLIGHT, State.SCHEDULED)


async def still_running(driver: Driver, ids: Sequence[str], now: datetime) -> Sequence[str]:
    """Those of these jobs that may not have ended, nor the workflow that took the place of one; empty if all have.

    A job that waits for a retry has not ended. One that is dead has, and so has one whose record is gone. Those behind
    the first one that runs are not looked at.
    """
    for place, id in enumerate(ids):
        if await _is_running(driver, id, now):
            return ids[place:]
    return ()


async def _is_running(driver: Driver, id: str, now: datetime) -> bool:
    try:
        own = last = await driver.inspect(id, now)
        for _ in range(MAX_HANDOVERS):
            if last.job.handed_to is None:
                break
            last = await driver.inspect(last.job.handed_to, now)
    except JobNotFound:
        return False
    if last.state.terminal:
        return False
    if last.job.flow_id is None or last.job.flow_id == own.job.flow_id:
        return True
    return await _goes_on(driver, last, now)


async def _goes_on(driver: Driver, last: JobInfo, now: datetime) -> bool:
    """Whether a workflow that has not reached its end still runs. If a job of it is dead, those that wait for that one
    are blocked for ever; others may run."""
    flow_id = last.job.flow_id
    for state in _FAILED:
        if (await driver.list(flow_id=flow_id, state=state, limit=1, now=now)).items:
            break
    else:
        return True
    for state in _GOING:
        if (await driver.list(flow_id=flow_id, state=state, limit=1, now=now)).items:
            return True
    return False
