"""What becomes of those that depend on a job that is done: they are released, or handed over to its heir."""

from __future__ import annotations

import json

from taskharbor.drivers.sqlite import edges
from taskharbor.drivers.sqlite.records import BLOCKED, DONE, JobRow, ids_json
from taskharbor.drivers.sqlite.session import WriteSession
from taskharbor.drivers.sqlite.statements import COLUMNS, statement
from taskharbor.drivers.sqlite.transitions import join

CLOSE_EDGES = statement("close_edges")
RELEASED = statement("released")
BY_NUM = f"SELECT {COLUMNS} FROM taskharbor_jobs WHERE num = ?"
DEPENDENTS = statement("dependents")
EDGE = "SELECT unfinished FROM taskharbor_edges WHERE dependency = ? AND dependent = ?"


def release_dependents(session: WriteSession, job: JobRow, now: int) -> None:
    """The job is done: those that waited for nothing else join the line, in the order in which they were stored."""
    if closed := session.do(CLOSE_EDGES, job.num):
        session.expect(closed)
        for (num,) in session.all(RELEASED, job.num):
            _join(session, num, now)


def _join(session: WriteSession, num: int, now: int) -> None:
    dependent = JobRow(*session.one(BY_NUM, num))
    join(session, dependent, now)
    session.save(dependent)


def dependents(session: WriteSession, job: JobRow) -> list[JobRow]:
    """Who names it in a `depends_on`, in the order in which they were stored."""
    return [JobRow(*row) for row in session.all(DEPENDENTS, job.num)]


def hand_over(session: WriteSession, old: JobRow, waiting: list[JobRow], new: JobRow, now: int) -> None:
    """`new` takes the place of `old` in the `depends_on` of these dependents."""
    for dependent in waiting:
        edge = session.one(EDGE, old.num, dependent.num)
        session.execute("DELETE FROM taskharbor_edges WHERE dependency = ? AND dependent = ?", (old.num, dependent.num))
        if edge[0]:
            session.execute("UPDATE taskharbor_jobs SET holds = holds - 1 WHERE num = ?", (old.num,))
        known = session.one(EDGE, new.num, dependent.num)
        ids = [new.id if id == old.id else id for id in json.loads(dependent.depends_on or "[]")]
        dependent.depends_on = ids_json(ids)
        session.execute(
            "UPDATE taskharbor_jobs SET depends_on = ? WHERE num = ?", (dependent.depends_on, dependent.num)
        )
        _take_over(session, new, dependent, known)
        if dependent.state == BLOCKED and not edges.is_open(session, dependent):
            join(session, dependent, now)
            session.save(dependent)


def _take_over(session: WriteSession, new: JobRow, dependent: JobRow, known: tuple[int] | None) -> None:
    unfinished = not dependent.finished
    if known is None:
        edge = (new.num, dependent.num, int(unfinished), int(new.state != DONE))
        session.execute("INSERT INTO taskharbor_edges VALUES (?, ?, ?, ?)", edge)
    elif unfinished:
        session.execute(
            "UPDATE taskharbor_edges SET unfinished = 1 WHERE dependency = ? AND dependent = ?",
            (new.num, dependent.num),
        )
    if unfinished and not (known and known[0]):
        session.execute("UPDATE taskharbor_jobs SET holds = holds + 1 WHERE num = ?", (new.num,))
