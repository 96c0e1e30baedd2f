"""Bringing dead and cancelled jobs back: one job, or all dead jobs of a flow."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from taskharbor.client.external_jobs import failed_externals, waits_for_externals
from taskharbor.drivers.base import Driver
from taskharbor.model.errors import JobNotFound
from taskharbor.model.job import State
from taskharbor.model.times import Duration, duration, moment, round_up

PAGE_JOBS = 1000


class Again(msgspec.Struct, frozen=True):
    """When a job that is brought back runs, and whether its failures are forgotten."""

    at: datetime | None = None
    after: timedelta | None = None
    reset_attempts: bool = True

    def run_at(self, now: datetime) -> datetime | None:
        """The moment from which on it may run; None: at once."""
        return self.at if self.after is None else round_up(now + self.after)


def checked_again(run_at: datetime | None, delay: Duration | None, reset_attempts: bool) -> Again:
    """What a caller gave, as a value; TypeError or ValueError for a value that makes no sense."""
    if run_at is not None and delay is not None:
        raise ValueError("requeue: expected delay or run_at, got both; give one")
    if not isinstance(reset_attempts, bool):
        raise TypeError(f"reset_attempts: expected True or False, got {type(reset_attempts).__name__}")
    return Again(
        None if run_at is None else moment(run_at, "run_at"),
        None if delay is None else duration(delay, "delay"),
        reset_attempts,
    )


async def requeue_flow(driver: Driver, id: str, again: Again, now: datetime) -> int:
    """Bring the dead jobs of a flow back; returns their number. It goes on exactly there.

    Also the dead jobs outside of the flow that it waits for, because a step of it was found to be one of them by its
    key.
    """
    dead: list[str] = []
    cursor: str | None = None
    while True:
        page = await driver.list(flow_id=id, state=State.DLQ, cursor=cursor, limit=PAGE_JOBS, now=now)
        dead += [info.job.id for info in page.items]
        cursor = page.cursor
        if cursor is None:
            break
    try:
        externals = await failed_externals(driver, waits_for_externals(await driver.flow(id, now)), now)
    except JobNotFound:
        externals = []
    dead += [info.job.id for info in externals if info.state is State.DLQ]
    errors = await driver.requeue(dead, now, again.run_at(now), again.reset_attempts)
    return sum(error is None for error in errors)
