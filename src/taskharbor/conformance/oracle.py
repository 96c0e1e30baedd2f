"""An independent oracle: what must hold of every delivery, counted from calls and their results alone.

It counts the deliveries of each job itself, and notes which lease is valid until when. It trusts neither the driver's
tokens nor its counters: a driver that accepts a stale token agrees with itself. It knows nothing of order, flows and
due times; the comparison with the model covers those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from taskharbor.conformance.parts import ATTEMPTS
from taskharbor.drivers import (
    Enqueued,
    Fail,
    InvalidJob,
    JobInfo,
    JobRecord,
    Lease,
    Lost,
    Outcome,
    Reserved,
    Retry,
    State,
    TaskHarborError,
)


@dataclass
class Held:
    """The newest delivery of a job, if no call has ended it."""

    token: str = field(repr=False)
    expires_at: datetime
    worker: str
    began_at: datetime


@dataclass
class Known:
    """One stored job."""

    job: JobRecord
    attempts: int
    epoch: int = 0
    lost: int = 0
    held: Held | None = None
    released: Lost | None = None
    """Its last delivery, if that was given back for its worker and nothing has happened since."""
    settled: tuple[str, type] | None = field(default=None, repr=False)

    def valid(self, lease: Lease, now: datetime) -> bool:
        """Whether the lease is that of the newest delivery, and has not expired."""
        return self.held is not None and self.held.token == lease.token and self.held.expires_at > now


class Oracle:
    """Receives every call with its result; AssertionError at the first that breaks the contract."""

    def __init__(self, lacks: frozenset[str]) -> None:
        self.lacks = lacks
        self.jobs: dict[str, Known] = {}
        self.group_limits: dict[tuple[str, str], int] = {}
        self.tokens: set[str] = set()

    def enqueued(self, jobs: Sequence[JobRecord], results: Sequence[Enqueued]) -> None:
        assert len(jobs) == len(results), f"enqueue returned {len(results)} results for {len(jobs)} jobs"
        for job, result in zip(jobs, results, strict=True):
            if result.existed:
                assert result.id in self.jobs, f"enqueue returned {result.id}, which was never stored"
            else:
                assert result.id == job.id
                assert job.id not in self.jobs, f"{job.id} was stored twice"
                self.stored(job)

    def stored(self, job: JobRecord) -> None:
        self.jobs[job.id] = Known(job, job.attempts)
        if job.group is not None and job.group_limit > 0:
            self.group_limits.setdefault((job.queue, job.group), job.group_limit)

    def reserved(self, taken: Sequence[Reserved], now: datetime, lease_for: timedelta, worker: str) -> None:
        for item in taken:
            id, token = item.job.id, item.lease.token
            known = self.jobs.get(id)
            assert known is not None, f"{id} was reserved, and is not stored"
            before, held = known.released, known.held
            if held is not None:
                assert held.expires_at <= now, f"{id} was reserved under a valid lease"
                known.lost += 1
                before = Lost(held.worker, held.began_at, held.expires_at)
            if ATTEMPTS not in self.lacks:
                assert item.lost_by == before, f"{id} was lost by {item.lost_by}, expected {before}"
            known.released = None
            assert token not in self.tokens, f"{id} was reserved with a token that was used before"
            self.tokens.add(token)
            known.epoch += 1
            known.settled = None
            known.held = Held(token, now + lease_for, worker, now)
            assert (item.lease.job_id, item.lease.queue) == (id, known.job.queue)
            assert item.lease.expires_at == now + lease_for
            self._counters(known, item.job)
        running = Counter(
            (known.job.queue, known.job.group)
            for known in self.jobs.values()
            if known.job.group is not None and known.held is not None and known.held.expires_at > now
        )
        for (queue, group), number in running.items():
            assert group is not None
            limit = self.group_limits.get((queue, group), 1)
            assert number <= limit, f"{number} jobs of group {group} in {queue} are inflight, its limit is {limit}"

    def extended(self, lease: Lease, result: Lease | TaskHarborError, now: datetime, lease_for: timedelta) -> None:
        known = self.jobs.get(lease.job_id)
        if known is None or not known.valid(lease, now):
            assert not isinstance(result, Lease), f"a lease on {lease.job_id} that is not valid was extended"
            return
        assert isinstance(result, Lease), f"the valid lease on {lease.job_id} was refused: {result!r}"
        assert known.held is not None
        known.held.expires_at = max(known.held.expires_at, now + lease_for)
        assert (result.token, result.expires_at) == (lease.token, known.held.expires_at)

    def settled(self, outcome: Outcome, result: TaskHarborError | None, now: datetime) -> bool:
        """Whether the outcome was applied now (and not refused, nor a repetition)."""
        lease, kind = outcome.lease, type(outcome)
        known = self.jobs.get(lease.job_id)
        if known is not None and known.valid(lease, now):
            if isinstance(result, InvalidJob):
                return False
            assert result is None, f"the newest lease on {lease.job_id} was refused: {result!r}"
            known.held, known.settled = None, (lease.token, kind)
            if not isinstance(outcome, Retry) or outcome.attempts != known.attempts:
                known.lost = 0
            if isinstance(outcome, Retry | Fail):
                known.attempts = outcome.attempts
            return True
        repeated = known is not None and known.settled == (lease.token, kind)
        assert (result is None) == repeated, f"a stale {kind.__name__} of {lease.job_id} returned {result!r}"
        return False

    def released(self, worker: str, now: datetime, keep: Sequence[str], number: int) -> None:
        expected = 0
        for known in self.jobs.values():
            held = known.held
            if held is not None and held.worker == worker and held.expires_at > now and held.token not in keep:
                known.held = None
                known.released = Lost(worker, held.began_at, now)
                known.lost += 1
                expected += 1
        assert number == expected, f"release returned {number}, expected {expected}"

    def requeued(self, id: str, reset_attempts: bool) -> None:
        known = self.jobs[id]
        known.lost = 0
        known.released = None
        if reset_attempts:
            known.attempts = 0

    def removed(self, id: str) -> None:
        self.jobs.pop(id, None)

    def read(self, infos: Iterable[JobInfo], now: datetime, ended: bool) -> None:
        """All jobs as they read now. `ended`: the last call was one that may end leases from outside."""
        seen = {info.job.id: info for info in infos}
        assert seen.keys() == self.jobs.keys(), (
            f"jobs appeared or disappeared without a call: {sorted(seen.keys() ^ self.jobs.keys())}"
        )
        for id, known in self.jobs.items():
            info = seen[id]
            if known.held is not None and ended and info.state is State.CANCELLED:
                known.held = None
            running = known.held is not None and known.held.expires_at > now
            assert (info.state is State.INFLIGHT) == running, f"{id} reads {info.state}, held is {known.held}"
            self._counters(known, info.job)

    def _counters(self, known: Known, record: JobRecord) -> None:
        counted = {"deliveries": known.epoch, "lost": known.lost, "attempts": known.attempts}
        found = {"deliveries": record.deliveries, "lost": record.lost, "attempts": record.attempts}
        assert found == counted, f"{record.id} has {found}, expected {counted}"
