"""Reading jobs, flows, queues and workers. These calls change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from taskharbor.drivers import WORKER_SILENCE, FlowInfo, JobInfo, JobQuery, Page, QueueHead, State, WorkerInfo, replace
from taskharbor.drivers.kit import (
    MAX_SCANNED_JOBS,
    check_cap,
    check_next,
    damaged_reason,
    encode_cursor,
    flow_info,
    from_us,
    no_flow,
    no_job,
    to_us,
)
from taskharbor_mystore.connection import Session
from taskharbor_mystore.flows import last_in_place, waiting_for
from taskharbor_mystore.reserve import reserve
from taskharbor_mystore.rows import STATE_AT, STORED_STATES, Row, all_rows, load


def info(session: Session, row: Row, now: datetime) -> JobInfo:
    """A job as it reads at `now`."""
    record, state = row.readable(), row.state_at(now)
    if row.state not in STORED_STATES:
        record = replace(record, reason=damaged_reason("unknown state"))
    if state is State.INFLIGHT:
        return JobInfo(record, state, row.worker, from_us(row.runnable_at))
    if state is State.BLOCKED:
        return JobInfo(record, state, waiting_for=waiting_for(session, row))
    return JobInfo(replace(record, run_at=None) if row.state == "inflight" else record, state)


def inspect(session: Session, id: str, now: datetime) -> JobInfo:
    row = load(session, id)
    if row is None:
        raise no_job(id)
    return info(session, row, now)


def list_jobs(session: Session, now: datetime, wanted: JobQuery) -> Page:
    """The page that begins behind `wanted.after`. SQL finds the jobs by name, `wanted.fits` decides about the rest."""
    names = {"queue": wanted.queue, "type": wanted.type, "grp": wanted.group, "flow_id": wanted.flow_id}
    values = {column: name for column, name in names.items() if name is not None}
    conditions = ["1", *(f"{column} = ?" for column in values)]
    if wanted.after is not None:
        conditions.append("id < ?" if wanted.newest else "id > ?")
        values["after"] = wanted.after
    order = "id DESC" if wanted.newest else "id"
    sql = f"SELECT * FROM jobs WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT {MAX_SCANNED_JOBS + 1}"
    items: list[JobInfo] = []
    last = ""
    for number, row in enumerate(all_rows(session, sql, *values.values())):
        if number == MAX_SCANNED_JOBS or len(items) == wanted.limit:
            return Page(tuple(items), encode_cursor(last))
        found, last = info(session, row, now), row.record.id
        if wanted.fits(found.job, found.state):
            items.append(msgspec.structs.replace(found, job=wanted.shown(found.job)))
    return Page(tuple(items))


def counts(session: Session, now: datetime, cap: int | None) -> dict[str, dict[str, int]]:
    check_cap(cap)
    by_queue: dict[str, dict[str, int]] = {}
    sql = f"SELECT queue, {STATE_AT} AS state_now, count(*) AS number FROM jobs GROUP BY queue, state_now"
    for found in session.rows(sql, now=to_us(now)):
        number = found["number"] if cap is None else min(found["number"], cap)
        by_queue.setdefault(found["queue"], {})[found["state_now"]] = number
    return by_queue


def queues(session: Session) -> list[str]:
    found = session.rows("SELECT queue FROM jobs UNION SELECT name FROM queues WHERE paused = 1 ORDER BY 1")
    return [name for (name,) in found]


def is_paused(session: Session, queue: str) -> bool:
    return session.row("SELECT * FROM queues WHERE name = ? AND paused = 1", queue) is not None


def heads(session: Session, names: Sequence[str], now: datetime, n: int) -> list[QueueHead]:
    """What comes next in each queue, and since when its oldest ready job waits.

    Reserving says what comes next, and a savepoint takes it back. That is exact, but it takes the lock of a writer:
    yours reads the head of the index that `reserve` uses, and says `next_known=False` where it would read too much.
    """
    check_next(n)
    return [QueueHead(name, _oldest(session, name, now), _next(session, name, now, n)) for name in names]


def _oldest(session: Session, queue: str, now: datetime) -> datetime | None:
    found = session.row(
        "SELECT min(due_at) FROM jobs WHERE queue = ? AND state IN ('ready', 'inflight') AND runnable_at <= ?",
        queue,
        to_us(now),
    )
    return None if found is None or found[0] is None else from_us(found[0])


def _next(session: Session, queue: str, now: datetime, n: int) -> tuple[str, ...]:
    session.run("SAVEPOINT trial")
    session.run("UPDATE queues SET paused = 0 WHERE name = ?", queue)
    ids = tuple(taken.job.id for taken in reserve(session, [queue], now, timedelta(days=1), n, ""))
    session.run("ROLLBACK TO trial")
    session.run("RELEASE trial")
    return ids


def flow(session: Session, flow_id: str, now: datetime) -> FlowInfo:
    rows = all_rows(session, "SELECT * FROM jobs WHERE flow_id = ? ORDER BY id", flow_id)
    if not rows:
        raise no_flow(flow_id)
    return flow_info(flow_id, tuple(info(session, row, now) for row in rows))


def results(session: Session, ids: Sequence[str]) -> dict[str, bytes | None]:
    """A job whose heir is gone has no result: that of its heir stood for it."""
    found = {id: last_in_place(session, row) for id in ids if (row := load(session, id)) is not None}
    done = {id: row.readable() for id, row in found.items() if row.state == "done"}
    return {id: record.result for id, record in done.items() if record.handed_to is None}


def workers(session: Session, now: datetime) -> list[WorkerInfo]:
    sql = "SELECT info FROM workers WHERE seen_at > ? ORDER BY worker"
    return [msgspec.json.decode(text, type=WorkerInfo) for (text,) in session.rows(sql, to_us(now - WORKER_SILENCE))]
