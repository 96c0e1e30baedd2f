"""The audit, as programs: who did what, for 90 days."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from taskharbor.drivers.base import MAX_SCANNED_AUDIT
from taskharbor.drivers.cursor import encode_place
from taskharbor.drivers.postgres.records import LAST_US, base64_of, nearest_moment, to_json
from taskharbor.drivers.postgres.statement import Program, call, value
from taskharbor.drivers.queries import AuditQuery
from taskharbor.model.audit import AUDIT_KEPT_FOR, AuditPage, StoredAudit
from taskharbor.model.job import EPOCH
from taskharbor.model.times import to_us


def put_audit(schema: str, entries: Sequence[StoredAudit], now: datetime) -> Program[None]:
    """Store entries that were checked. Sent twice, they are stored once."""
    last = {entry.id: entry for entry in entries}
    given = [
        {"id": entry.id, "at": to_us(entry.at), "done_by": entry.by, "data": base64_of(entry.data)}
        for entry in last.values()
    ]
    oldest = to_us(max(now - AUDIT_KEPT_FOR, EPOCH))
    yield value(schema, "put_audit", (to_json(given), "text"), (oldest, "bigint"))


def list_audit(schema: str, wanted: AuditQuery) -> Program[AuditPage]:
    """A page of the audit, the newest entries first."""
    at, id = _start(wanted)
    rows = yield call(
        schema,
        "list_audit",
        (0 if wanted.since is None else to_us(wanted.since), "bigint"),
        (at, "bigint"),
        (id.decode(), "text"),
        (wanted.by, "text"),
        (wanted.limit, "integer"),
        (MAX_SCANNED_AUDIT, "integer"),
        columns="id, at, done_by, data",
    )
    items = tuple(
        StoredAudit(id=id, at=nearest_moment(at), by=by, data=data) for id, at, by, data in rows if data is not None
    )
    last = rows[-1] if rows and rows[-1][-1] is None else None
    return AuditPage(items, None if last is None else encode_place(nearest_moment(last[1]), last[0]))


def _start(wanted: AuditQuery) -> tuple[int, bytes]:
    """The place behind which a page begins. Bytes of UTF-8 are in the order of the store's collation."""
    end = (LAST_US + 1 if wanted.until is None else to_us(wanted.until), b"")
    return end if wanted.after is None else min(end, (to_us(wanted.after[0]), wanted.after[1].encode()))
