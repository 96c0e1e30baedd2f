"""What a supervisor did with its worker processes, as counters on the metrics page that it serves.

The numbers are kept here, not in prometheus_client's own counters: under `share()` a supervisor's counters would be
written among the files of its worker processes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from taskharbor.model import process_events as e
from taskharbor.model.events import Event

# Without the _total that Prometheus adds to every counter.
PROCESS_COUNTERS: dict[type[Event], tuple[str, str]] = {
    e.ProcessStarted: ("taskharbor_processes_started", "Worker processes that began to serve."),
    e.ProcessDied: ("taskharbor_processes_died", "Worker processes that ended by themselves, or were killed."),
    e.ProcessReplaced: ("taskharbor_processes_replaced", "Worker processes replaced for their jobs or their memory."),
    e.ProcessKilled: ("taskharbor_processes_killed", "Worker processes that the supervisor killed."),
    e.ProcessSilent: ("taskharbor_processes_silent", "Times that a worker process gave no sign of life."),
    e.SuspectDied: ("taskharbor_suspects_died", "Jobs that took down the process that they had for themselves."),
    e.LeasesNotKept: ("taskharbor_leases_not_kept", "Times that the supervisor could not renew leases."),
    e.JobsReleased: ("taskharbor_jobs_released", "Jobs of dead processes that the supervisor gave back."),
}


class ProcessCounter(Collector):
    """An observer of a supervisor's events, and the collector of what it counted."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(PROCESS_COUNTERS, 0)
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        kind = type(event)
        if kind in self._counts:
            with self._lock:
                self._counts[kind] += event.jobs if isinstance(event, e.JobsReleased) else 1

    def collect(self) -> Iterable[Metric]:
        """All counters, including those that are still 0."""
        with self._lock:
            counts = dict(self._counts)
        for kind, (name, text) in PROCESS_COUNTERS.items():
            yield CounterMetricFamily(name, text, value=counts[kind])
