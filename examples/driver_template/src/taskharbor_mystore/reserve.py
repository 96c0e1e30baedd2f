"""Reserving: the due jobs of some queues in their order, each under a lease. A worker's hot path.

One job at a time, so that the rules can be read: which queue has its turn, whether its groups or its ungrouped jobs do,
and which group. The index `jobs_by_order` has the jobs of each queue and group in their order, but also those that are
inflight or scheduled, which a query passes over. Yours should find the due ones alone, and take many in one statement.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from taskharbor.drivers import Lease, Reserved, replace
from taskharbor.drivers.kit import to_us
from taskharbor_mystore.connection import Session
from taskharbor_mystore.rows import Row, all_rows, set_aside, update

_DUE = "SELECT * FROM jobs WHERE queue = :queue AND state IN ('ready', 'inflight') AND runnable_at <= :now"
_FIRST_UNGROUPED = f"{_DUE} AND grp IS NULL ORDER BY position, due_at, arrival LIMIT 1"
_FIRST_GROUPED = f"""
SELECT due.* FROM ({_DUE}) AS due LEFT JOIN groups ON groups.queue = :queue AND groups.name = due.grp
WHERE due.grp IS NOT NULL AND (
    SELECT count(*) FROM jobs
    WHERE queue = :queue AND grp = due.grp AND state = 'inflight' AND runnable_at > :now
) < max(coalesce(groups.capacity, 0), 1)
ORDER BY coalesce(groups.turn, 0), due_at, arrival LIMIT 1"""
_UNKNOWN_STATE = """SELECT * FROM jobs WHERE queue = ? AND
(state IS NULL OR state NOT IN ('blocked', 'ready', 'inflight', 'done', 'dlq', 'cancelled'))"""
_FAR = to_us(datetime(9999, 1, 1, tzinfo=UTC))


def reserve(
    session: Session, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str
) -> list[Reserved]:
    """Take up to `limit` jobs: of each queue in turn, and in a queue of its ungrouped jobs and each group in turn."""
    for name in queues:
        for damaged in all_rows(session, _UNKNOWN_STATE, name):
            set_aside(session, damaged, now)
    taken: list[Row] = []
    while len(taken) < limit and (row := _take_next(session, queues, now)) is not None:
        taken.append(row)
    # All are taken before the first is granted: a lease may last no time at all, and its job is due again at once.
    return [_grant(session, row, now + lease_for, worker) for row in taken]


def _take_next(session: Session, queues: Sequence[str], now: datetime) -> Row | None:
    """The job whose turn it is: the queue comes first that was served longest ago."""
    asked = [session.row("SELECT * FROM queues WHERE name = ?", name) for name in queues]
    for queue in sorted(filter(None, asked), key=lambda queue: int(queue["turn"])):
        kinds = [_take_grouped, _take_ungrouped]
        if queue["ungrouped_turn"] < queue["groups_turn"]:
            kinds.reverse()
        for take in kinds if not queue["paused"] else ():
            row = take(session, queue["name"], now)
            if row is not None:
                update(session, row.num, state="inflight", runnable_at=_FAR)
                session.run("UPDATE queues SET turn = ? WHERE name = ?", session.next_number(), queue["name"])
                return row
    return None


def _take_ungrouped(session: Session, queue: str, now: datetime) -> Row | None:
    while rows := all_rows(session, _FIRST_UNGROUPED, queue=queue, now=to_us(now)):
        if not set_aside(session, rows[0], now):
            session.run("UPDATE queues SET ungrouped_turn = ? WHERE name = ?", session.next_number(), queue)
            return rows[0]
    return None


def _take_grouped(session: Session, queue: str, now: datetime) -> Row | None:
    while rows := all_rows(session, _FIRST_GROUPED, queue=queue, now=to_us(now)):
        if not set_aside(session, rows[0], now):
            number, group = session.next_number(), rows[0].record.group
            session.run("UPDATE queues SET groups_turn = ? WHERE name = ?", number, queue)
            session.run("INSERT OR IGNORE INTO groups (queue, name) VALUES (?, ?)", queue, group)
            session.run("UPDATE groups SET turn = ? WHERE queue = ? AND name = ?", number, queue, group)
            return rows[0]
    return None


def _grant(session: Session, row: Row, expires_at: datetime, worker: str) -> Reserved:
    record = replace(row.record, deliveries=row.record.deliveries + 1)
    if row.state == "inflight":  # its lease has expired: its worker was lost
        record = replace(record, lost=record.lost + 1, run_at=None)
    lease = Lease(record.id, record.queue, secrets.token_hex(16), expires_at)
    update(
        session,
        row.num,
        runnable_at=expires_at,
        due_at=expires_at,
        token=lease.token,
        worker=worker,
        settled=None,
        deliveries=record.deliveries,
        lost=record.lost,
        run_at=record.run_at,
    )
    return Reserved(record, lease)


def arrivals(session: Session, names: Sequence[str]) -> dict[str, int]:
    """Queue → the number of the last event after which a reserve may find more in it."""
    found = [session.row("SELECT name, arrived FROM queues WHERE name = ?", name) for name in names]
    return {each["name"]: each["arrived"] for each in found if each is not None}
