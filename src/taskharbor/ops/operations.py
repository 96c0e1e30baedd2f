"""Bulk operations as an operator sees them: what the audit keeps of each, and how far it is.

The audit knows an operation for 90 days; its slices, which know how far it is, stay for a week after its end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from taskharbor.client.listing import checked_audit
from taskharbor.model.audit import AuditEntry
from taskharbor.model.errors import JobNotFound
from taskharbor.store.bulk.operations import OperationProgress, progress
from taskharbor.store.bulk.plan import OperationStatus
from taskharbor.store.ids import AmbiguousId, is_prefix

if TYPE_CHECKING:
    from datetime import datetime

    from taskharbor.store.session import Store

MAX_ENTRIES = 10_000  # of the audit that a search goes through
MAX_NAMED = 5


@dataclass(frozen=True)
class OperationRow:
    """One operation. `progress` is None if its slices are gone."""

    entry: AuditEntry
    progress: OperationProgress | None

    @property
    def id(self) -> str:
        """Its id."""
        return self.entry.id

    @property
    def status(self) -> OperationStatus:
        """How it stands: its slices know that first."""
        return self.progress.status if self.progress is not None else OperationStatus(self.entry.status)

    @property
    def done(self) -> int | None:
        """How many jobs it changed."""
        return self.progress.done if self.progress is not None else self.entry.done

    @property
    def skipped(self) -> int | None:
        """How many jobs fitted, and were changed by others first."""
        return self.progress.skipped if self.progress is not None else self.entry.refused


async def read_operations(
    store: Store, *, since: datetime | None = None, by: str | None = None, limit: int
) -> list[OperationRow]:
    """The newest operations, the newest first."""
    found: list[OperationRow] = []
    async for entry in _entries(store, since, by):
        found.append(await _row(store, entry))
        if len(found) >= limit:
            break
    return found


async def read_operation(store: Store, typed: str) -> OperationRow:
    """One operation by its id, or by the beginning of it; JobNotFound, AmbiguousId."""
    matches: list[AuditEntry] = []
    async for entry in _entries(store):
        if entry.id == typed:
            return await _row(store, entry)
        if is_prefix(typed) and entry.id.startswith(typed.upper()):
            matches.append(entry)
    if len(matches) > 1:
        named = ", ".join(f"{entry.id} ({entry.action}, {entry.status})" for entry in matches[:MAX_NAMED])
        more = ", …" if len(matches) > MAX_NAMED else ""
        raise AmbiguousId(f"{typed} is ambiguous; operations that begin with it: {named}{more}")
    if not matches:
        raise JobNotFound(f"no operation {typed}: `taskharbor dlq operations` lists those of the last 90 days")
    return await _row(store, matches[0])


async def _entries(store: Store, since: datetime | None = None, by: str | None = None) -> AsyncIterator[AuditEntry]:
    numbers = count(1)
    async for entry in checked_audit(store, since=since, until=None, by=by):
        if entry.status in set(OperationStatus):
            yield entry
        if next(numbers) >= MAX_ENTRIES:
            return


async def _row(store: Store, entry: AuditEntry) -> OperationRow:
    try:
        return OperationRow(entry, await progress(store.call("operation"), entry.id))
    except JobNotFound:
        return OperationRow(entry, None)
