"""Edges between jobs, and the runs they belong to.

An edge (dependency, dependent) says whether the dependent is unfinished (neither done nor cancelled); `holds` of a job
counts those. It also says whether the dependency is open (not done): a job is blocked while any edge to it is open,
which one look into an index tells. The edges are a set: whoever closes one twice releases nobody.
"""

from __future__ import annotations

from taskharbor.drivers.sqlite.records import JobRow, ids_json
from taskharbor.drivers.sqlite.session import WriteSession
from taskharbor.drivers.sqlite.statements import statement

HOLD = statement("hold")
LINK = statement("link")
OPEN = "SELECT 1 FROM taskharbor_edges WHERE dependent = ? AND open = 1 LIMIT 1"
UNHOLD = statement("unhold")
UNFINISHED = "UPDATE taskharbor_edges SET unfinished = 0 WHERE dependent = ? AND unfinished = 1"
FORGET_EDGES = "DELETE FROM taskharbor_edges WHERE dependency = :num OR dependent = :num"
FLOW_ADD = statement("flow_add")
FLOW_OPEN = "UPDATE taskharbor_flows SET open = open + ? WHERE id = ?"
FLOW_LEAVE = "UPDATE taskharbor_flows SET members = members - 1 WHERE id = ?"
FLOW_FORGET = "DELETE FROM taskharbor_flows WHERE id = ? AND members <= 0"


def add(session: WriteSession, flow_id: str) -> None:
    """One more job of a run."""
    session.execute(FLOW_ADD, (flow_id,))


def is_cancelled(session: WriteSession, flow_id: str) -> bool:
    row = session.one("SELECT cancelled FROM taskharbor_flows WHERE id = ?", flow_id)
    return row is not None and bool(row[0])


def is_open(session: WriteSession, job: JobRow) -> bool:
    """Whether any of its dependencies is not done."""
    return bool(job.depends_on) and session.one(OPEN, job.num) is not None


def hold(session: WriteSession, job: JobRow) -> None:
    """The job is unfinished: it is known to what it depends on, which must stay."""
    if job.depends_on:
        named = {"num": job.num, "ids": ids_json(job.dependencies)}
        session.execute(HOLD, named)
        session.execute(LINK, named)


def close(session: WriteSession, job: JobRow) -> None:
    """It is finished: its flow and its dependencies have one unfinished job less to wait for."""
    if job.flow_id is not None:
        session.execute(FLOW_OPEN, (-1, job.flow_id))
    if job.depends_on:
        session.execute(UNHOLD, (job.num,))
        session.execute(UNFINISHED, (job.num,))


def reopen(session: WriteSession, job: JobRow) -> None:
    """It was finished and is to run again."""
    if job.flow_id is not None:
        session.execute(FLOW_OPEN, (1, job.flow_id))
    hold(session, job)


def forget(session: WriteSession, job: JobRow) -> None:
    """The job goes: so do its edges, and its flow with the last record of it."""
    session.execute(FORGET_EDGES, {"num": job.num})
    if job.flow_id is not None:
        session.execute(FLOW_LEAVE, (job.flow_id,))
        session.execute(FLOW_FORGET, (job.flow_id,))
