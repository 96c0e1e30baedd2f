"""The audit, a page at a time: who did what."""

from __future__ import annotations

from datetime import datetime

from taskharbor.drivers.base import Driver
from taskharbor.model.audit import AuditEntry, read_entry

MAX_CALLS = 10  # of at most MAX_SCANNED_AUDIT entries each: what is rare is found, and a command still ends


async def read_audit(
    driver: Driver,
    *,
    since: datetime | None,
    until: datetime | None,
    by: str | None,
    cursor: str | None,
    limit: int,
) -> tuple[list[AuditEntry], str | None]:
    """A page of entries, the newest first, and the cursor of the next; filled up over several calls."""
    found: list[AuditEntry] = []
    for _ in range(MAX_CALLS):
        page = await driver.audit(since=since, until=until, by=by, cursor=cursor, limit=limit - len(found))
        found += [read_entry(stored) for stored in page.items]
        cursor = page.cursor
        if cursor is None or len(found) >= limit:
            break
    return found, cursor


def what_of(entry: AuditEntry) -> str:
    """What an action was about, in one line: a queue or a flow by its name, jobs by their ids, or a filter."""
    if entry.target:
        return entry.target
    if entry.ids:
        more = (entry.n or len(entry.ids)) - 1
        return entry.ids[0] if not more else f"{entry.ids[0]} and {more:,} more"
    given = {**entry.filter, **entry.options}
    given.pop("until" if entry.status else "", None)  # the cut of an operation: about the moment at which it began
    return " ".join(f"{name}={value}" for name, value in given.items())


def outcome_of(entry: AuditEntry) -> str:
    """How an action ended: "begun" if that is not known."""
    if entry.status:
        counted = "" if entry.done is None else f", {entry.done:,}"
        return f"{entry.status}{counted}"
    if entry.refused:
        return f"{entry.done or 0:,} done, {entry.refused:,} refused" if entry.done else "refused"
    return "begun" if entry.done is None and entry.refused is None else "done"
