"""What a supervisor did with its worker processes, as counters of the page that it serves.

Its events are made in a room above this one, so they are known by their names. The numbers are kept here, not in
prometheus_client's own counters: those of a supervisor would be written among its processes' files.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from taskharbor.model.events import Event

# Without the _total that Prometheus adds to every counter.
PROCESS_COUNTERS = {
    "ProcessStarted": ("taskharbor_processes_started", "Worker processes that began to serve."),
    "ProcessDied": ("taskharbor_processes_died", "Worker processes that ended by themselves, or were killed."),
    "ProcessReplaced": ("taskharbor_processes_replaced", "Worker processes replaced for their jobs or their memory."),
    "ProcessKilled": ("taskharbor_processes_killed", "Worker processes that the supervisor killed."),
    "ProcessSilent": ("taskharbor_processes_silent", "Times that a worker process gave no sign of life."),
    "SuspectDied": ("taskharbor_suspects_died", "Jobs that took down the process that they had for themselves."),
    "LeasesNotKept": ("taskharbor_leases_not_kept", "Times that the supervisor could not renew leases."),
}
RELEASED = ("taskharbor_jobs_released", "Jobs of dead processes that the supervisor gave back.")


class ProcessCounter(Collector):
    """An observer of a supervisor's events, and the collector of what it counted."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys((*PROCESS_COUNTERS, "JobsReleased"), 0)
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        kind = type(event).__name__
        if kind in self._counts:
            with self._lock:
                self._counts[kind] += getattr(event, "jobs", 1) if kind == "JobsReleased" else 1

    def collect(self) -> Iterable[Metric]:
        """All of them, those that did not happen included."""
        with self._lock:
            counts = dict(self._counts)
        for kind, (name, text) in {**PROCESS_COUNTERS, "JobsReleased": RELEASED}.items():
            yield CounterMetricFamily(name, text, value=counts[kind])
