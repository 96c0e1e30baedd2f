"""Looking at jobs. Nothing here writes, and nothing fails because of a damaged record."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from taskharbor.drivers.contract import WORKER_SILENCE
from taskharbor.drivers.cursor import decode_cursor, encode_cursor
from taskharbor.drivers.graph import flow_info
from taskharbor.drivers.sqlite.damage import readable
from taskharbor.drivers.sqlite.enqueue import last_of
from taskharbor.drivers.sqlite.records import LEASED, moment_of, state_at, ticks
from taskharbor.drivers.sqlite.session import WriteSession
from taskharbor.drivers.sqlite.statements import COLUMNS, UNKNOWN, statement
from taskharbor.model.errors import JobNotFound
from taskharbor.model.job import FlowInfo, JobInfo, Page, State, WorkerInfo, replace

LOAD = statement("load")
COUNTS = statement("counts")
QUEUES = statement("queues")
WAITING_FOR = statement("waiting_for")
WORKERS = "SELECT info FROM taskharbor_workers WHERE seen_at > ? ORDER BY name"
RESULT = "SELECT result FROM taskharbor_jobs WHERE id = ?"

_worker = msgspec.json.Decoder(WorkerInfo).decode

# Which rows are in a state at a moment. `unknown` reads as dead.
_IN_STATE = {
    State.BLOCKED: "state = 0",
    State.SCHEDULED: "state = 1 AND moment > :now",
    State.READY: "((state = 1 AND (moment IS NULL OR moment <= :now)) OR (state = 2 AND moment <= :now))",
    State.INFLIGHT: "state = 2 AND moment > :now",
    State.DONE: "state = 3",
    State.DLQ: f"(state = 4 OR ({UNKNOWN}))",
    State.CANCELLED: "state = 5",
}


def info(session: WriteSession, row: Sequence[Any], now: int) -> JobInfo:
    """A job as it reads at a moment."""
    state = state_at(row[3], row[8], now)
    record = readable(row)
    if state is State.INFLIGHT:
        return JobInfo(record, state, row[10], moment_of(row[8]))
    if state is State.BLOCKED:
        open = {id for (id,) in session.all(WAITING_FOR, row[0])}
        return JobInfo(record, state, waiting_for=tuple(id for id in dict.fromkeys(record.depends_on) if id in open))
    if state is State.READY and row[3] == LEASED:  # its lease is over
        return JobInfo(replace(record, run_at=None), state)
    return JobInfo(record, state)


def inspect(session: WriteSession, id: str, now: datetime) -> JobInfo:
    row = session.one(LOAD, id)
    if row is None:
        raise JobNotFound(f"no job {id}")
    return info(session, row, ticks(now))


def list_jobs(
    session: WriteSession,
    now: datetime,
    *,
    queue: str | None,
    state: State | str | None,
    type: str | None,
    group: str | None,
    flow_id: str | None,
    cursor: str | None,
    limit: int,
) -> Page:
    if limit < 1:
        raise ValueError(f"limit: expected at least 1, got {limit}")
    moment = ticks(now)
    given: dict[str, Any] = {"now": moment, "limit": limit + 1}
    wheres = [_IN_STATE[State(state)]] if state is not None else []
    asked = (("queue", "queue", queue), ("type", "type", type), ("grp", "grp", group), ("flow_id", "flow_id", flow_id))
    for column, name, value in asked:
        if value is not None:
            wheres.append(f"{column} = :{name}")
            given[name] = value
    if cursor is not None:
        wheres.append("id > :after")
        given["after"] = decode_cursor(cursor)
    where = f"WHERE {' AND '.join(wheres)}" if wheres else ""
    session.execute(f"SELECT {COLUMNS} FROM taskharbor_jobs {where} ORDER BY id LIMIT :limit", given)
    rows = session.fetchall()
    items = tuple(info(session, row, moment) for row in rows[:limit])
    return Page(items, encode_cursor(items[-1].job.id) if len(rows) > limit else None)


def counts(session: WriteSession, now: datetime) -> dict[str, dict[str, int]]:
    session.execute(COUNTS, {"now": ticks(now)})
    answer: dict[str, dict[str, int]] = {}
    for queue, state, number in session.fetchall():
        states = answer.setdefault(queue, {})
        states[state] = states.get(state, 0) + number
    return answer


def queues(session: WriteSession) -> list[str]:
    return sorted(name for (name,) in session.all(QUEUES))


def flow(session: WriteSession, flow_id: str, now: datetime) -> FlowInfo:
    moment = ticks(now)
    rows = session.all(f"SELECT {COLUMNS} FROM taskharbor_jobs WHERE flow_id = ? ORDER BY id", flow_id)
    if not rows:
        raise JobNotFound(f"no flow {flow_id}")
    nodes = tuple(info(session, row, moment) for row in rows)
    return flow_info(flow_id, nodes)


def results(session: WriteSession, ids: Sequence[str]) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for id in ids:
        last = last_of(session, id)
        value = session.one(RESULT, last)[0] if last is not None else None
        found[id] = value if isinstance(value, bytes) else None
    return found


def workers(session: WriteSession, now: datetime) -> list[WorkerInfo]:
    return [_worker(text) for (text,) in session.all(WORKERS, ticks(now - WORKER_SILENCE))]


def is_paused(session: WriteSession, queue: str) -> bool:
    found = session.known_queue(queue)
    return found is not None and bool(found.paused)
