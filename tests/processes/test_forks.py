"""Handlers that fork: what they do to their children reaches the children, and never the worker."""

import os
import signal
import subprocess
import sys

import pytest

from tests import lanes
from tests.processes.app import INTERRUPTED, WAYS
from tests.supervisor.worker_run import PATIENCE, ROOT, Yard

pytestmark = pytest.mark.left_to(
    "full", except_for=lanes.Chosen("test_a_program_with_a_worker_survives_the_signals_of_its_children")
)

CODES = dict.fromkeys(WAYS, -signal.SIGTERM) | {"interrupted": -signal.SIGINT}
IN_A_PROGRAM = CODES | {"interrupted": INTERRUPTED}  # where INT is what Python makes of it


@pytest.mark.parametrize("way", WAYS)
def test_a_handler_that_ends_its_children_ends_them_alone(here: Yard, way: str) -> None:
    program = here.start("--shutdown-timeout", "5")
    job = here.enqueue("ends_children", way=way)[0]
    here.done(job)
    assert set(here.client.handle(job).result()) == {CODES[way]}
    [after] = here.enqueue("note")
    here.done(after)
    assert "event=WorkerStopping" not in here.log
    program.terminate()
    assert here.ended(program) == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_program_with_a_worker_survives_the_signals_of_its_children(here: Yard, way: str) -> None:
    """The second job is taken after the first has ended, so a worker that was stopped meanwhile would leave it."""
    first, second = here.enqueue("ends_children", way=way)[0], here.enqueue("note")[0]
    script = (
        "from tests.processes.app import harbor; import sys\n"
        "harbor._store.use(sys.argv[1])\n"
        "harbor.worker(concurrency=1).run(until_empty=True)"
    )
    subprocess.run(
        [sys.executable, "-c", script, here.dsn],
        cwd=ROOT,
        env={**os.environ, "FOLDER": str(here.folder)},
        check=True,
        timeout=PATIENCE,
    )
    assert (here.state(first), here.state(second)) == ("done", "done")
    assert set(here.client.handle(first).result()) == {IN_A_PROGRAM[way]}
