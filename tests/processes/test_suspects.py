"""Jobs that were lost twice: each runs in a process of its own, beside everything else.

The leases last ten minutes and the tests wait far less: what runs again does so because it was given back.
"""

import os
import signal
import subprocess

import pytest

from taskharbor.model.job import State
from tests import lanes
from tests.supervisor.test_stop import LONG
from tests.supervisor.worker_run import Line, Yard, eventually, exists

pytestmark = pytest.mark.left_to(
    "full",
    except_for=lanes.Chosen(
        "test_other_jobs_run_beside_a_suspect",
        "test_a_suspect_that_kills_its_own_process_is_dead",
        "test_a_suspect_survives_the_worker_that_took_it",
    ),
)


def suspect(yard: Yard, *options: str) -> tuple[subprocess.Popen[bytes], str, Line]:
    """A program, and a job that was lost twice before and runs."""
    [job] = yard.enqueue("gate", name="go")
    yard.lose(times=2)
    program = yard.start(*LONG, *options)
    return program, job, yard.started(job)[0]


def test_other_jobs_run_beside_a_suspect(here: Yard) -> None:
    program, job, alone = suspect(here)
    others = here.enqueue("note", 5)
    here.done(*others)
    assert all(here.starts(other)[0].pid != alone.pid for other in others)
    here.open("go")
    here.done(job)
    eventually(lambda: not exists(alone.pid), "its process has ended")
    record = here.info(job).job
    assert (record.attempts, record.lost, len(here.starts(job))) == (0, 0, 1)
    assert here.log.count("event=SuspectStarted") == 1
    program.terminate()
    assert here.ended(program) == 0


def taker(yard: Yard) -> int:
    """The process that serves the queues, and holds nothing."""
    [note] = yard.enqueue("note")
    yard.done(note)
    return yard.starts(note)[0].pid


def test_a_suspect_that_kills_its_own_process_is_dead(here: Yard) -> None:
    _, job, alone = suspect(here)
    os.kill(alone.pid, signal.SIGKILL)
    eventually(lambda: here.state(job) == State.DLQ, "it is dead")
    assert here.info(job).job.reason == "crashed 3 times"
    assert len(here.starts(job)) == 1
    assert f"event=SuspectDied pid={alone.pid} job_id={job}" in here.log


def test_a_suspect_survives_the_worker_that_took_it(here: Yard) -> None:
    _, job, alone = suspect(here)
    before = taker(here)
    assert before != alone.pid
    os.kill(before, signal.SIGKILL)
    assert taker(here) not in (before, alone.pid)
    here.open("go")
    here.done(job)
    assert len(here.starts(job)) == 1


def test_a_suspect_is_dead_if_its_process_dies_after_its_taker(here: Yard) -> None:
    _, job, alone = suspect(here, "--no-spare")
    os.kill(taker(here), signal.SIGKILL)
    taker(here)
    os.kill(alone.pid, signal.SIGKILL)
    eventually(lambda: here.state(job) == State.DLQ, "it is dead")
    assert len(here.starts(job)) == 1


def test_a_suspect_beyond_the_limit_waits_without_blame(here: Yard) -> None:
    """One process serves, so one suspect runs at once; the others are given back until it has ended."""
    jobs = here.enqueue("gate", 3, name="go")
    here.lose(times=2)
    here.start(*LONG)
    eventually(here.starts, "one runs")
    here.done(*here.enqueue("note"))
    assert len([line for line in here.starts() if line.job in jobs]) == 1
    here.open("go")
    here.done(*jobs)
    assert [len(here.starts(job)) for job in jobs] == [1, 1, 1]


def test_at_term_a_suspect_is_given_back_without_blame(here: Yard) -> None:
    program, job, alone = suspect(here, "--shutdown-timeout", "0.1")
    program.terminate()
    assert here.ended(program) == 0
    info = here.info(job)
    assert (info.state, info.job.attempts, info.job.lost) == ("ready", 0, 2)
    assert not exists(alone.pid)
