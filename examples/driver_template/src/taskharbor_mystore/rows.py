"""A job as its row, and the few transitions of which every call is made."""

from __future__ import annotations

import json
import sqlite3
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from taskharbor.drivers import JobRecord, Lease, State
from taskharbor.drivers.kit import damage_of, damaged_reason, from_us, readable, to_us
from taskharbor_mystore.connection import Session

MICROSECOND = timedelta(microseconds=1)
STORED_STATES = ("blocked", "ready", "inflight", "done", "dlq", "cancelled")
MOMENTS = {"run_at", "failed_at", "created_at", "finished_at"}
FIELDS = {name: name for name in (
    "id", "type", "queue", "payload", "run_at", "timeout", "priority", "attempts", "max_attempts", "deliveries", "lost",
    "idempotency_key", "group_limit", "depends_on", "flow_id", "handed_to", "metadata", "last_error", "failed_at",
    "reason", "created_at", "finished_at", "result",
)} | {"group": "grp"}  # fmt: skip
"""Field of a record → its column."""

STATE_AT = """CASE WHEN state = 'ready' AND runnable_at > :now THEN 'scheduled'
    WHEN state = 'inflight' AND runnable_at <= :now THEN 'ready'
    WHEN state IN ('blocked', 'ready', 'inflight', 'done', 'dlq', 'cancelled') THEN state ELSE 'dlq' END"""
"""`Row.state_at` in SQL."""


class Row(NamedTuple):
    """A row of `jobs`. Its record may hold anything, because another program may have written it."""

    num: int
    record: JobRecord
    state: str | None
    runnable_at: int
    token: str | None
    worker: str
    settled: str | None

    def state_at(self, now: datetime) -> State:
        """The state of the contract: it follows from the row and `now` alone."""
        ahead = self.runnable_at > to_us(now)
        if self.state == "ready":
            return State.SCHEDULED if ahead else State.READY
        if self.state == "inflight":
            return State.INFLIGHT if ahead else State.READY
        return State(self.state) if self.state in STORED_STATES else State.DLQ

    def damage(self) -> str | None:
        """What would stop a worker that ran this job; None if it is sound."""
        return damage_of(self.record) or (None if self.state in STORED_STATES else "unknown state")

    def readable(self) -> JobRecord:
        """The record as it can be shown, whatever is in the row."""
        return self.record if damage_of(self.record) is None else readable(self.record)


def load(session: Session, id: str) -> Row | None:
    """The row of a job."""
    found = session.row("SELECT * FROM jobs WHERE id = ?", id)
    return None if found is None else row_of(found)


def row_of(row: sqlite3.Row) -> Row:
    """A row of `SELECT * FROM jobs`."""
    fields = {field: decoded(field, row[column]) for field, column in FIELDS.items()}
    own = (row[name] for name in ("state", "runnable_at", "token", "worker", "settled"))
    return Row(row["num"], JobRecord(**fields), *own)


def decoded(field: str, value: Any) -> Any:
    """A value as the record has it. What cannot be decoded stays as it is, of the wrong type: `damage_of` finds it."""
    try:
        if field in MOMENTS and value is not None:
            return from_us(value)
        if field == "timeout" and value is not None:
            return timedelta(microseconds=value)
        if field in ("depends_on", "metadata"):
            found = json.loads(value)
            return tuple(found) if field == "depends_on" else found
    except (TypeError, ValueError, OverflowError):
        return (None,) if field == "depends_on" else value
    return value


def encoded(value: Any) -> Any:
    """A value of a record as its column has it."""
    if isinstance(value, datetime):
        return to_us(value)
    if isinstance(value, timedelta):
        return value // MICROSECOND
    if isinstance(value, tuple | dict):
        return json.dumps(value)
    return value


def insert(session: Session, record: JobRecord) -> int:
    """Store a new job, blocked for the moment; its number."""
    columns = {column: encoded(getattr(record, field)) for field, column in FIELDS.items()}
    marks = ", ".join("?" for _ in columns)
    sql = f"INSERT INTO jobs (state, {', '.join(columns)}) VALUES ('blocked', {marks})"
    session.run(sql, *columns.values())
    (num,) = session.row("SELECT num FROM jobs WHERE id = ?", record.id) or (0,)
    return int(num)


def update(session: Session, num: int, **columns: Any) -> None:
    """Change columns of a row."""
    assignments = ", ".join(f"{name} = ?" for name in columns)
    session.run(f"UPDATE jobs SET {assignments} WHERE num = ?", *map(encoded, columns.values()), num)


# Transitions


def make_ready(session: Session, row: Row, now: datetime, **changes: Any) -> None:
    """Ready or scheduled, at the end of the order."""
    run_at = changes.get("run_at", row.record.run_at)
    due_at = max(run_at, now) if isinstance(run_at, datetime) else now
    arrival = session.next_number()
    end_lease(session, row)
    update(
        session,
        row.num,
        state="ready",
        runnable_at=to_us(run_at) if isinstance(run_at, datetime) else 0,
        due_at=due_at,
        arrival=arrival,
        **changes,
    )
    session.run(
        "UPDATE jobs SET position = CASE WHEN grp IS NULL THEN coalesce(-priority, 0) ELSE 0 END WHERE num = ?", row.num
    )
    note_arrival(session, row.record.queue)


def finish(session: Session, row: Row, state: State, now: datetime, **changes: Any) -> None:
    """To a terminal state."""
    end_lease(session, row)
    update(session, row.num, state=state.value, finished_at=now, **changes)


def set_aside(session: Session, row: Row, now: datetime) -> bool:
    """Move a damaged row to the dead letter queue; False if it is sound."""
    damage = row.damage()
    if damage is not None:
        finish(session, row, State.DLQ, now, reason=damaged_reason(damage))
    return damage is not None


def forget(session: Session, row: Row) -> None:
    """Delete a job, and what is known of its flow if it was the last one of it."""
    end_lease(session, row)
    session.run("DELETE FROM edges WHERE job = ?", row.num)
    session.run("DELETE FROM jobs WHERE num = ?", row.num)
    session.run(
        "DELETE FROM cancelled_flows WHERE flow_id = ?1 AND NOT EXISTS (SELECT * FROM jobs WHERE flow_id = ?1)",
        row.readable().flow_id,
    )


def end_lease(session: Session, row: Row) -> None:
    if row.token is not None:
        update(session, row.num, token=None, worker="")
        if row.record.group is not None:  # the group has capacity again
            note_arrival(session, row.record.queue)


def note_arrival(session: Session, queue: str) -> None:
    """Note that a reserve may find more in a queue than before: `wait` ends by it."""
    number = session.next_number()
    session.run("INSERT OR IGNORE INTO queues (name) VALUES (?)", queue)
    session.run("UPDATE queues SET arrived = ? WHERE name = ?", number, queue)


def lease_of(row: Row) -> Lease | None:
    """The lease that was granted last, if nothing has ended it since: it may be over."""
    if row.state != "inflight" or row.token is None:
        return None
    return Lease(row.record.id, row.record.queue, row.token, from_us(row.runnable_at))


def all_rows(session: Session, sql: str, *values: Any, **named: Any) -> list[Row]:
    """The rows of a query for all columns of `jobs`."""
    return [row_of(each) for each in session.rows(sql, *values, **named)]
