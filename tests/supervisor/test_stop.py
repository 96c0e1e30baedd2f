"""The end: what has finished is settled, the rest is given back at once, nothing is blamed, and the exit code is 0.

Leases last ten minutes, so that what is ready at the end was given back.
"""

import os
import signal
import subprocess

import pytest

from tests import lanes
from tests.supervisor.worker_run import STORES, Yard, children_of, eventually, on

pytestmark = pytest.mark.left_to(
    "full",
    except_for=lanes.Chosen(
        "test_at_term_what_finishes_is_settled_and_the_rest_given_back[postgres]",
        "test_a_third_signal_kills_and_blames_no_job",
        "test_one_signal_to_the_whole_group_drains",
    ),
)

LONG = ("--lease", "600", "--heartbeat", "200")


def given_back(yard: Yard, *jobs: str) -> None:
    for job in jobs:
        info = yard.info(job)
        assert (info.state, info.job.attempts, info.job.lost) == ("ready", 0, 0)


def stopping(yard: Yard, times: int = 1) -> None:
    eventually(lambda: yard.log.count("event=SupervisorStopping") >= times, "it has received the signal")


def ended_well(yard: Yard, program: subprocess.Popen[bytes], workers: list[int]) -> None:
    assert yard.ended(program) == 0
    assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)
    assert "Traceback" not in yard.log


@on(*STORES)
def test_at_term_what_finishes_is_settled_and_the_rest_given_back(there: Yard) -> None:
    quick, slow = there.enqueue("gate", 2, name="go"), there.enqueue("gate", 2, name="never")
    program = there.start(*LONG, "--processes", "2", "--concurrency", "4", "--shutdown-timeout", "2")
    workers = [line.pid for line in there.started(*quick, *slow)]
    program.terminate()
    stopping(there)
    there.open("go")
    ended_well(there, program, workers)
    assert {there.state(job) for job in quick} == {"done"}
    given_back(there, *slow)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_gives_back_at_once(here: Yard, number: signal.Signals) -> None:
    jobs = here.enqueue("gate", 2, name="never")
    program = here.start(*LONG, "--shutdown-timeout", "600")
    workers = [line.pid for line in here.started(*jobs)]
    program.send_signal(number)
    stopping(here)
    program.send_signal(number)
    ended_well(here, program, workers)
    given_back(here, *jobs)


@on("redis")
def test_a_third_signal_kills_and_blames_no_job(there: Yard) -> None:
    [blocked] = there.enqueue("hold", seconds=600)
    program = there.start(*LONG, "--shutdown-timeout", "600")
    workers = [line.pid for line in there.started(blocked)]
    for times in (1, 2, 3):
        program.terminate()
        stopping(there, times)
    ended_well(there, program, workers)
    given_back(there, blocked)


def test_one_signal_to_the_whole_group_drains(here: Yard) -> None:
    """As systemd does it, and a terminal."""
    [quick], [slow] = here.enqueue("gate", name="go"), here.enqueue("gate", name="never")
    program = here.start(*LONG, "--no-spare", "--processes", "2", "--shutdown-timeout", "2")
    here.started(quick, slow)
    workers = children_of(program.pid)
    assert len(workers) == 2
    for pid in (program.pid, *workers):
        os.kill(pid, signal.SIGTERM)
    stopping(here)
    here.open("go")
    ended_well(here, program, workers)
    assert here.state(quick) == "done"
    given_back(here, slow)


def test_a_process_that_receives_term_itself_drains_and_is_replaced(here: Yard) -> None:
    [job] = here.enqueue("gate", name="go")
    program = here.start(*LONG)
    [line] = here.started(job)
    os.kill(line.pid, signal.SIGTERM)
    here.open("go")
    here.done(job)
    [note] = here.enqueue("note")
    here.done(note)
    assert here.starts(note)[0].pid != line.pid
    assert len(here.starts(job)) == 1
    program.terminate()
    assert here.ended(program) == 0


def test_a_program_that_a_thread_keeps_alive_ends_all_the_same(here: Yard) -> None:
    [job] = here.enqueue("note")
    program = here.start("--shutdown-timeout", "0", module="tests.supervisor.never_exits")
    here.done(job)
    program.terminate()
    assert here.ended(program) == 0
