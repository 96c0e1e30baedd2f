"""Flows whose workers are killed and stopped: real processes, on every durable store that has landed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from taskharbor import Harbor
from taskharbor.testing import ManualClock, drain
from tests import lanes
from tests.flow.fork_server import forks
from tests.flow.killable_worker import Work
from tests.flow.stores import DURABLE, STORES

pytestmark = pytest.mark.left_to("full", except_for=lanes.Chosen("postgresql"))

ROOT = Path(__file__).resolve().parents[2]


class Place:
    """A store, a journal, and processes that work on it."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.journal = folder / "journal"
        self.journal.touch()

    def lines(self) -> list[str]:
        return self.journal.read_text(encoding="utf-8").splitlines()

    @contextmanager
    def harbor(self, *, later: float = 0) -> Iterator[tuple[Harbor, Work]]:
        """A harbor here, whose clock is `later` seconds ahead: leases of the dead are over."""
        clock = ManualClock(datetime.now(UTC) + timedelta(seconds=later))
        with Harbor(self.dsn, clock=clock) as harbor:
            yield harbor, Work(harbor, str(self.journal))

    def worker(self) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "tests.flow.killable_worker", self.dsn, str(self.journal)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.fixture(params=DURABLE)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    dsn = STORES[request.param](tmp_path)
    assert dsn is not None, f"{request.param} cannot run here"
    return Place(dsn, tmp_path)


def started(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n", process.communicate()


def end(process: "subprocess.Popen[str]") -> int:
    process.communicate("go on\n", timeout=60)
    return process.returncode


def test_a_chain_goes_on_after_its_worker_was_killed_in_the_middle(place: Place) -> None:
    with place.harbor() as (_, work):
        handle = work.chain().enqueue()
    process = place.worker()
    started(process)
    os.kill(process.pid, signal.SIGKILL)
    assert end(process) == -signal.SIGKILL
    assert place.lines() == ["step 1", "step 2"]
    with place.harbor(later=60) as (harbor, _):
        assert list(harbor.flow(handle.id).states.values()) == ["done", "ready", "blocked"]
        drain(harbor)
        assert harbor.flow(handle.id).result(1) == 4
    assert place.lines() == ["step 1", "step 2", "step 2", "step 3"]


@pytest.mark.left_to("full")
def test_a_worker_killed_at_every_step_of_a_chord_releases_its_finalizer_once(place: Place) -> None:
    with forks("tests.flow.killable_worker", place.dsn, place.journal) as worker:
        for point in range(1, 60):
            place.journal.write_text("")
            with place.harbor() as (_, work):
                handle = work.chord().enqueue()
            code = worker(point)
            with place.harbor(later=60) as (harbor, _):
                drain(harbor)
                found = harbor.flow(handle.id)
                assert (found.status, found.result(1)) == ("succeeded", 5)
            lines = place.lines()
            assert lines.index("last") > max(lines.index("step 1"), lines.index("step 2"))
            again = len(lines) - 3
            # A slot is free before its job's outcome is stored: both members may have ended when the worker dies.
            assert again in (0, 1, 2), lines
            assert lines.count("last") == 1 or (again and lines.count("step 1") == lines.count("step 2") == 1), lines
            if code == 0:
                assert again == 0
                break
            assert code == -signal.SIGKILL
    assert point > 12, "there were hardly any points to die at"


def test_a_stopped_worker_that_comes_back_settles_nothing(place: Place) -> None:
    """SIGSTOP in the last member; others finish the chord; SIGCONT: what the zombie says is refused."""
    with place.harbor() as (_, work):
        handle = work.chord(wait=True).enqueue()
    process = place.worker()
    started(process)
    os.kill(process.pid, signal.SIGSTOP)
    with place.harbor(later=60) as (harbor, _):
        drain(harbor)
        before = harbor.flow(handle.id)
        assert before.result(1) == 5
    os.kill(process.pid, signal.SIGCONT)
    assert end(process) == 0
    with place.harbor(later=60) as (harbor, _):
        assert drain(harbor) == 0
        after = harbor.flow(handle.id)
        assert (after.nodes, after.edges) == (before.nodes, before.edges)
    assert place.lines().count("last") == 1
