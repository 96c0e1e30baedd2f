"""Bulk operations as an operator sees them: what one would change, what the audit keeps of it, and how far it is.

The audit knows an operation for 90 days; its slices, which know how far it is, stay for a week after its end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING, Any

from taskharbor.client.listing import checked_audit
from taskharbor.drivers.base import Driver
from taskharbor.model.audit import AuditEntry
from taskharbor.model.errors import JobNotFound
from taskharbor.model.job import JobInfo
from taskharbor.store.bulk.operations import OperationProgress, progress
from taskharbor.store.bulk.plan import OperationStatus
from taskharbor.store.diagnose import held_after_requeue
from taskharbor.store.ids import AmbiguousId, is_prefix
from taskharbor.store.jobs import read_records
from taskharbor.store.text import one_line, plural, was

if TYPE_CHECKING:
    from taskharbor.client.jobs import Jobs
    from taskharbor.client.operation import DryRun
    from taskharbor.ops.actions import Actions
    from taskharbor.store.session import Store

MAX_ENTRIES = 10_000  # of the audit that a search goes through
MAX_NAMED = 5
SAMPLE_JOBS = 5
PAST = {"requeue": "requeued", "cancel": "cancelled", "delete": "deleted"}


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


# In words


def progress_words(progress: OperationProgress) -> str:
    """What an operation does at this moment."""
    if progress.phase == "choose":
        return "finding the jobs that the limit allows"
    if progress.phase == "canary":
        return "choosing the jobs to try first"
    if progress.phase == "await":
        return f"waiting for the {progress.done:,} jobs that are tried first to end"
    if progress.phase == "count":
        return f"counting: {progress.total or 0:,} so far"
    total = "" if progress.total is None else f" of {max(progress.total, progress.done):,}"
    return f"{progress.done:,}{total} done{_skipped(progress)}"


def _skipped(progress: OperationProgress) -> str:
    return f", {progress.skipped:,} skipped" if progress.skipped else ""


def outcome_words(found: OperationRow) -> str:
    """One line: what an operation did."""
    past = PAST.get(found.entry.action, found.entry.action)
    progress = found.progress
    done, skipped = found.done or 0, found.skipped or 0
    changed = f"{plural(done, 'job', ',')} {was(done)} {past}"
    if skipped:
        why = "changed meanwhile, or needed by an unfinished job" if past == "deleted" else "changed meanwhile"
        changed += f"; {skipped:,} {was(skipped)} skipped ({why})"
    if found.status == "done":
        return changed
    if found.status == "running":
        return f"operation {found.id} has begun: workers carry it out"
    if found.status == "held":
        tried, allowed = found.entry.options.get("canary", "?"), found.entry.options.get("max_failures", "0")
        failed = "too many" if progress is None else f"{progress.failures}"
        tally = f"{failed} of the {tried} jobs that were tried first died again (allowed: {allowed})"
        return f"held: {tally}; the others stay as they are"
    if found.status == "stopped":
        return f"stopped: {changed}; the others stay as they are"
    why = f": {one_line(progress.reason)}" if progress is not None and progress.reason else ""
    return f"failed{why}; {changed}"


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


# Before it begins


@dataclass(frozen=True)
class Preview:
    """What an operation would change, and what would keep its jobs from running afterwards."""

    found: DryRun
    sample: list[JobInfo]  # with their payloads, which are masked in their errors
    notes: list[str]


async def read_preview(
    driver: Driver, now: datetime, actions: Actions, jobs: Jobs, action: str, **options: Any
) -> Preview:
    """Look at what an operation would change; the options are those of the operation."""
    found = await actions.dry_run(jobs, action, **options)
    shown = min(SAMPLE_JOBS, options.get("limit") or SAMPLE_JOBS)
    sample = await read_records(driver, [info.job.id for info in found.sample[:shown]], now)
    notes: list[str] = []
    if action == "requeue":
        served = {queue for worker in await driver.workers(now) for queue in worker.queues}
        for queue in sorted({info.job.queue for info in found.sample}):
            held = held_after_requeue(queue, await driver.is_paused(queue), queue in served, many=True)
            notes += [each.text for each in held]
    return Preview(found, sample, notes)
