"""The audit: who did what, for 90 days."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from taskharbor.drivers.base import MAX_SCANNED_AUDIT
from taskharbor.drivers.cursor import encode_place
from taskharbor.drivers.queries import AuditQuery
from taskharbor.drivers.sqlite.listing import Looked, walk
from taskharbor.drivers.sqlite.records import LAST_MICROSECOND
from taskharbor.drivers.sqlite.session import ReadSession, WriteSession
from taskharbor.drivers.sqlite.statements import statement
from taskharbor.model.audit import AUDIT_KEPT_FOR, AuditPage, StoredAudit
from taskharbor.model.bounds import check_audit
from taskharbor.model.times import from_us, to_us

PUT = statement("put_audit")
OLD = statement("old_audit")
FORGET = "DELETE FROM taskharbor_audit WHERE rowid = ?"
LOOK = statement("audit")
LOAD = "SELECT id, at, done_by, data FROM taskharbor_audit WHERE rowid = ?"
MAX_FORGOTTEN_AUDIT = 1_000  # in one call


def put_audit(session: WriteSession, entries: Sequence[StoredAudit], now: datetime) -> None:
    """Store entries, each in place of the one with the same id, and forget some that are too old."""
    check_audit(entries)
    for entry in entries:
        session.execute(PUT, (entry.id.encode(), to_us(entry.at), entry.by.encode(), entry.data))
    for old in session.all(OLD, to_us(now - AUDIT_KEPT_FOR), MAX_FORGOTTEN_AUDIT):
        session.execute(FORGET, old)


def list_audit(session: ReadSession, wanted: AuditQuery) -> AuditPage:
    """A page of the audit, the newest entries first."""
    given: dict[str, Any] = {
        "since": 0 if wanted.since is None else to_us(wanted.since),
        "who": None if wanted.by is None else wanted.by.encode(),
    }

    def look(after: str | None, count: int) -> list[Looked]:
        at, id = _start(wanted) if after is None else _place(after)
        rows = session.execute(LOOK, {**given, "at": at, "id": id, "count": count}).fetchall()
        return [Looked(f"{at} {id.hex()}", row, fits) for at, id, row, fits in rows]

    found, last = walk(None, wanted.limit, MAX_SCANNED_AUDIT, look)
    entries = (_entry(*session.one(LOAD, row)) for row in found)
    return AuditPage(tuple(entry for entry in entries if entry is not None), None if last is None else _cursor(last))


def _start(wanted: AuditQuery) -> tuple[int, bytes]:
    """The place behind which a page begins."""
    end = (LAST_MICROSECOND + 1 if wanted.until is None else to_us(wanted.until), b"")
    return end if wanted.after is None else min(end, (to_us(wanted.after[0]), wanted.after[1].encode()))


def _place(text: str) -> tuple[int, bytes]:
    at, _, id = text.partition(" ")
    return int(at), bytes.fromhex(id)


def _cursor(last: str) -> str:
    """The cursor behind a place. An id of another program that is not UTF-8 is looked at again, at worst."""
    at, id = _place(last)
    return encode_place(from_us(at), id.decode(errors="replace"))


def _entry(id: bytes, at: int, by: bytes, data: bytes) -> StoredAudit | None:
    """An entry; None if another program wrote something else than names."""
    try:
        return StoredAudit(id=id.decode(), at=from_us(at), by=by.decode(), data=data)
    except UnicodeDecodeError:
        return None
