"""Jobs that depend on others: releasing them and handing them over to an heir."""

from __future__ import annotations

import json

from taskharbor.drivers.sqlite.records import BLOCKED, DONE, JobRow, ids_json
from taskharbor.drivers.sqlite.session import ReadSession, WriteSession
from taskharbor.drivers.sqlite.statements import COLUMNS, statement
from taskharbor.drivers.sqlite.transitions import has_open_dependency, join

CLOSE_EDGES = statement("close_edges")
RELEASED = statement("released")
BY_NUM = f"SELECT {COLUMNS} FROM taskharbor_jobs WHERE num = ?"
DEPENDENTS = statement("dependents")
EDGE = "SELECT unfinished FROM taskharbor_edges WHERE dependency = ? AND dependent = ?"
HANDED_TO = "SELECT handed_to FROM taskharbor_jobs WHERE id = ?"


def last_in_place(session: ReadSession, id: str) -> str | None:
    """The job that has the place of this one now, over however many handovers, as far as its heirs still exist."""
    last = None
    following: str | None = id
    while following is not None and (row := session.one(HANDED_TO, following)) is not None:
        last, following = following, row[0]
    return last


def dependents_of(session: WriteSession, job: JobRow) -> list[JobRow]:
    """The jobs that name it in their `depends_on`, in the order in which they were stored."""
    return [JobRow(*row) for row in session.all(DEPENDENTS, job.num)]


def release_dependents(session: WriteSession, job: JobRow, now: int) -> None:
    """The job is done: dependents that wait for nothing else join the line, in the order in which they were stored."""
    if closed := session.do(CLOSE_EDGES, job.num):
        session.check_size(closed)
        for (num,) in session.all(RELEASED, job.num):
            dependent = JobRow(*session.one(BY_NUM, num))
            join(session, dependent, now)
            session.save(dependent)


def hand_over(session: WriteSession, old: JobRow, dependents: list[JobRow], new: JobRow, now: int) -> None:
    """`new` takes the place of `old` in the `depends_on` of these dependents."""
    for dependent in dependents:
        edge = session.one(EDGE, old.num, dependent.num)
        session.execute("DELETE FROM taskharbor_edges WHERE dependency = ? AND dependent = ?", (old.num, dependent.num))
        if edge[0]:
            session.execute("UPDATE taskharbor_jobs SET holds = holds - 1 WHERE num = ?", (old.num,))
        ids = [new.id if id == old.id else id for id in json.loads(dependent.depends_on or "[]")]
        dependent.depends_on = ids_json(ids)
        session.execute(
            "UPDATE taskharbor_jobs SET depends_on = ? WHERE num = ?", (dependent.depends_on, dependent.num)
        )
        _add_edge(session, new, dependent)
        if dependent.state == BLOCKED and not has_open_dependency(session, dependent):
            join(session, dependent, now)
            session.save(dependent)


def _add_edge(session: WriteSession, new: JobRow, dependent: JobRow) -> None:
    """An edge from the heir, unless the dependent named it already."""
    known = session.one(EDGE, new.num, dependent.num)
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
