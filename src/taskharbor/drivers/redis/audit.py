"""The audit: who did what, for 90 days.

The hash `{th:audit}:entries` has an entry by its id: the moment in 18 digits (microseconds since 1970), who, a line
feed, and the data. The sorted set `{th:audit}:order` has its place: moment, id, a line feed, who. No name has a line
feed, so places are in the order of moments, then ids. Both keys are in one hash slot, and neither bears the hash tag of
a queue: so the audit neither makes a queue known nor keeps one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from taskharbor.drivers.base import MAX_SCANNED_AUDIT
from taskharbor.drivers.cursor import encode_place
from taskharbor.drivers.queries import AuditQuery
from taskharbor.drivers.redis.records import LAST_US, MOMENT_DIGITS, digits_of, name_of
from taskharbor.drivers.redis.router import sliced
from taskharbor.drivers.redis.scripts import ScriptCall, binary
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.model.audit import AUDIT_KEPT_FOR, AuditPage, StoredAudit
from taskharbor.model.job import EPOCH
from taskharbor.model.times import from_us

HOME = "th:audit"
END = b":"  # behind all digits
MAX_STORED = 100  # entries in one script
MAX_FORGOTTEN = 1000  # in one call
FORGOTTEN_SLICE = 200  # in one script
LOOKED_SLICE = 1000  # places in one script


async def put_audit(store: RedisStore, entries: Sequence[StoredAudit], now: datetime) -> None:
    """Store entries that were checked, and forget what is older than 90 days."""
    before = binary(digits_of(max(now - AUDIT_KEPT_FOR, EPOCH)))
    *parts, last = list(sliced(entries, MAX_STORED)) or [()]
    for part in parts:
        await store.run(ScriptCall("put_audit", home=HOME, entries=_flat(part), before=before, most=0))
    args = ScriptCall("put_audit", home=HOME, entries=_flat(last), before=before, most=FORGOTTEN_SLICE)
    forgotten = slice_forgotten = await store.run(args)
    while slice_forgotten == FORGOTTEN_SLICE and forgotten < MAX_FORGOTTEN:
        slice_forgotten = await store.run(
            ScriptCall("put_audit", home=HOME, entries=(), before=before, most=FORGOTTEN_SLICE)
        )
        forgotten += slice_forgotten


def _flat(entries: Sequence[StoredAudit]) -> list[object]:
    return [
        value
        for entry in entries
        for value in (entry.id, binary(b"%b%b\n%b" % (digits_of(entry.at), entry.by.encode(), entry.data)))
    ]


async def read_audit(store: RedisStore, wanted: AuditQuery) -> AuditPage:
    """The next page, the last entry first. It ends with a cursor unless the first entry was reached."""
    start = digits_of(wanted.until) if wanted.until is not None else END
    if wanted.after is not None:
        at, id = wanted.after
        start = min(start, b"%b%b\n" % (digits_of(at), id.encode()))
    stop = digits_of(wanted.since) if wanted.since is not None else b"0"
    items: list[StoredAudit] = []
    scanned, cursor = 0, None
    while scanned < MAX_SCANNED_AUDIT:
        missing = wanted.limit + 1 - len(items)
        args = ScriptCall(
            "read_audit",
            home=HOME,
            start=binary(start),
            stop=binary(stop),
            by=wanted.by if wanted.by is not None else False,
            most=missing,
            looks=min(LOOKED_SLICE if wanted.by is not None else missing, LOOKED_SLICE, MAX_SCANNED_AUDIT - scanned),
        )
        found, number, last, more = await store.run(args)
        for place, data in zip(found[::2], found[1::2], strict=True):
            if (entry := _entry(place, data)) is None:
                continue
            if len(items) == wanted.limit:
                return AuditPage(tuple(items), encode_place(items[-1].at, items[-1].id))
            items.append(entry)
        scanned += number
        if not more:
            return AuditPage(tuple(items))
        start = last
        if (entry := _entry(last, b"")) is not None:
            cursor = encode_place(entry.at, entry.id)
    return AuditPage(tuple(items), cursor)


def _entry(place: bytes, data: bytes) -> StoredAudit | None:
    """An entry by its place in the order; None if another program wrote it."""
    moment, (id, line_feed, by) = place[:MOMENT_DIGITS], place[MOMENT_DIGITS:].partition(b"\n")
    id_text, by_text = name_of(id), name_of(by)
    if not line_feed or not moment.isdigit() or int(moment) > LAST_US or id_text is None or by_text is None:
        return None
    return StoredAudit(id=id_text, at=from_us(int(moment)), by=by_text, data=data)
