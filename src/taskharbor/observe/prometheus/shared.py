"""Metrics of several processes as one: each writes to files of its own in a folder, and one process reads them all.

This is prometheus_client's multi-process mode, so the counters that a handler makes itself are shared as well, and
nothing is lost with a process that is killed. Only what is public in prometheus_client is used here: its collector's
`merge`, and `mark_process_dead`.

    supervisor: share() ─► environment ─► worker processes write ─► SharedMetrics, in the supervisor's registry

A process that has ended leaves its files behind. In a folder that `share` made, they are read one last time, their
totals are kept in memory and the files are deleted: counters never go back, and a worker that replaces its processes
often does not fill the folder. A folder that the environment names may hold files of other programs, even of another
PID namespace, whose processes only look dead from here: there nothing is deleted but the live gauges of processes
that this supervisor started itself.

What a supervisor did with its processes is counted here as well, by `ProcessCounter`, and not by prometheus_client's
own counters: those would be written among the files of the worker processes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from taskharbor.model import process_events as e
from taskharbor.model.events import Event

# Neither has types.
_merge: Any = MultiProcessCollector.merge
_mark_dead: Any = mark_process_dead

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
SUMMED = ("counter", "histogram", "summary")  # file names begin with the type of metric
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


class SharedMetrics(Collector):
    """The sum over all processes that write to a folder. Close it when they are gone. `own`: delete the folder then."""

    def __init__(self, folder: str | Path, *, own: bool = False) -> None:
        self.folder = Path(folder)
        self._own = own
        self._lock = threading.Lock()
        self._ended: dict[str, Metric] = {}  # the totals of processes that have ended, by metric
        self._started: set[int] = set()  # the processes of our supervisor

    def __call__(self, event: Event) -> None:
        """Observe a supervisor: remember which processes are its own."""
        if isinstance(event, e.ProcessStarted):
            with self._lock:
                self._started.add(event.pid)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the processes decide which metrics there are."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """The sum over all processes, including those that have ended."""
        with self._lock:
            self._tidy_up()
            # The collector would take a file that has just been created, and is still empty, for a damaged one.
            files = [str(file) for file in self.folder.glob("*.db") if file.stat().st_size]
            running = {metric.name: metric for metric in _merge(files)}
            return [_sum(self._ended.get(name), running.get(name)) for name in dict.fromkeys((*self._ended, *running))]

    def close(self) -> None:
        """Delete the folder and take it out of the environment, if `share` made it."""
        if self._own:
            if os.environ.get(VARIABLE) == str(self.folder):
                del os.environ[VARIABLE]
            shutil.rmtree(self.folder, ignore_errors=True)

    def _tidy_up(self) -> None:
        """Take over what ended processes have counted, and delete their files."""
        if self._own:
            for pid in {_pid_of(file) for file in self.folder.glob("*.db")} - {0}:
                if not _is_alive(pid):
                    self._take_over(pid)
        else:
            for pid in [pid for pid in self._started if not _is_alive(pid)]:
                self._started.discard(pid)
                _mark_dead(pid, str(self.folder))

    def _take_over(self, pid: int) -> None:
        _mark_dead(pid, str(self.folder))  # deletes its live gauges
        files = [self.folder / f"{kind}_{pid}.db" for kind in SUMMED]
        written = [str(file) for file in files if file.exists() and file.stat().st_size]
        for metric in _merge(written):
            self._ended[metric.name] = _sum(self._ended.get(metric.name), metric)
        for file in files:
            file.unlink(missing_ok=True)


def share() -> SharedMetrics:
    """Let all processes that are started from now on share their metrics, in a new folder.

    A folder that the environment names already is used instead, and left there at the end.
    """
    named = os.environ.get(VARIABLE)
    if named:
        Path(named).mkdir(parents=True, exist_ok=True)
        return SharedMetrics(named)
    folder = tempfile.mkdtemp(prefix="taskharbor-metrics-")
    os.environ[VARIABLE] = folder
    return SharedMetrics(folder, own=True)


def _sum(ended: Metric | None, running: Metric | None) -> Metric:
    """The samples of both, added up where name and labels are the same."""
    if ended is None or running is None:
        metric = ended or running
        assert metric is not None
        return metric
    samples = {(each.name, *sorted(each.labels.items())): each for each in ended.samples}
    for each in running.samples:
        key = (each.name, *sorted(each.labels.items()))
        known = samples.get(key)
        samples[key] = each if known is None else each._replace(value=known.value + each.value)
    total = Metric(running.name, running.documentation, running.type)
    total.samples = list(samples.values())
    return total


def _pid_of(file: Path) -> int:
    """The process that wrote a file, `counter_123.db` or `gauge_livesum_123.db`; 0 for any other file."""
    pid = file.stem.rpartition("_")[2]
    return int(pid) if pid.isdigit() else 0


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


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
