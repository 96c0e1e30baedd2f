"""`demo --dashboard` leaves no process behind, however it is ended."""

import signal
from pathlib import Path

import pytest

from tests.cli.shell import PATIENCE, Process, looking_again


def children(pid: int) -> list[int]:
    """The processes below this one, as Linux lists them."""
    try:
        own = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
    return own + [each for child in own for each in children(child)]


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
@pytest.mark.may_skip("needs /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_no_worker_is_left_behind(tmp_path: Path, number: signal.Signals):
    with Process("demo", "--dashboard", "--port", "0", "--folder", str(tmp_path)) as demo:
        demo.wait_for("Ctrl-C ends the dashboard")
        started = looking_again(
            lambda: found if len(found := children(demo.process.pid)) >= 3 else None, "the workers have started"
        )
        demo.process.send_signal(number)
        assert demo.process.wait(PATIENCE) == 0
        looking_again(lambda: not any(map(runs, started)) or None, "all of them have ended")
