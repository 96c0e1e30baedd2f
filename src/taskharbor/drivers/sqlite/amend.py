"""Amendments: changes of stored jobs that are neither under a lease nor done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from taskharbor.drivers.refusals import amended_since, no_job, not_amendable
from taskharbor.drivers.sqlite.damage import is_number
from taskharbor.drivers.sqlite.records import DONE, LEASED, WAITING, JobRow, maybe_us, metadata_json
from taskharbor.drivers.sqlite.session import WriteSession
from taskharbor.drivers.sqlite.transitions import leave, line_up
from taskharbor.model.amendment import Amend
from taskharbor.model.bounds import check_amend
from taskharbor.model.errors import InvalidJob, TaskHarborError
from taskharbor.model.times import MICROSECOND, to_us


def amend(
    session: WriteSession, changes: Sequence[Amend], now: datetime, max_payload: int
) -> list[TaskHarborError | None]:
    """Change jobs, each on its own; a refused one has its error in its place."""
    return [_amend_one(session, change, to_us(now), max_payload) for change in changes]


def _amend_one(session: WriteSession, change: Amend, now: int, max_payload: int) -> TaskHarborError | None:
    try:
        check_amend(change, max_payload)
    except InvalidJob as invalid:
        return invalid
    job = session.load(change.id)
    if job is None:
        return no_job(change.id)
    if job.state == DONE or job.state == LEASED:  # also under a lease that is over: its worker may still run
        return not_amendable(job.id, "done" if job.state == DONE else "under a lease")
    deliveries = job.deliveries if is_number(job.deliveries) else 0
    edits = job.edits if job.edits is not None and is_number(job.edits) else 0
    if (deliveries, edits) != (change.deliveries, change.edits):
        return amended_since(job.id)
    _apply(session, job, change.changes(), edits + 1, now)
    return None


def _apply(session: WriteSession, job: JobRow, changes: dict[str, Any], edits: int, now: int) -> None:
    values: dict[str, Any] = {name: _stored(value) for name, value in changes.items()}
    if "priority" in changes:
        values["rank"] = 0 if job.grp is not None else -changes["priority"]
    columns = ", ".join(f"{column} = :{column}" for column in values)
    session.execute(
        f"UPDATE taskharbor_jobs SET {columns}, edits = :edits WHERE num = :num",
        {**values, "edits": edits, "num": job.num},
    )
    if job.state == WAITING and not changes.keys().isdisjoint({"run_at", "priority"}):
        job.run_at = values.get("run_at", job.run_at)
        lost_at = job.lost_at
        leave(session, job)
        job.lost_at = lost_at  # if an execution was lost, it is still the one before the next
        line_up(session, job, now, session.next_number())
        session.save(job)


def _stored(value: Any) -> Any:
    """A field of a record as its column holds it."""
    if isinstance(value, datetime):
        return maybe_us(value)
    if isinstance(value, timedelta):
        return value // MICROSECOND
    if isinstance(value, dict):
        return metadata_json(value)
    return value
