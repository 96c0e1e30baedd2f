"""Amending: new values for some fields of a job that is neither done nor under a lease."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from taskharbor.drivers.memory.records import DONE, LEASED, WAITING
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.drivers.refusals import amended_since, no_job, not_amendable
from taskharbor.model.amendment import Amend
from taskharbor.model.bounds import check_amend
from taskharbor.model.errors import InvalidJob, TaskHarborError
from taskharbor.model.times import to_us


def amend(
    store: MemoryStore, changes: Sequence[Amend], now: datetime, max_payload: int
) -> list[TaskHarborError | None]:
    """Change jobs one after the other; a refused change has its error in its place."""
    moment = to_us(now)
    return [_amend_one(store, change, moment, max_payload) for change in changes]


def _amend_one(store: MemoryStore, change: Amend, moment: int, max_payload: int) -> TaskHarborError | None:
    try:
        check_amend(change, max_payload)
    except InvalidJob as invalid:
        return invalid
    entry = store.entries.get(change.id)
    if entry is None:
        return no_job(change.id)
    if entry.standing == DONE or entry.standing in LEASED:
        return not_amendable(change.id, "done" if entry.standing == DONE else "under a lease")
    record = entry.record
    if (record.deliveries, record.edits) != (change.deliveries, change.edits):
        return amended_since(change.id)
    changes = change.changes()
    if isinstance(change.metadata, dict):
        changes["metadata"] = dict(change.metadata)  # the caller's dict stays the caller's
    record = replace(record, edits=record.edits + 1, **changes)
    if entry.standing in WAITING and ("run_at" in changes or "priority" in changes):
        store.join(entry, record, moment)
    else:
        entry.record = record
    return None
