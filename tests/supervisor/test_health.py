"""What probes see: alive, and "polled successfully within N seconds"; by file, by port, by command."""

import json
import os
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from taskharbor.cli.main import main
from tests import lanes
from tests.servers.ports import free_port
from tests.supervisor.worker_run import Yard, eventually

pytestmark = pytest.mark.left_to(
    "full",
    except_for=lanes.Chosen(
        "test_port_and_file_report_whether_the_store_was_polled", "test_a_stale_health_file_is_not_trusted"
    ),
)


def get(port: int, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
    except OSError:
        return 0, {}


def health(*options: str) -> tuple[int, str]:
    """The command, in this process; test_deploy_files.py runs it as one of its own."""
    done = CliRunner().invoke(main, ["worker", "health", *options])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, done.output


def test_port_and_file_report_whether_the_store_was_polled(here: Yard) -> None:
    port, file = free_port(), str(here.folder / "health")
    program = here.start("--health-port", str(port), "--health-file", file, "--health-within", "3", "--processes", "2")
    eventually(lambda: get(port, "/ready")[0] == 200, "it is ready")
    status, report = get(port, "/live")
    assert (status, report["ok"], report["state"], report["pid"]) == (200, True, "running", program.pid)
    assert sorted(each["process"] for each in report["processes"]) == [0, 1]
    eventually(lambda: here.health().get("ok"), "so says the file")
    assert here.health()["processes"][0].keys() == report["processes"][0].keys()
    assert get(port, "/health")[0] == get(port, "/")[0] == 200
    assert get(port, "/nothing")[0] == 404
    assert health("--port", str(port))[0] == health("--file", file)[0] == 0

    pid = report["processes"][0]["pid"]
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: get(port, "/ready")[0] == 503, "a process that does not poll makes it unready")
    assert get(port, "/live")[0] == 200
    eventually(lambda: here.health()["ok"] is False, "so says the file")
    assert health("--port", str(port))[0] == health("--file", file)[0] == 1
    assert health("--port", str(port), "--live")[0] == 0
    os.kill(pid, signal.SIGCONT)
    eventually(lambda: get(port, "/ready")[0] == 200, "it polls again")

    program.terminate()
    assert here.ended(program) == 0
    assert not Path(file).exists()
    code, said = health("--file", file)
    assert code == 1
    assert "--health-file" in said
    assert health("--port", str(port))[0] == 1


def test_a_port_that_is_taken_is_one_clear_line(here: Yard) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        program = here.start("--health-port", str(other.getsockname()[1]))
        assert here.ended(program) == 2
    assert here.log.startswith("taskharbor: --health-port")
    assert here.log.endswith(": Address already in use\n")
    assert len(here.log.splitlines()) == 1


def test_an_unwritable_health_file_refuses_the_start_but_later_ends_nothing(here: Yard) -> None:
    folder = here.folder / "probes"
    program = here.start("--health-file", str(folder / "health"))
    assert here.ended(program) == 2
    assert here.log == f"taskharbor: --health-file {folder}/health: No such file or directory\n"
    folder.mkdir()
    program = here.start("--health-file", str(folder / "health"))
    eventually((folder / "health").exists, "it is written")
    folder.rename(here.folder / "away")
    eventually(lambda: f"--health-file {folder}/health: No such file" in here.log.split("\n", 1)[1], "it is logged")
    [job] = here.enqueue("note")
    here.done(job)
    program.terminate()
    assert here.ended(program) == 0


def test_a_stale_health_file_is_not_trusted(tmp_path: Path) -> None:
    file = tmp_path / "health"
    file.write_text('{"ok": true}')
    assert health("--file", str(file))[0] == 0
    os.utime(file, (0, 0))
    assert health("--file", str(file))[0] == 1
    file.write_text("nonsense")
    assert health("--file", str(file))[0] == 1
    assert health()[0] == 2
