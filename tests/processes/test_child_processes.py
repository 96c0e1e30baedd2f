"""process=True: what a child has started ends with it, what its threads say arrives, what it raises stays as it is."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from taskharbor.events import JobProgress
from taskharbor.model.job import State
from taskharbor.policy.retry import Fixed
from tests import lanes
from tests.processes import unpicklable_errors
from tests.processes.app import talks, talks_on
from tests.supervisor.test_stop import LONG
from tests.supervisor.worker_run import PATIENCE, ROOT, Yard, eventually, exists, yard
from tests.worker.workbench import Bench, bench_test, job

pytestmark = pytest.mark.left_to(
    "full",
    except_for=lanes.Chosen(
        "test_what_a_child_has_started_ends_with_a_cancelled_job",
        "test_what_a_child_has_started_ends_with_a_killed_worker[wait]",
        "test_a_script_without_a_guard_is_refused_and_does_nothing_twice[pass]",
        "test_threads_of_a_child_may_report_progress_at_once",
        "test_progress_of_a_job_that_has_ended_is_not_that_of_the_next",
        "test_an_exception_that_is_hard_to_pickle_keeps_its_type",
    ),
)


def left(yard: Yard) -> list[tuple[int, int]]:
    """The children that have started something, and what."""
    lines = [line for line in yard.journal() if line.word.startswith("left:")]
    return [(line.pid, int(line.word.removeprefix("left:"))) for line in lines]


def begun(yard: Yard, task: str = "leaves_program", *options: str, **payload: Any) -> tuple[int, int, str]:
    [job_id] = yard.enqueue(task, **payload)
    yard.start(*LONG, *options)
    [(child, program)] = eventually(lambda: left(yard), "it has started its program")
    return child, program, job_id


def gone(*pids: int) -> None:
    eventually(lambda: not any(map(exists, pids)), "all of them are gone")


def test_what_a_child_has_started_ends_with_the_worker(here: Yard) -> None:
    child, program, _ = begun(here, then="wait")
    here.programs[0].send_signal(signal.SIGQUIT)
    assert here.ended(here.programs[0]) == 0
    gone(child, program)


def test_what_a_child_has_started_ends_with_a_cancelled_job(here: Yard) -> None:
    [job_id] = here.enqueue("leaves_program", then="wait")
    here.start("--lease", "3", "--heartbeat", "0.3")
    [(child, program)] = eventually(lambda: left(here), "it has started its program")
    here.client.handle(job_id).cancel()
    gone(child, program)


@pytest.mark.parametrize("then", ["wait", "hold"])
def test_what_a_child_has_started_ends_with_a_killed_worker(here: Yard, then: str) -> None:
    """Also one that cannot notice it, because it holds its interpreter."""
    child, program, _ = begun(here, then=then)
    worker = int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(worker, signal.SIGKILL)
    gone(child, program)


@pytest.mark.parametrize(("task", "payload"), [("leaves_program", {"then": "die"}), ("leaves_fork", {})])
def test_the_death_of_a_child_is_noticed_even_if_its_pipe_stays_open(
    here: Yard, task: str, payload: dict[str, str]
) -> None:
    child, program, job_id = begun(here, task, **payload)
    eventually(lambda: here.info(job_id).job.attempts, "its death is noticed")
    assert "signal 9" in here.info(job_id).job.last_error
    gone(child, program)


# In a program of its own

TASKS = """
import os, subprocess, sys, time
from taskharbor import Harbor, JobContext
harbor = Harbor(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///jobs.db")
"""
STARTER = """
@harbor.task(process=True, max_attempts=1, timeout={timeout})
def starts():
    program = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    print(os.getpid(), program.pid, flush=True)
    program.wait()

if __name__ == "__main__":
    starts.enqueue()
    harbor.worker().run(until_empty=True)
    print("ended", flush=True)
"""


def program(folder: Path, text: str) -> "subprocess.Popen[str]":
    (folder / "main.py").write_text(TASKS + text)
    return subprocess.Popen(
        [sys.executable, "main.py", f"sqlite:///{folder}/jobs.db"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_what_a_child_has_started_ends_with_the_program(tmp_path: Path) -> None:
    with program(tmp_path, STARTER.format(timeout=600)) as running:
        assert running.stdout is not None
        pids = [int(each) for each in running.stdout.readline().split()]
        running.kill()
        gone(*pids)


def test_what_a_child_has_started_ends_at_its_timeout(tmp_path: Path) -> None:
    for seconds in (2, 10, 40):  # a busy machine may need longer to start it at all
        with program(tmp_path, STARTER.format(timeout=seconds)) as running:
            said, _ = running.communicate(timeout=PATIENCE)
        *started, ended = said.split()
        assert ended == "ended"
        if started:
            return gone(*map(int, started))
    pytest.fail("it was never started")


@pytest.mark.parametrize("first", ["double.enqueue(21)", "pass"])
def test_a_script_without_a_guard_is_refused_and_does_nothing_twice(tmp_path: Path, first: str) -> None:
    """With the enqueue in the script, and with a script that only works."""
    text = f"""
@harbor.task(process=True, max_attempts=5)
def double(value: int) -> int:
    return 2 * value

print("begins", flush=True)
{first}
harbor.worker().run(until_empty=True)
"""
    with yard(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as store:
        if first == "pass":
            store.enqueue("main.double", value=21)
        with program(tmp_path, text) as running:
            out, error = running.communicate(timeout=PATIENCE)
        assert (running.returncode, out.count("begins")) == (0, 2), error  # the program, and the child that was refused
        jobs = store.jobs()
    assert [(each.state, each.job.attempts) for each in jobs] == [(State.DLQ, 1)]
    assert "if __name__ ==" in (jobs[0].job.reason or "")
    assert "main.py" in error
    assert "while a child process imports the program's main script" in error


def test_a_child_that_hangs_at_its_start_blocks_no_other_job(tmp_path: Path) -> None:
    """Its job has more arguments than a pipe takes, so that sending them waits for it; the worker does not."""
    text = """
if __name__ != "__main__":
    time.sleep(600)

@harbor.task(process=True, max_attempts=1, timeout=1)
def large(text: str): ...

@harbor.task
def other(): ...

if __name__ == "__main__":
    first = large.enqueue("x" * 1_000_000)
    worker = harbor.worker()
    second = other.options(delay=2).enqueue()
    import threading
    def look():
        print(second.result(60), first.status(), flush=True)
        worker.stop()
    threading.Thread(target=look).start()
    worker.run()
"""
    with program(tmp_path, text) as running:
        out, error = running.communicate(timeout=PATIENCE)
    assert (running.returncode, out.split()) == (0, ["None", "dlq"]), error


# What it says and raises


@bench_test
async def test_threads_of_a_child_may_report_progress_at_once(bench: Bench) -> None:
    worker = bench.worker(concurrency=1)
    worker.register("talks", talks.function, process=True)
    await bench.enqueue(job("a", "talks", payload=b'{"threads":4}'))
    await worker.arun(until_empty=True)
    assert await bench.state("a") == "done"
    notes = [event.note for event in bench.of(JobProgress)]
    assert len(notes) == 80
    assert all(note.startswith("a ") and len(note) > 100_000 for note in notes)


@bench_test
async def test_progress_of_a_job_that_has_ended_is_not_that_of_the_next(bench: Bench) -> None:
    worker = bench.worker(concurrency=1)
    worker.register("talks_on", talks_on.function, process=True)
    await bench.enqueue(*[job(name, "talks_on") for name in "abc"])
    await worker.arun(until_empty=True)
    assert [await bench.state(name) for name in "abc"] == ["done"] * 3
    assert all(event.note == event.job.id for event in bench.of(JobProgress))


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("name", unpicklable_errors.ODD)
@bench_test
async def test_an_exception_that_is_hard_to_pickle_keeps_its_type(bench: Bench, name: str, final: bool) -> None:
    worker = bench.worker(retry=Fixed(0))
    kinds = (unpicklable_errors.ODD[name],) if final else ()
    worker.register("t", unpicklable_errors.raises, process=True, unrecoverable=kinds)
    await bench.enqueue(job("j", max_attempts=2, payload=json.dumps({"name": name}).encode()))
    await worker.arun(until_empty=True)
    record = (await bench.info("j")).job
    assert record.attempts == (1 if final else 2)
    assert f"{name}: it went wrong" in record.last_error
    assert "unpicklable_errors.py" in record.last_error or name == "Noteless"
