"""Edges between jobs: which are open, what depends on a job, and what happens when it is done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from taskharbor.drivers import DEPENDENCY_CANCELLED_REASON, State
from taskharbor_mystore.connection import Session
from taskharbor_mystore.rows import Row, all_rows, finish, load, make_ready, update


def link(session: Session, row: Row) -> None:
    """Note which rows its dependencies are: another job may get the id of one that was deleted."""
    session.run("DELETE FROM edges WHERE job = ?", row.num)
    for place, id in enumerate(row.readable().depends_on):
        session.run("INSERT OR IGNORE INTO edges SELECT ?, num, ? FROM jobs WHERE id = ?", row.num, place, id)


def waiting_for(session: Session, row: Row) -> tuple[str, ...]:
    """The dependencies that are not done, in their order, each once."""
    found = session.rows(
        "SELECT jobs.id FROM edges JOIN jobs ON jobs.num = edges.dependency "
        "WHERE edges.job = ? AND jobs.state IS NOT 'done' ORDER BY edges.place",
        row.num,
    )
    return tuple(each["id"] for each in found)


def dependents_of(session: Session, row: Row) -> list[Row]:
    """The jobs that depend on this one, in the order in which they were stored."""
    return all_rows(
        session,
        "SELECT jobs.* FROM edges JOIN jobs ON jobs.num = edges.job WHERE edges.dependency = ? ORDER BY jobs.num",
        row.num,
    )


def needed_by(session: Session, row: Row) -> int:
    """How many jobs depend on this one that are neither done nor cancelled: a dead job may be requeued."""
    found = session.row(
        "SELECT count(*) FROM edges JOIN jobs ON jobs.num = edges.job "
        "WHERE edges.dependency = ? AND (jobs.state IS NULL OR jobs.state NOT IN ('done', 'cancelled'))",
        row.num,
    )
    return int(found[0]) if found is not None else 0


def release(session: Session, dependents: Sequence[Row], now: datetime) -> None:
    """Make those ready that wait for nothing else."""
    for row in dependents:
        if row.state == "blocked" and not waiting_for(session, row):
            make_ready(session, row, now)


def cancel_behind(session: Session, cancelled: Sequence[Row], now: datetime) -> None:
    """What is blocked behind cancelled jobs of its flow can never run: it is cancelled with them."""
    ahead = list(cancelled)
    for row in ahead:
        for dependent in _behind(session, row):
            if dependent.state == "blocked":
                finish(session, dependent, State.CANCELLED, now, reason=DEPENDENCY_CANCELLED_REASON)
                ahead.append(dependent)


def strand(session: Session, stranded: Sequence[Row], now: datetime) -> None:
    """Cancel jobs that can never run, and what is behind them."""
    for row in stranded:
        finish(session, row, State.CANCELLED, now, reason=DEPENDENCY_CANCELLED_REASON)
    cancel_behind(session, stranded, now)


def bring_back_behind(session: Session, requeued: Sequence[Row], now: datetime) -> None:
    """What was cancelled with a job waits for it again, unless it depends on another one that is still cancelled."""
    ahead = list(requeued)
    for row in ahead:
        for dependent in _behind(session, row):
            was_with_it = dependent.state == "cancelled" and dependent.record.reason == DEPENDENCY_CANCELLED_REASON
            if was_with_it and not is_stranded(session, dependent):
                run_again(session, dependent, now)
                ahead.append(dependent)


def run_again(session: Session, row: Row, now: datetime, **changes: Any) -> None:
    """A finished job is blocked by its open dependencies, or ready."""
    link(session, row)
    changes = {"reason": "", "finished_at": None, **changes}
    if waiting_for(session, row):
        update(session, row.num, state="blocked", **changes)
    else:
        make_ready(session, row, now, **changes)


def is_stranded(session: Session, row: Row) -> bool:
    """Whether it can never run, because a job of its flow that it depends on is cancelled."""
    found = session.row(
        "SELECT 1 FROM edges JOIN jobs ON jobs.num = edges.dependency "
        "WHERE edges.job = ? AND jobs.state = 'cancelled' AND jobs.flow_id = ?",
        row.num,
        row.record.flow_id,
    )
    return found is not None


def _behind(session: Session, row: Row) -> list[Row]:
    """The jobs of the same flow that depend on it."""
    flow = row.record.flow_id
    return [one for one in dependents_of(session, row) if flow is not None and one.record.flow_id == flow]


def hand_over(session: Session, dependents: Sequence[Row], old: Row, heir: Row) -> None:
    """Put `heir` in the place of `old`, wherever it is depended on."""
    for row in dependents:
        ids = tuple(heir.record.id if id == old.record.id else id for id in row.readable().depends_on)
        update(session, row.num, depends_on=ids)
        session.run(
            "INSERT INTO edges SELECT job, ?, place FROM edges WHERE job = ? AND dependency = ? "
            "ON CONFLICT (job, dependency) DO UPDATE SET place = min(place, excluded.place)",
            heir.num,
            row.num,
            old.num,
        )
        session.run("DELETE FROM edges WHERE job = ? AND dependency = ?", row.num, old.num)


def last_in_place(session: Session, row: Row) -> Row:
    """The job that has the place of this one now, over however many handovers."""
    while (heir_id := row.readable().handed_to) is not None and (heir := load(session, heir_id)) is not None:
        row = heir
    return row
