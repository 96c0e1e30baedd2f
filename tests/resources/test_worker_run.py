"""`taskharbor worker run` with a lifespan: once in each process that serves, and a failure is one line."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.supervisor.worker_run import PATIENCE, ROOT, Yard, eventually, yard


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Yard]:
    with yard(f"sqlite:///{tmp_path}/jobs.db", tmp_path, "tests.resources.app:harbor") as made:
        yield made


def words(here: Yard) -> dict[int, list[str]]:
    """What each process wrote, in its order."""
    found: dict[int, list[str]] = {}
    for line in here.journal():
        found.setdefault(line.pid, []).append(line.word)
    return found


def test_each_process_enters_its_lifespan_once_and_a_spare_does_not(here: Yard) -> None:
    program = here.start("--processes", "2", "--concurrency", "1")
    eventually(lambda: here.log.count("event=ProcessStarted") == 2, "both serve")
    eventually(lambda: "event=ProcessWaiting" in here.log, "a spare waits")
    jobs = here.enqueue("here", 20)
    here.done(*jobs)
    program.send_signal(signal.SIGTERM)
    assert here.ended(program) == 0
    by_process = words(here)
    assert len(by_process) == 2
    for lines in by_process.values():
        assert (lines[0], lines[-1]) == ("enter", "leave")
        assert set(lines[1:-1]) <= {"run"}
    assert sum(Counter(lines)["run"] for lines in by_process.values()) == 20


def test_a_lifespan_that_fails_at_the_start_is_one_line_and_exit_code_1(here: Yard) -> None:
    here.open("fails")
    here.enqueue("here")
    done = subprocess.run(
        [sys.executable, "-m", "taskharbor", "worker", "run", "--dsn", here.dsn, "--app", here.app, "--processes", "2"],
        cwd=ROOT,
        env={**os.environ, "FOLDER": str(here.folder)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("taskharbor: ")]
    assert line.startswith("taskharbor: the lifespan resources failed at app.py:")
    assert "ConnectionError: cannot connect to postgresql://" in line
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr
    assert {word for lines in words(here).values() for word in lines} == {"enter"}
    assert len(words(here)) <= 2


@pytest.mark.left_to("full")
def test_a_lifespan_that_fails_later_is_tried_again_with_growing_pauses(here: Yard) -> None:
    """The processes served before: a database may be away for a while."""
    program = here.start("--no-spare", "--concurrency", "1")
    first = eventually(lambda: list(words(here)), "it serves")
    here.done(*here.enqueue("here"))
    here.open("fails")
    os.kill(first[0], signal.SIGKILL)
    eventually(lambda: here.log.count("event=ProcessDied") >= 4, "it failed three times more")
    pauses = [float(line.split("again_in=")[1].split()[0]) for line in here.log.splitlines() if "again_in=" in line]
    assert pauses[:2] == [0, 0]  # it had served, and the next might have
    assert pauses[3] > pauses[2] > 0
    assert here.log.count("the lifespan resources failed at app.py:") >= 2
    (here.folder / "fails").unlink()
    here.done(*here.enqueue("here"))
    program.send_signal(signal.SIGTERM)
    assert here.ended(program) == 0
