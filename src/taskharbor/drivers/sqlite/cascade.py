"""What a cancel or a requeue of a job means for those behind it in its flow: they follow it.

A call takes at most `MAX_FOLLOWED_JOBS` along. A job whose dependents still have to follow stands in
`taskharbor_followed`, until a prune has gone on with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from taskharbor.drivers.base import DEPENDENCY_CANCELLED_REASON, MAX_FOLLOWED_JOBS
from taskharbor.drivers.sqlite.records import BLOCKED, CANCELLED, JobRow
from taskharbor.drivers.sqlite.session import WriteSession
from taskharbor.drivers.sqlite.statements import statement
from taskharbor.drivers.sqlite.transitions import block_or_join, finish

STRANDED = statement("stranded")
CANCELLED_WITH = statement("cancelled_with")
STOPPED_BY = (
    "SELECT 1 FROM taskharbor_edges AS edge JOIN taskharbor_jobs AS other ON other.num = edge.dependency "
    "WHERE edge.dependent = ? AND other.state = 5 AND other.flow_id = ? LIMIT 1"
)
AHEAD = "SELECT state, flow_id FROM taskharbor_jobs WHERE num = ?"
NOTED = "SELECT num FROM taskharbor_followed LIMIT ?"
NOTE = "INSERT OR IGNORE INTO taskharbor_followed SELECT dependency FROM taskharbor_edges WHERE dependency = ? LIMIT 1"
FORGET = "DELETE FROM taskharbor_followed WHERE num = ?"


def follow(session: WriteSession, jobs: Iterable[JobRow], now: int) -> None:
    """Cancel what can never run behind cancelled jobs, and bring back what was cancelled with requeued ones."""
    _follow(session, [job.num for job in jobs if job.flow_id is not None], now, MAX_FOLLOWED_JOBS)


def is_stranded(session: WriteSession, job: JobRow) -> bool:
    """Whether it can never run, because a job of its flow that it depends on is cancelled."""
    return job.state == BLOCKED and session.one(STOPPED_BY, job.num, job.flow_id) is not None


def strand(session: WriteSession, stranded: Sequence[JobRow], now: int) -> None:
    """Cancel jobs that can never run, and what is behind them."""
    for job in stranded:
        job.reason = DEPENDENCY_CANCELLED_REASON
        finish(session, job, CANCELLED, now)
    follow(session, stranded, now)


def go_on(session: WriteSession, now: int, limit: int) -> int:
    """Let up to `limit` jobs follow that calls have left over; returns how many: fewer, if that was all."""
    followed = 0
    while followed < limit and (noted := [num for (num,) in session.all(NOTED, limit)]):
        for num in noted:
            session.execute(FORGET, (num,))
        followed += _follow(session, noted, now, limit - followed)
    return followed


def _follow(session: WriteSession, ahead: list[int], now: int, limit: int) -> int:
    """Let up to `limit` dependents of the jobs `ahead` follow, and those behind them; note which jobs have to go on.

    What is behind a dependent comes before the next dependents: so no more than a few jobs are noted.
    """
    followed = 0
    while ahead and followed < limit:
        num = ahead.pop()
        state, flow = session.one(AHEAD, num) or (None, None)
        wanted = {"num": num, "flow": flow, "limit": limit - followed, "reason": DEPENDENCY_CANCELLED_REASON}
        dependents = [
            JobRow(*row)
            for row in session.execute(STRANDED if state == CANCELLED else CANCELLED_WITH, wanted).fetchall()
        ]
        followed += len(dependents)
        if followed == limit:
            ahead.append(num)
        for dependent in dependents:
            if state == CANCELLED:
                dependent.reason = DEPENDENCY_CANCELLED_REASON
                finish(session, dependent, CANCELLED, now)
            else:
                block_or_join(session, dependent, now)
            ahead.append(dependent.num)
    for num in ahead:
        session.execute(NOTE, (num,))
    return followed
