"""Processes that nobody waits for any more: retired ones that do not exit, and those whose supervisor is gone."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests import lanes
from tests.supervisor.test_stop import LONG
from tests.supervisor.worker_run import PATIENCE, ROOT, Yard, eventually, exists

pytestmark = pytest.mark.left_to(
    "full",
    except_for=lanes.Chosen(
        "swallow",
        "test_the_kernel_ends_an_orphan_whose_interpreter_is_held",
    ),
)


def test_a_process_that_has_retired_and_does_not_exit_is_killed(here: Yard) -> None:
    """An application with a thread that never ends would keep every process that --max-jobs has replaced."""
    program = here.start(*LONG, "--max-jobs", "1")
    jobs = [here.enqueue("linger", way=way)[0] for way in ("a thread", "an atexit function")]
    old = [line.pid for line in here.started(*jobs)]
    assert len(set(old)) == 2
    eventually(lambda: not any(map(exists, old)), "they are gone")
    here.done(*jobs)
    assert here.log.count("event=ProcessKilled") == 2
    program.terminate()
    assert here.ended(program) == 0


@pytest.mark.parametrize(("task", "payload"), [("swallow", {}), ("linger", {"way": "a thread"})])
def test_a_worker_ends_after_its_supervisor_was_killed(here: Yard, task: str, payload: dict[str, Any]) -> None:
    program = here.start(*LONG, "--shutdown-timeout", "0.1")
    [line] = here.started(*here.enqueue(task, **payload))
    os.kill(program.pid, signal.SIGKILL)
    program.wait()
    eventually(lambda: not exists(line.pid), "it is gone")


# Where no Python runs

PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
ARM = """
import ctypes, os, signal, sys
from taskharbor.worker.supervisor import process_end
process_end._arm({seconds})
print(os.getpid(), flush=True)
"""
HOLD = "ctypes.PyDLL(None).sleep(600)"
DISARM = "sys.stdin.read(); process_end.disarm(); print(*signal.getitimer(signal.ITIMER_REAL), flush=True)"


@contextmanager
def orphan(seconds: int, then: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A process that should end `seconds` after its parent, which was killed."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, ARM.format(seconds=seconds) + then],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        try:
            yield pid, parent
        finally:
            if exists(pid):
                os.kill(pid, signal.SIGKILL)


def test_the_kernel_ends_an_orphan_whose_interpreter_is_held() -> None:
    with orphan(2, HOLD) as (pid, _):
        eventually(lambda: not exists(pid), "it is gone")


def test_the_kernel_does_not_end_an_orphan_that_runs_python() -> None:
    with orphan(60, DISARM) as (_, parent):
        answer, _ = parent.communicate(timeout=PATIENCE)
        assert answer == "0.0 0.0\n"
