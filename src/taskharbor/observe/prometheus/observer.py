"""The observer that counts: one counter for each kind of event, and how long executions take.

The number of label sets is bounded: the first pairs of queue and type get labels of their own, all others count as
`other`. So a program that makes up types or queues cannot fill the memory of a worker, or of Prometheus.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from taskharbor.model import events as e

if TYPE_CHECKING:
    from taskharbor.harbor import Harbor

L = TypeVar("L", str, tuple[str, str])

OTHER = "other"
LABELS = ("queue", "type")
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
DURATION = "taskharbor_job_duration_seconds"
DEDUPLICATED = "taskharbor_jobs_deduplicated"
OUTAGE_SECONDS = "taskharbor_store_outage_seconds"
STUCK_SLOTS = "taskharbor_stuck_slots"

# Without the _total that Prometheus adds to every counter.
COUNTERS: dict[type[e.Event], tuple[str, str]] = {
    e.JobEnqueued: ("taskharbor_jobs_enqueued", "Jobs stored."),
    e.JobReserved: ("taskharbor_jobs_reserved", "Jobs taken under a lease."),
    e.JobStarted: ("taskharbor_jobs_started", "Executions begun."),
    e.JobSucceeded: ("taskharbor_jobs_succeeded", "Jobs done."),
    e.JobFailed: ("taskharbor_jobs_failed", "Executions that failed."),
    e.JobRetried: ("taskharbor_jobs_retried", "Failures after which the job runs again."),
    e.JobDeadLettered: ("taskharbor_jobs_dead_lettered", "Jobs put into the dead letter queue."),
    e.JobSnoozed: ("taskharbor_jobs_snoozed", "Executions that asked to be run again later."),
    e.JobGivenBack: ("taskharbor_jobs_given_back", "Jobs given back without a failure."),
    e.JobUnknown: ("taskharbor_jobs_unknown", "Jobs given back because no handler knows their type."),
    e.JobCancelled: ("taskharbor_jobs_cancelled", "Jobs cancelled by their handler or while they ran."),
    e.LeaseLost: ("taskharbor_leases_lost", "Leases that ended while the job ran."),
    e.OutcomeRefused: ("taskharbor_outcomes_refused", "Outcomes that the store refused."),
    e.PolicyFailed: ("taskharbor_retry_policies_failed", "Retry policies that raised."),
    e.HandlerBlocked: ("taskharbor_handlers_blocked", "Times that a handler held up the event loop."),
    e.HandlerStuck: ("taskharbor_handlers_stuck", "Handlers that went on after their job was decided without them."),
    e.StoreLost: ("taskharbor_store_outages", "Outages of the store that workers met."),
}
SLOTS: dict[type[e.ScheduleEvent], tuple[str, str]] = {
    e.ScheduleFired: ("taskharbor_schedule_slots_fired", "Slots of schedules that got a job."),
    e.ScheduleMissed: ("taskharbor_schedule_slots_missed", "Slots that passed without a job."),
    e.ScheduleSkipped: ("taskharbor_schedule_slots_skipped", "Slots skipped because an earlier job had not ended."),
}
LATENESS = "taskharbor_schedule_lateness_seconds"
RELAYED = "taskharbor_outbox_jobs_relayed"
REFUSED = "taskharbor_outbox_rows_refused"
OUTBOX_WAIT = "taskharbor_outbox_wait_seconds"
OTHERS = {e.StoreBack, e.HandlerFreed, e.WorkerStopped, e.JobsRelayed, e.RelayRefused}
WANTED = frozenset(COUNTERS) | frozenset(SLOTS) | OTHERS


class PrometheusObserver:
    """Counts events into a registry. One serves any number of harbors, clients and workers of a process.

    Options:
        registry: Where the metrics are registered. Default: prometheus_client's own.
        buckets: The bounds of the histogram of durations, in seconds.
        max_label_sets: How many pairs of queue and type have labels of their own; the rest count as `other`.
            Default: 100.
    """

    def __init__(
        self,
        *,
        registry: CollectorRegistry = REGISTRY,
        buckets: Sequence[float] = BUCKETS,
        max_label_sets: int = 100,
    ) -> None:
        if max_label_sets < 1:
            raise ValueError(f"max_label_sets: expected 1 or more, got {max_label_sets}")
        self._max_label_sets = max_label_sets
        self._pairs: set[tuple[str, str]] = set()
        self._schedules: set[str] = set()
        self._stuck: dict[str, int] = {}  # stuck slots, by worker
        self._lock = threading.Lock()
        try:
            self._counters = {
                kind: Counter(name, text, () if kind is e.StoreLost else LABELS, registry=registry)
                for kind, (name, text) in COUNTERS.items()
            }
            self._deduplicated = Counter(
                DEDUPLICATED, "Enqueues that found their job stored.", LABELS, registry=registry
            )
            self._outage_seconds = Counter(OUTAGE_SECONDS, "How long the store was away.", registry=registry)
            self._stuck_slots = Gauge(
                STUCK_SLOTS,
                "Slots held by handlers whose job was decided without them.",
                registry=registry,
                multiprocess_mode="livesum",
            )
            self._durations = Histogram(
                DURATION, "How long executions took.", (*LABELS, "outcome"), registry=registry, buckets=buckets
            )
            self._slots = {
                kind: Counter(name, text, ("schedule",), registry=registry) for kind, (name, text) in SLOTS.items()
            }
            self._lateness = Histogram(
                LATENESS, "How long after their slots jobs were made.", registry=registry, buckets=buckets
            )
            self._relayed = Counter(RELAYED, "Jobs carried from an outbox to the store.", registry=registry)
            self._refused = Counter(REFUSED, "Rows of an outbox that were set aside.", registry=registry)
            self._outbox_wait = Histogram(
                OUTBOX_WAIT,
                "How long the first job of a batch waited in an outbox.",
                registry=registry,
                buckets=buckets,
            )
        except ValueError as error:
            raise ValueError(
                f"{error}; a registry takes one PrometheusObserver: share it between harbors, or give each a registry"
            ) from None

    def __repr__(self) -> str:
        return f"PrometheusObserver(max_label_sets={self._max_label_sets})"

    def wants(self, event_type: type[e.Event]) -> bool:
        """Whether events of this type are counted."""
        return event_type in WANTED

    def __call__(self, event: e.Event) -> None:
        kind = type(event)
        if isinstance(event, e.HandlerStuck | e.HandlerFreed):
            self._note_stuck(event.worker, event.stuck)
        if isinstance(event, e.StoreBack):
            self._outage_seconds.inc(event.seconds)
        elif isinstance(event, e.WorkerStopped):
            self._note_stuck(event.worker, 0)  # it has no slots any more
        elif kind is e.StoreLost:
            self._counters[kind].inc()
        elif isinstance(event, e.JobsRelayed):
            self._relayed.inc(event.jobs)
            self._outbox_wait.observe(event.seconds)
        elif isinstance(event, e.RelayRefused):
            self._refused.inc()
        elif isinstance(event, e.ScheduleEvent):
            self._count_slots(event)
        elif kind in COUNTERS:
            job = getattr(event, "job", None)
            pair = ("", "")  # HandlerBlocked may have no job
            if job is not None:
                pair = self._bounded(self._pairs, (job.queue, job.type), (OTHER, OTHER))
            if isinstance(event, e.JobEnqueued) and event.existed:
                self._deduplicated.labels(*pair).inc()
                return
            self._counters[kind].labels(*pair).inc()
            if isinstance(event, e.JobSucceeded):
                self._durations.labels(*pair, "succeeded").observe(event.seconds)
            elif isinstance(event, e.JobFailed):
                self._durations.labels(*pair, "failed").observe(event.seconds)

    def _count_slots(self, event: e.ScheduleEvent) -> None:
        slots = 1
        if isinstance(event, e.ScheduleFired):
            self._lateness.observe(event.late)
        elif isinstance(event, e.ScheduleMissed):
            slots = event.missed
        elif isinstance(event, e.ScheduleSkipped):
            slots = event.skipped
        self._slots[type(event)].labels(self._bounded(self._schedules, event.schedule, OTHER)).inc(slots)

    def _note_stuck(self, worker: str, slots: int) -> None:
        with self._lock:
            if slots:
                self._stuck[worker] = slots
            else:
                self._stuck.pop(worker, None)
            self._stuck_slots.set(sum(self._stuck.values()))

    def _bounded(self, known: set[L], labels: L, others: L) -> L:
        """These labels, if they are among the first; else those that all others share."""
        if labels in known:
            return labels
        with self._lock:
            if labels in known or len(known) < self._max_label_sets:
                known.add(labels)
                return labels
        return others


def install(harbor: Harbor) -> None:
    """Attach a PrometheusObserver to a harbor, unless it has one."""
    if not any(isinstance(observer, PrometheusObserver) for observer in harbor.observers):
        harbor.observe(PrometheusObserver())
