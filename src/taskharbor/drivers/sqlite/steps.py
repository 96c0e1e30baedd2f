"""Memos of steps: stored under a lease that holds, read by job, forgotten with it or with its payload."""

from __future__ import annotations

from datetime import datetime

from taskharbor.drivers.sqlite.records import is_moment
from taskharbor.drivers.sqlite.session import ReadSession, WriteSession
from taskharbor.drivers.sqlite.settle import refusal
from taskharbor.drivers.sqlite.statements import statement
from taskharbor.drivers.sqlite.transitions import forget_steps
from taskharbor.model.bounds import check_memo
from taskharbor.model.lease import Lease
from taskharbor.model.memo import Memo, memo_place
from taskharbor.model.times import from_us, to_us

SAVE = statement("save_step")
FIRST = (
    "UPDATE taskharbor_jobs SET memos = 1 "
    "WHERE id = ? AND state = 2 AND token = ? AND moment > ? AND memos IS NOT 1 RETURNING num"
)
STEPS = (
    "SELECT step.name, step.value, step.at, step.execution FROM taskharbor_jobs AS job "
    "JOIN taskharbor_steps AS step ON step.num = job.num WHERE job.id = ? AND job.memos = 1"
)


def save(session: WriteSession, lease: Lease, name: str, value: bytes, now: datetime) -> None:
    """Store a memo, or raise why its lease does not hold."""
    check_memo(name, value)
    moment = to_us(now)
    held = (lease.job_id, lease.token, moment)
    first = session.one(FIRST, *held)
    if first is not None:
        forget_steps(session, *first)
    if not session.do(SAVE, name, moment, value, *held):
        refused = refusal(session.load(lease.job_id), lease, moment)
        assert refused is not None
        raise refused


def steps(session: ReadSession, id: str) -> list[Memo]:
    """The memos of a job, if it has any. A row that another program damaged is left out."""
    found = [
        Memo(name, value, from_us(at), execution)
        for name, value, at, execution in session.all(STEPS, id)
        if type(name) is str and type(value) is bytes and is_moment(at) and type(execution) is int
    ]
    return sorted(found, key=memo_place)
