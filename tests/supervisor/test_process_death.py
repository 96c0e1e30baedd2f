"""Worker processes that die: what they held runs again at once, and only the one that kills is blamed.

The leases last ten minutes and the tests wait far less: what runs again does so because it was given back.
"""

import os
import re
import signal

import pytest

from taskharbor.model.job import State
from tests import lanes
from tests.supervisor.worker_run import STORES, Yard, eventually, exists, on

pytestmark = pytest.mark.left_to(
    "full",
    except_for=lanes.Chosen(
        "test_jobs_of_a_killed_process_run_again_at_once[sqlite]",
        "test_only_the_job_that_kills_its_process_is_blamed",
        "test_children_of_a_dead_process_end_before_its_jobs_run_again",
    ),
)

LONG = ("--lease", "600", "--heartbeat", "200")


@on(*STORES)
def test_jobs_of_a_killed_process_run_again_at_once(there: Yard) -> None:
    jobs = there.enqueue("gate", 3, name="go")
    there.start(*LONG)
    [first, *_] = there.started(*jobs)
    os.kill(first.pid, signal.SIGKILL)
    again = there.started(*jobs[:1], times=2)[0]
    assert again.pid != first.pid
    assert again.fence > first.fence
    there.open("go")
    there.done(*jobs)
    for job in jobs:
        record = there.info(job).job
        assert (record.attempts, record.lost, len(there.starts(job))) == (0, 0, 2)
    eventually(lambda: [each.pid for each in there.workers() if each.stopped_at] == [first.pid], "it is off the list")


@on("redis")
def test_only_the_job_that_kills_its_process_is_blamed(there: Yard) -> None:
    neighbours = there.enqueue("gate", 3, name="go")
    [killer] = there.enqueue("die")
    there.start(*LONG, "--concurrency", "4")
    there.started(killer, *neighbours)
    there.open("die")
    there.open("go")
    eventually(lambda: there.state(killer) == State.DLQ, "the killer is dead")
    record = there.info(killer).job
    assert record.reason == "crashed 3 times"
    assert len(there.starts(killer)) == 3
    there.done(*neighbours)
    assert all(there.info(job).job.attempts == 0 for job in neighbours)


def test_children_of_a_dead_process_end_before_its_jobs_run_again(here: Yard) -> None:
    here.enqueue("leave")
    here.start(*LONG)

    def left() -> list[tuple[int, int]]:
        return [(line.pid, int(line.word.removeprefix("left:"))) for line in here.journal()]

    [(worker, program)] = eventually(left, "it has started its program")
    assert exists(program)
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: len(left()) == 2, "it runs again")
    assert not exists(program)


def test_jobs_finish_after_their_supervisor_was_killed(here: Yard) -> None:
    """Its worker renews the lease itself, finishes what it runs, takes nothing more, and ends."""
    [job] = here.enqueue("gate", name="go")
    program = here.start("--lease", "3", "--heartbeat", "0.5", "--shutdown-timeout", "600")
    [line] = here.started(job)
    os.kill(program.pid, signal.SIGKILL)
    program.wait()
    eventually(lambda: "the supervising process is gone" in here.log, "the worker has noticed")
    [late] = here.enqueue("note")
    first = here.lease_end(job)
    eventually(lambda: here.lease_end(job) > first + 4, "the lease was renewed more than once")
    here.open("go")
    here.done(job)
    eventually(lambda: not exists(line.pid), "the worker has ended")
    assert len(here.starts(job)) == 1
    assert here.state(late) == State.READY


def test_the_spare_replaces_a_process_that_dies(here: Yard) -> None:
    """It has imported the application before; when the supervisor is gone it ends, though it never served."""

    def waiting() -> list[int]:
        return [int(found) for found in re.findall(r"event=ProcessWaiting pid=(\d+)", here.log)]

    [job] = here.enqueue("gate", name="go")
    program = here.start(*LONG)
    [first] = here.started(job)
    [spare] = eventually(waiting, "a process waits")
    assert spare != first.pid
    os.kill(first.pid, signal.SIGKILL)
    assert here.started(job, times=2)[0].pid == spare
    here.open("go")
    here.done(job)
    eventually(lambda: len(waiting()) == 2, "another one waits")
    os.kill(program.pid, signal.SIGKILL)
    program.wait()
    eventually(lambda: not any(map(exists, waiting())), "both have ended")


def test_without_a_spare_the_next_process_is_started(here: Yard) -> None:
    [job] = here.enqueue("gate", name="go")
    here.start(*LONG, "--no-spare")
    [first] = here.started(job)
    os.kill(first.pid, signal.SIGKILL)
    here.started(job, times=2)
    here.open("go")
    here.done(job)
    assert "event=ProcessWaiting" not in here.log


def test_crashes_one_after_the_other_pause_nothing(here: Yard) -> None:
    here.start(*LONG)
    for number in range(4):
        [job] = here.enqueue("gate", name=f"go{number}")
        [first] = here.started(job)
        here.open(f"go{number}")  # the next execution ends at once
        os.kill(first.pid, signal.SIGKILL)
        here.done(job)
    assert re.findall(r"event=ProcessDied.* again_in=([0-9.]+)", here.log) == ["0.0"] * 4
