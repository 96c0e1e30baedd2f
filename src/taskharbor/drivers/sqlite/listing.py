"""Listing jobs, flows and the audit, which is stored here too: a page in the order of ids or of time, from a
bounded number of records.

A listing by state reads an index that has only such jobs, so it never goes through those that are done. Jobs that are
ready or inflight have no index by id, because every plain job would have to be entered there: while they are few, they
are read in another order and sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import msgspec

from taskharbor.drivers.base import MAX_SCANNED_AUDIT, MAX_SCANNED_FLOWS, MAX_SCANNED_JOBS
from taskharbor.drivers.cursor import encode_cursor, encode_place
from taskharbor.drivers.queries import AuditQuery, FlowQuery, JobQuery
from taskharbor.drivers.sqlite.reading import info_of
from taskharbor.drivers.sqlite.records import CANCELLED, COLUMNS, LAST_MICROSECOND, JobRow, is_moment
from taskharbor.drivers.sqlite.session import ReadSession, WriteSession
from taskharbor.drivers.sqlite.statements import LIGHT, LISTED, UNKNOWN_STATE, statement
from taskharbor.model.audit import AUDIT_KEPT_FOR, AuditPage, StoredAudit
from taskharbor.model.bounds import check_audit
from taskharbor.model.job import EPOCH, FlowInfo, FlowPage, FlowStatus, Page, State
from taskharbor.model.times import from_us, to_us

FLOWS = statement("flows")
PUT_AUDIT = statement("put_audit")
OLD_AUDIT = statement("old_audit")
FORGET_AUDIT = "DELETE FROM taskharbor_audit WHERE rowid = ?"
AUDIT = statement("audit")
LOAD_AUDIT = "SELECT id, at, done_by, data FROM taskharbor_audit WHERE rowid = ?"
MAX_FORGOTTEN_AUDIT = 1_000  # in one call

_encode = msgspec.json.Encoder().encode

# Which rows are in a state at :now. An unknown code reads as dead.
_IN_STATE = {
    State.BLOCKED: "state = 0",
    State.SCHEDULED: "state = 1 AND moment > :now",
    State.READY: "((state = 1 AND (moment IS NULL OR moment <= :now)) OR (state = 2 AND moment <= :now))",
    State.INFLIGHT: "state = 2 AND moment > :now",
    State.DONE: "state = 3",
    State.DLQ: f"(state = 4 OR ({UNKNOWN_STATE}))",
    State.CANCELLED: "state = 5",
}
_INDEXED = {State.BLOCKED: 0, State.SCHEDULED: 1, State.DLQ: 4, State.CANCELLED: 5}  # in taskharbor_jobs_state
# Where the jobs that are ready or inflight are found, queue by queue. One may be found in two of these places.
_WHEN = "taskharbor_jobs INDEXED BY taskharbor_jobs_when ON queue = name AND"
_PLACES = {
    State.INFLIGHT: (f"{_WHEN} state = 2 AND moment > :now",),
    State.READY: (
        "taskharbor_jobs INDEXED BY taskharbor_jobs_line ON queue = name AND lined = 1",
        f"{_WHEN} state = 1 AND moment <= :now",
        f"{_WHEN} state = 2 AND moment <= :now",
    ),
}
MAX_SORTED_JOBS = MAX_SCANNED_JOBS  # ready or inflight ones; beside more of them, all jobs are read by id
_OPERANDS = {"fingerprint": "coalesce(fingerprint, '')"}  # where NULL stands for empty
_ERRORS = {
    "error_class": "coalesce(error_class, '') = :error_class",
    "error_name": "coalesce(substr(error_class, -1 - length(:error_name)) = '.' || :error_name, 0)",
}
_ENDED_OR_CREATED = "CASE WHEN state IN (0, 1, 2) OR finished_at IS NULL THEN created_at ELSE finished_at END"


class Scanned(NamedTuple):
    """A job, a flow or an entry of the audit that was looked at: its id or place, what to keep of it, and whether it
    belongs to the page."""

    id: str
    kept: Any
    fits: Any


Scan: TypeAlias = Callable[[str | None, int], Sequence[Scanned]]  # (id, count) → up to `count` behind that id


def list_jobs(session: ReadSession, now: datetime, wanted: JobQuery) -> Page:
    """A page of jobs in the order of their ids."""
    moment = to_us(now)
    given: dict[str, Any] = {"now": moment, **wanted.names()}
    fits = _conditions(wanted, given)
    few = _few(session, wanted, fits, given)
    found, last = walk(wanted.after, wanted.limit, MAX_SCANNED_JOBS, few or _in_order(session, wanted, fits, given))
    columns = COLUMNS if wanted.payloads else LIGHT
    sql = f"SELECT {columns} FROM taskharbor_jobs WHERE num IN (SELECT value FROM json_each(?))"
    jobs = {job.num: job for job in (JobRow(*row) for row in session.all(sql, _encode(found).decode()))}
    return Page(tuple(info_of(session, jobs[num], moment) for num in found), _cursor(last))


def _conditions(wanted: JobQuery, given: dict[str, Any]) -> str:
    """What a job must be, as SQL; adds the moments to `given`."""
    names = wanted.names()
    errors = [_ERRORS[name] for name in _ERRORS if names.pop(name, None) is not None]
    wheres = [f"{_OPERANDS.get(column, column)} = :{column}" for column in names]
    if errors:
        wheres.append(f"({' OR '.join(errors)})")
    if wanted.state is not None:
        wheres.append(_IN_STATE[wanted.state])
    if wanted.since is not None:
        given["since"] = to_us(wanted.since)
        wheres.append(f"{_ENDED_OR_CREATED} >= :since")
    if wanted.until is not None:
        given["until"] = to_us(wanted.until)
        wheres.append(f"{_ENDED_OR_CREATED} < :until")
    return " AND ".join(wheres) or "1"


def walk(after: str | None, limit: int, left: int, scan: Scan) -> tuple[list[Any], str | None]:
    """What a page consists of, and the place behind which the next one begins; looks at `left` records at most."""
    found: list[Any] = []
    last = ""  # the id of the last one found
    count = limit + 1
    while left > 0:
        count = min(count, left)
        scanned = scan(after, count)
        for id, kept, fits in scanned:
            if fits:
                if len(found) == limit:
                    return found, last
                found.append(kept)
                last = id
        if len(scanned) < count:
            return found, None
        left -= count
        after, count = scanned[-1].id, 2 * count
    return found, after


def _cursor(last: str | None) -> str | None:
    return None if last is None else encode_cursor(last)


def _in_order(session: ReadSession, wanted: JobQuery, fits: str, given: dict[str, Any]) -> Scan:
    """Looks at jobs in the order of their ids, in the index that has the fewest others."""
    behind, order = ("id < :after", "DESC") if wanted.newest else ("id > :after", "ASC")
    start = b"" if wanted.newest else ""  # every blob comes after every text
    scanned = f"SELECT id, num, {fits} FROM taskharbor_jobs INDEXED BY"
    if wanted.flow_id is not None:
        sql = f"{scanned} taskharbor_jobs_flow WHERE flow_id = :flow_id AND {behind}"
    elif wanted.state in _INDEXED:
        sql = f"{scanned} taskharbor_jobs_state WHERE state = {_INDEXED[wanted.state]} AND {LISTED} AND {behind}"
        if wanted.state is State.DLQ:  # those in an unknown state, if there are any, have to be sorted
            sql += f" UNION ALL {scanned} taskharbor_jobs_unknown WHERE {UNKNOWN_STATE} AND {behind}"
    else:
        sql = f"{scanned} taskharbor_jobs_id WHERE {behind}"
    sql += f" ORDER BY id {order} LIMIT :count"

    def scan(after: str | None, count: int) -> list[Scanned]:
        rows = session.execute(sql, {**given, "after": start if after is None else after, "count": count}).fetchall()
        return [Scanned(*row) for row in rows]

    return scan


def _few(session: ReadSession, wanted: JobQuery, fits: str, given: dict[str, Any]) -> Scan | None:
    """Looks at the jobs that are ready or inflight, sorted by id; None if they are many, or others are asked for."""
    if wanted.flow_id is not None or wanted.state not in _PLACES:
        return None
    most = MAX_SORTED_JOBS
    queue = "WHERE name = :queue" if wanted.queue is not None else ""
    jobs: dict[int, Scanned] = {}
    for place in _PLACES[wanted.state]:
        sql = f"SELECT id, num, {fits} FROM taskharbor_queues CROSS JOIN {place} {queue} LIMIT :count"
        rows = session.execute(sql, {**given, "count": most + 1}).fetchall()
        jobs.update({row[1]: Scanned(*row) for row in rows})
        if len(jobs) > most:
            return None
    ordered = sorted(jobs.values(), reverse=wanted.newest)

    def scan(after: str | None, count: int) -> list[Scanned]:
        behind = [job for job in ordered if after is None or (job.id < after if wanted.newest else job.id > after)]
        return behind[:count]

    return scan


def list_flows(session: ReadSession, wanted: FlowQuery) -> FlowPage:
    """A page of flows in the order of their ids, without their jobs."""
    behind, order, start = ("flow.id < ?", "DESC", b"") if wanted.newest else ("flow.id > ?", "ASC", "")
    sql = f"{FLOWS} WHERE {behind} ORDER BY flow.id {order} LIMIT ?"

    def scan(after: str | None, count: int) -> list[Scanned]:
        flows = [_flow(*row) for row in session.all(sql, start if after is None else after, count)]
        return [Scanned(flow.id, flow, wanted.fits(flow)) for flow in flows]

    found, last = walk(wanted.after, wanted.limit, MAX_SCANNED_FLOWS, scan)
    return FlowPage(tuple(found), _cursor(last))


def _flow(id: str, first: Any, last: Any, lowest: Any, highest: Any, any_open: int) -> FlowInfo:
    """A flow of a row of flows.sql. A job in an unknown state counts as dead."""
    stopped = {lowest, highest} - {None}
    if stopped - {CANCELLED}:
        status = FlowStatus.FAILED
    elif stopped:
        status = FlowStatus.CANCELLED
    else:
        status = FlowStatus.RUNNING if any_open else FlowStatus.SUCCEEDED
    created_at, updated_at = (from_us(at) if is_moment(at) else EPOCH for at in (first, last))
    return FlowInfo(id, status, created_at, updated_at, (), ())


# The audit: who did what, for 90 days


def put_audit(session: WriteSession, entries: Sequence[StoredAudit], now: datetime) -> None:
    """Store entries, each in place of the one with the same id, and forget some that are too old."""
    check_audit(entries)
    for entry in entries:
        session.execute(PUT_AUDIT, (entry.id.encode(), to_us(entry.at), entry.by.encode(), entry.data))
    for old in session.all(OLD_AUDIT, to_us(now - AUDIT_KEPT_FOR), MAX_FORGOTTEN_AUDIT):
        session.execute(FORGET_AUDIT, old)


def list_audit(session: ReadSession, wanted: AuditQuery) -> AuditPage:
    """A page of the audit, the newest entries first."""
    given: dict[str, Any] = {
        "since": 0 if wanted.since is None else to_us(wanted.since),
        "who": None if wanted.by is None else wanted.by.encode(),
    }

    def scan(after: str | None, count: int) -> list[Scanned]:
        at, id = _start(wanted) if after is None else _place(after)
        rows = session.execute(AUDIT, {**given, "at": at, "id": id, "count": count}).fetchall()
        return [Scanned(f"{at} {id.hex()}", row, fits) for at, id, row, fits in rows]

    found, last = walk(None, wanted.limit, MAX_SCANNED_AUDIT, scan)
    entries = (_entry(*session.one(LOAD_AUDIT, row)) for row in found)
    return AuditPage(
        tuple(entry for entry in entries if entry is not None), None if last is None else _audit_cursor(last)
    )


def _start(wanted: AuditQuery) -> tuple[int, bytes]:
    """The place behind which a page begins."""
    end = (LAST_MICROSECOND + 1 if wanted.until is None else to_us(wanted.until), b"")
    return end if wanted.after is None else min(end, (to_us(wanted.after[0]), wanted.after[1].encode()))


def _place(text: str) -> tuple[int, bytes]:
    at, _, id = text.partition(" ")
    return int(at), bytes.fromhex(id)


def _audit_cursor(last: str) -> str:
    """The cursor behind a place. An id of another program that is not UTF-8 is looked at again, at worst."""
    at, id = _place(last)
    return encode_place(from_us(at), id.decode(errors="replace"))


def _entry(id: bytes, at: int, by: bytes, data: bytes) -> StoredAudit | None:
    """An entry; None if another program wrote something else than names."""
    try:
        return StoredAudit(id=id.decode(), at=from_us(at), by=by.decode(), data=data)
    except UnicodeDecodeError:
        return None
