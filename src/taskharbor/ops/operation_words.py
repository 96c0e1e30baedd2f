"""What operations and entries of the audit say, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskharbor.store.text import one_line, plural, was

if TYPE_CHECKING:
    from taskharbor.model.audit import AuditEntry
    from taskharbor.ops.operations import OperationRow
    from taskharbor.store.bulk.operations import OperationProgress

PAST = {"requeue": "requeued", "cancel": "cancelled", "delete": "deleted"}


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
