"""Signals of every kind to the supervisor, again and again, in every phase: it ends with 0, and blames no job."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import lanes
from tests.supervisor.test_stop import LONG, given_back, stopping
from tests.supervisor.worker_run import PATIENCE, ROOT, Yard, children_of, eventually, exists

pytestmark = pytest.mark.left_to(
    "full",
    except_for=lanes.Chosen(
        "test_quit_gives_back_at_once[False]",
        "test_a_signal_while_the_application_is_imported",
        "test_a_signal_while_the_program_starts[click-15]",
        "test_a_signal_at_the_moment_of_ignoring_prints_no_error",
    ),
)

STOP = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]
OTHERS = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGPWR]


def ended_alone(yard: Yard, program: subprocess.Popen[bytes], workers: list[int]) -> None:
    assert yard.ended(program) == 0
    assert not any(map(exists, workers))
    assert "Traceback" not in yard.log


def test_an_unused_signal_is_logged_and_ends_nothing(here: Yard) -> None:
    [before] = here.enqueue("gate", name="go")
    program = here.start(*LONG)
    [line] = here.started(before)
    for number in OTHERS:
        for times in (1, 2):
            program.send_signal(number)
            eventually(lambda n=number, t=times: here.log.count(f"cause={n.name} expected=") >= t, "it was logged")  # type: ignore[misc]  # a default binds the loop's variable
    here.open("go")
    here.done(before, *here.enqueue("note"))
    assert len(here.starts(before)) == 1
    program.terminate()
    ended_alone(here, program, [line.pid])


@pytest.mark.parametrize("after_term", [False, True])
def test_quit_gives_back_at_once(here: Yard, after_term: bool) -> None:
    jobs = here.enqueue("gate", 2, name="never")
    program = here.start(*LONG, "--shutdown-timeout", "600")
    workers = [line.pid for line in here.started(*jobs)]
    if after_term:
        program.terminate()
        stopping(here)
    program.send_signal(signal.SIGQUIT)
    ended_alone(here, program, workers)
    given_back(here, *jobs)


@pytest.mark.parametrize("number", STOP)
def test_a_signal_while_the_application_is_imported(here: Yard, number: signal.Signals) -> None:
    program = here.start(*LONG, "--processes", "2", app="tests.processes.app_slow_import:harbor")
    eventually((here.folder / "importing").exists, "it is being imported")
    workers = children_of(program.pid)
    program.send_signal(number)
    ended_alone(here, program, workers)


@pytest.mark.parametrize("number", STOP)
def test_a_storm_of_signals_until_the_very_end(here: Yard, number: signal.Signals) -> None:
    """Also one that comes while the program closes changes neither its exit code nor what becomes of the jobs."""
    jobs = here.enqueue("gate", 2, name="never")
    program = here.start(*LONG, "--shutdown-timeout", "600")
    workers = [line.pid for line in here.started(*jobs)]
    while program.poll() is None:
        program.send_signal(number)
    ended_alone(here, program, workers)
    given_back(here, *jobs)


LATE = """
import sys, types
from taskharbor.worker.supervisor.signals import SupervisorSignals
sys.unraisablehook = lambda told: print(told.exc_value, file=sys.stderr)
signals = SupervisorSignals(print, print, print)
signals.take()
signals.end()
for text in ("Signal 15 ignored due to race condition", "another"):
    sys.unraisablehook(types.SimpleNamespace(exc_value=OSError(text)))
"""


def test_a_signal_at_the_moment_of_ignoring_prints_no_error() -> None:
    """Python prints that as an error, by the hook for errors that nobody can catch."""
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "another\n")


EARLY = """
import os, runpy, signal, sys
moment, number, *sys.argv[1:] = sys.argv[1:]

class AtImport:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), int(number))

sys.meta_path.insert(0, AtImport())
runpy.run_module("taskharbor", run_name="__main__")
"""


@pytest.mark.parametrize("number", STOP)
@pytest.mark.parametrize("moment", ["click", "taskharbor.worker.supervisor.signals"])
def test_a_signal_while_the_program_starts(tmp_path: Path, moment: str, number: signal.Signals) -> None:
    """Its first import, and its last one before the supervisor takes the signals."""
    command = [
        sys.executable,
        "-c",
        EARLY,
        moment,
        str(int(number)),
        "worker",
        "run",
        "--dsn",
        f"sqlite:///{tmp_path}/a.db",
    ]
    assert subprocess.run(command, cwd=ROOT, timeout=PATIENCE, capture_output=True, check=False).returncode == 0
