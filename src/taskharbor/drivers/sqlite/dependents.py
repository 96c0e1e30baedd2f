"""What becomes of those that depend on a job that is done: they are released, or handed over to its heir."""

from __future__ import annotations

import json

from taskharbor.drivers.sqlite import flows
from taskharbor.drivers.sqlite.job import BLOCKED, DONE, Job, ids_json
from taskharbor.drivers.sqlite.sql import COLUMNS, statement
from taskharbor.drivers.sqlite.store import join
from taskharbor.drivers.sqlite.tx import Tx

CLOSE_EDGES = statement("close_edges")
RELEASED = statement("released")
BY_NUM = f"SELECT {COLUMNS} FROM taskharbor_jobs WHERE num = ?"
DEPENDENTS = statement("dependents")
EDGE = "SELECT unfinished FROM taskharbor_edges WHERE dependency = ? AND dependent = ?"


def release_dependents(tx: Tx, job: Job, now: int) -> None:
    """The job is done: those that waited for nothing else join the line, in the order in which they were stored."""
    if closed := tx.do(CLOSE_EDGES, job.num):
        tx.expect(closed)
        for (num,) in tx.all(RELEASED, job.num):
            _join(tx, num, now)


def _join(tx: Tx, num: int, now: int) -> None:
    dependent = Job(*tx.one(BY_NUM, num))
    join(tx, dependent, now)
    tx.save(dependent)


def dependents(tx: Tx, job: Job) -> list[Job]:
    """Who names it in a `depends_on`, in the order in which they were stored."""
    return [Job(*row) for row in tx.all(DEPENDENTS, job.num)]


def hand_over(tx: Tx, old: Job, waiting: list[Job], new: Job, now: int) -> None:
    """`new` takes the place of `old` in the `depends_on` of these dependents."""
    for dependent in waiting:
        edge = tx.one(EDGE, old.num, dependent.num)
        tx.execute("DELETE FROM taskharbor_edges WHERE dependency = ? AND dependent = ?", (old.num, dependent.num))
        if edge[0]:
            tx.execute("UPDATE taskharbor_jobs SET holds = holds - 1 WHERE num = ?", (old.num,))
        known = tx.one(EDGE, new.num, dependent.num)
        ids = [new.id if id == old.id else id for id in json.loads(dependent.depends_on or "[]")]
        dependent.depends_on = ids_json(ids)
        tx.execute("UPDATE taskharbor_jobs SET depends_on = ? WHERE num = ?", (dependent.depends_on, dependent.num))
        _take_over(tx, new, dependent, known)
        if dependent.state == BLOCKED and not flows.is_open(tx, dependent):
            join(tx, dependent, now)
            tx.save(dependent)


def _take_over(tx: Tx, new: Job, dependent: Job, known: tuple[int] | None) -> None:
    unfinished = not dependent.finished
    if known is None:
        edge = (new.num, dependent.num, int(unfinished), int(new.state != DONE))
        tx.execute("INSERT INTO taskharbor_edges VALUES (?, ?, ?, ?)", edge)
    elif unfinished:
        tx.execute(
            "UPDATE taskharbor_edges SET unfinished = 1 WHERE dependency = ? AND dependent = ?",
            (new.num, dependent.num),
        )
    if unfinished and not (known and known[0]):
        tx.execute("UPDATE taskharbor_jobs SET holds = holds + 1 WHERE num = ?", (new.num,))
