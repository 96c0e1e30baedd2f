"""`taskharbor worker run` on a store that stands still: it ends in the time that docs/operations.md promises."""

import re
import signal
import time
from pathlib import Path

import pytest

from tests import lanes
from tests.stall.stores import Store, store
from tests.supervisor.worker_run import ROOT, eventually, yard

__all__ = ["store"]
GRACE = 1
SLACK = 5.0  # seconds for a busy machine


def promised() -> float:
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    found = re.search(r"at most `--shutdown-timeout` and (\d+) s more, even if the store does not respond", text)
    assert found is not None
    return float(found[1])


@pytest.mark.left_to("full")
@pytest.mark.parametrize("signals", [1, 2])
def test_it_ends_while_a_handler_runs(store: Store, signals: int, tmp_path: Path) -> None:
    """Its handler waits for a file that never comes, so there is a job to give back, and the store does not take it."""
    with yard(store.dsn, tmp_path, app="tests.processes.app:harbor") as here:
        program = here.start("--shutdown-timeout", str(GRACE), "--lease", "10")
        [job] = here.enqueue("gate", name="never")
        here.started(job)
        eventually(lambda: "event=SupervisorServing" in here.log, "it serves")
        with store.still():
            begun = time.monotonic()
            program.terminate()
            if signals == 2:
                eventually(lambda: "event=SupervisorStopping" in here.log, "it has received the first signal")
                program.send_signal(signal.SIGINT)
            assert here.ended(program) == 0
            took = time.monotonic() - begun
    if lanes.run() == "full":
        assert took < GRACE + promised() + SLACK
