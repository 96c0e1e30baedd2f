"""Metrics of several processes: added up by the one that serves them, whatever happens to the others."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from taskharbor.model.process_events import ProcessStarted
from taskharbor.observe.prometheus import SharedMetrics, serve, share
from taskharbor.observe.prometheus.shared import VARIABLE
from tests.observe.scrape import Samples, fetch, parse, read, value

DURATION = "taskharbor_job_duration_seconds"


class Fleet:
    """Processes that count, and the metrics they share."""

    def __init__(self, shared: SharedMetrics) -> None:
        self.shared = shared
        self.registry = CollectorRegistry()
        self.registry.register(shared)
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, jobs: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", "-m", "tests.observe.counting_process", str(jobs)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    @staticmethod
    def counted(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stdout.readline() == "counted\n"

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()

    def read(self) -> Samples:
        return read(self.registry)


def succeeded(samples: Samples) -> float | None:
    return value(samples, "taskharbor_jobs_succeeded_total", queue="q", type="t")


def count(samples: Samples, le: str | None = None) -> float | None:
    labels = {"queue": "q", "type": "t", "outcome": "succeeded"}
    if le is None:
        return value(samples, f"{DURATION}_count", **labels)
    return value(samples, f"{DURATION}_bucket", **labels, le=le)


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.delenv(VARIABLE, raising=False)
    fleet = Fleet(share())
    try:
        yield fleet
    finally:
        fleet.end()
        fleet.shared.close()
        assert not fleet.shared.folder.exists()
        assert VARIABLE not in os.environ


def test_counts_of_all_processes_are_summed_and_those_of_a_killed_one_stay(fleet: Fleet):
    first, second = fleet.start(2), fleet.start(3)
    for process in (first, second):
        fleet.counted(process)
    samples = fleet.read()
    assert succeeded(samples) == count(samples) == 5
    assert (count(samples, "1.0"), count(samples, "2.0"), count(samples, "+Inf")) == (4, 5, 5)
    assert value(samples, "application_letters_total") == 5
    assert value(samples, "application_busy") == 2

    first.kill()
    first.communicate()
    assert fleet.read() == fleet.read()
    samples = fleet.read()
    assert succeeded(samples) == count(samples) == 5
    assert (count(samples, "1.0"), count(samples, "2.0"), count(samples, "+Inf")) == (4, 5, 5)
    assert value(samples, f"{DURATION}_sum", queue="q", type="t", outcome="succeeded") == 1 + 3
    assert value(samples, "application_letters_total") == 5
    assert value(samples, "application_busy") == 1
    assert not list(fleet.shared.folder.glob(f"*_{first.pid}.db"))

    third = fleet.start(4)
    fleet.counted(third)
    assert succeeded(fleet.read()) == 9
    for process in (second, third):
        process.kill()
        process.communicate()
    samples = fleet.read()
    assert succeeded(samples) == count(samples) == 9
    assert (count(samples, "1.0"), count(samples, "2.0"), count(samples, "+Inf")) == (6, 8, 9)
    assert list(fleet.shared.folder.iterdir()) == []


def test_shared_metrics_are_served_instead_of_those_of_this_process(fleet: Fleet):
    process = fleet.start(2)
    fleet.counted(process)
    with contextlib.closing(serve(0, shared=fleet.shared)) as server:
        samples = parse(fetch(server.port))
    assert succeeded(samples) == 2
    assert not any(name.startswith("python_") for name, _ in samples)
    assert not fleet.shared.folder.exists()


def test_an_empty_file_is_not_taken_for_a_damaged_one(fleet: Fleet):
    (fleet.shared.folder / f"counter_{os.getpid()}.db").touch()
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    (fleet.shared.folder / f"histogram_{int(gone.stdout)}.db").touch()
    assert fleet.read() == {}


def test_a_folder_that_the_environment_names_is_used_and_left_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "metrics"
    monkeypatch.setenv(VARIABLE, str(folder))
    shared = share()
    assert shared.folder == folder
    assert folder.is_dir()
    shared.close()
    assert folder.is_dir()
    assert os.environ[VARIABLE] == str(folder)


def test_in_a_folder_of_the_environment_only_live_gauges_of_our_processes_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A process of another PID namespace looks dead from here, and another program may still need its files."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    fleet = Fleet(share())
    ours, other = fleet.start(2), fleet.start(3)
    for process in (ours, other):
        fleet.counted(process)
    fleet.shared(ProcessStarted(ours.pid, 0, "w"))
    assert value(fleet.read(), "application_busy") == 2
    fleet.end()
    samples = fleet.read()
    assert succeeded(samples) == 5
    assert value(samples, "application_busy") == 1
    left = {file.name for file in tmp_path.iterdir()}
    assert left >= {f"counter_{ours.pid}.db", f"counter_{other.pid}.db", f"gauge_livesum_{other.pid}.db"}
    assert f"gauge_livesum_{ours.pid}.db" not in left
