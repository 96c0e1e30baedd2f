"""The model of the contract, second part: what an operator does. model.py explains the whole."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from taskharbor.conformance.model_store import UNFINISHED, ModelStore, Refusal
from taskharbor.drivers import (
    Amend,
    InvalidJob,
    JobNotFound,
    JobRecord,
    ScheduleChange,
    Seen,
    State,
    StoredAudit,
    WrongState,
)
from taskharbor.drivers.base import CANCELLED_REASON, FLOW_CANCELLED_REASON
from taskharbor.model.audit import AUDIT_KEPT_FOR


class ModelAdmin(ModelStore):
    """Requeue, amend, cancel, delete and prune, writing the audit, and changes of schedules."""

    def unseen(self, id: str, seen: Sequence[Seen] | None, place: int) -> Refusal | None:
        """Why a job is not changed, whatever its state: it is unknown, or not as the caller saw it."""
        job = self.jobs.get(id)
        if job is None:
            return JobNotFound
        record = job.record
        now_seen = Seen(deliveries=record.deliveries, edits=record.edits, finished_at=record.finished_at)
        return WrongState if seen is not None and seen[place] != now_seen else None

    def requeue(
        self,
        ids: Sequence[str],
        now: datetime,
        run_at: datetime | None = None,
        reset_attempts: bool = False,
        seen: Sequence[Seen] | None = None,
    ) -> list[Refusal | None]:
        results: list[Refusal | None] = []
        for place, id in enumerate(ids):
            refused, job = self.unseen(id, seen, place), self.jobs.get(id)
            if refused is not None or job is None or job.lasting not in (State.DLQ, State.CANCELLED):
                results.append(refused or WrongState)
                continue
            self.cancelled_flows.discard(job.record.flow_id or "")
            attempts = 0 if reset_attempts else job.record.attempts
            record = replace(job.record, reason="", finished_at=None, lost=0, run_at=run_at, attempts=attempts)
            job.record, job.released_at = replace(record, note=b""), None
            self.link(job)
            self.join_or_block(job, now)
            results.append(None)
        self.bring_back_behind([id for id, refused in zip(ids, results, strict=True) if refused is None], now)
        return results

    def cancel(self, ids: Sequence[str], now: datetime, seen: Sequence[Seen] | None = None) -> list[Refusal | None]:
        cancelled = set()
        results: list[Refusal | None] = []
        for place, id in enumerate(ids):
            refused, job = self.unseen(id, seen, place), self.jobs.get(id)
            if refused is not None or job is None or job.lasting in (State.DONE, State.DLQ):
                results.append(refused or WrongState)
                continue
            if job.lasting is not State.CANCELLED:
                self.finish(job, State.CANCELLED, now, reason=CANCELLED_REASON)
                cancelled.add(id)
            results.append(None)
        self.cancel_behind(cancelled, now)
        return results

    def cancel_flow(self, flow: str, now: datetime) -> int:
        """Cancel what is not terminal, and whatever is stored in the flow from now on."""
        members = {id: job for id, job in self.jobs.items() if job.record.flow_id == flow}
        if members:
            self.cancelled_flows.add(flow)
        unfinished = [job for job in members.values() if not job.state(now).terminal]
        for job in unfinished:
            self.finish(job, State.CANCELLED, now, reason=FLOW_CANCELLED_REASON)
        return len(unfinished)

    def delete(self, ids: Sequence[str], seen: Sequence[Seen] | None = None) -> list[Refusal | None]:
        results: list[Refusal | None] = []
        for place, id in enumerate(ids):
            refused = self.unseen(id, seen, place)
            if refused is not None or self.needed(id):
                results.append(refused or WrongState)
                continue
            self.forget(id)
            results.append(None)
        return results

    def forget(self, id: str) -> None:
        flow = self.jobs.pop(id).record.flow_id
        if not any(job.record.flow_id == flow for job in self.jobs.values()):
            self.cancelled_flows.discard(flow or "")

    def prune(self, before: datetime) -> int:
        """Without a limit: which jobs go first, and which stay for the next call, is not compared."""
        ids = self.prunable(before)
        for id in ids:
            self.forget(id)
        return len(ids)

    def prunable(self, before: datetime) -> dict[str, datetime]:
        """What may be forgotten, and behind which `before`. A flow goes once all of it is done or cancelled."""
        open_flows = {job.record.flow_id for job in self.jobs.values() if job.lasting in UNFINISHED}
        return {
            id: kept_until
            for id, job in self.jobs.items()
            if job.lasting not in UNFINISHED
            and (kept_until := self.kept_until(job.record)) < before
            and not self.needed(id)
            and (job.record.flow_id is None or job.record.flow_id not in open_flows)
        }

    def kept_until(self, record: JobRecord) -> datetime:
        """To compare with the `before` of a prune, which a worker computes as now − retention."""
        assert record.finished_at is not None
        return record.finished_at + (self.retention if record.keep_for is None else record.keep_for) - self.retention

    def amend(self, changes: Sequence[Amend], now: datetime) -> list[Refusal | None]:
        return [self.amend_one(change, now) for change in changes]

    def amend_one(self, change: Amend, now: datetime) -> Refusal | None:
        fields, job = change.changes(), self.jobs.get(change.id)
        if not fields:
            return InvalidJob
        if job is None:
            return JobNotFound
        record = job.record
        if job.lasting is State.DONE or job.lease is not None:  # also one that has expired
            return WrongState
        if (record.deliveries, record.edits) != (change.deliveries, change.edits):
            return WrongState
        if "payload" in fields:
            job.memos = {}
            fields["has_memos"] = False
        job.record = replace(record, edits=record.edits + 1, **fields)
        if job.lasting is None and ("run_at" in fields or "priority" in fields):
            self.join(job, now)
        return None

    def put_audit(self, entries: Sequence[StoredAudit], now: datetime) -> None:
        """Without a bound on what is forgotten in one call."""
        self.entries |= {entry.id: entry for entry in entries}
        self.entries = {id: entry for id, entry in self.entries.items() if entry.at >= now - AUDIT_KEPT_FOR}

    def change_schedules(self, changes: Sequence[ScheduleChange], now: datetime) -> list[bool]:
        return [self.change_schedule(change, now) for change in changes]

    def change_schedule(self, change: ScheduleChange, now: datetime) -> bool:
        row = self.schedules.get(change.name)
        stored = None if row is None else row.revision
        if stored == (None if change.to is None else change.to.revision):  # the same change again
            return True
        if stored != change.expect:
            return False
        self.enqueue(change.jobs, now)
        if change.to is None:
            del self.schedules[change.name]
        else:
            self.schedules[change.name] = change.to
        return True
