"""Which event reports an outcome that the store has recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from taskharbor.model.events import (
    Event,
    JobCancelled,
    JobDeadLettered,
    JobEnqueued,
    JobGivenBack,
    JobRetried,
    JobSnoozed,
    JobSucceeded,
    JobUnknown,
    Observers,
)
from taskharbor.model.job import JobRecord
from taskharbor.model.outcome import Ack, Cancelled, Fail, Outcome
from taskharbor.worker.delivery import SNOOZED, UNKNOWN_TYPE, Delivery

MAX_KNOWN_TYPES = 20  # how many of its types a worker names beside one that it does not know


def event_of(delivery: Delivery, outcome: Outcome, worker: str, known_types: Callable[[], tuple[str, ...]]) -> Event:
    """The event for a recorded outcome. `known_types`: what this worker has handlers for."""
    job = delivery.job
    if isinstance(outcome, Ack):
        return JobSucceeded(job, worker, delivery.seconds)
    if isinstance(outcome, Fail):
        return JobDeadLettered(job, worker, outcome.attempts, outcome.reason)
    if isinstance(outcome, Cancelled):
        return JobCancelled(job, worker, outcome.reason)
    if outcome.attempts != job.attempts:
        return JobRetried(job, worker, outcome.attempts, outcome.run_at)
    if delivery.why == UNKNOWN_TYPE:
        return JobUnknown(job, worker, known_types()[:MAX_KNOWN_TYPES])
    if delivery.why == SNOOZED:
        return JobSnoozed(job, worker, outcome.run_at)
    return JobGivenBack(job, worker, delivery.why, outcome.run_at)


def emit_spawned(observers: Observers, jobs: Sequence[JobRecord], worker: str) -> None:
    """Report the jobs that an outcome has brought into being."""
    if observers.wants(JobEnqueued):
        for job in jobs:
            observers.emit(JobEnqueued(job, worker))
