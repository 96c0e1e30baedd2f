"""A user's mistakes are one clear line and exit code 2; a store that is away is waited for; no secret is ever shown."""

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests import lanes
from tests.supervisor.worker_run import PATIENCE, Yard, eventually


def run(*options: str, cwd: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "taskharbor", "worker", "run", *options],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


MISTAKES = {
    "no colon": (["--app", "tasks"], "expected module:name"),
    "no module": (["--app", "nowhere:harbor"], "no module 'nowhere'"),
    "no such name": (["--app", "ours:ship"], "found nothing"),
    "no Harbor": (["--app", "ours:number"], "found a int"),
    "a module that raises": (["--app", "broken:harbor"], "broken.py:1: ZeroDivisionError"),
    "a module that leaves": (["--app", "leaving:harbor"], "ended the process"),
    "a path": (["--app", "../x:harbor"], "../x"),
    "memory, many": (["--processes", "2", "--dsn", "memory://"], "lives inside one process"),
    "memory of an app, many": (["--processes", "2", "--app", "ours:harbor"], "lives inside one process"),
    "no such driver": (["--dsn", "gopher://x:canary@y/z"], "no driver for gopher://"),
    "driver and DSN": (["--driver", "postgres", "--dsn", "sqlite:///x.db"], "contradicts"),
    "a heartbeat too slow": (["--dsn", "sqlite:///x.db", "--lease", "5", "--heartbeat", "4"], "--heartbeat: expected"),
    "no queue": (["--dsn", "sqlite:///x.db", "--queues", ","], "expected queue names"),
    "a size": (["--dsn", "sqlite:///x.db", "--max-memory", "much"], "expected a size"),
    "a newer schema": (["--dsn", "sqlite:///newer.db"], "upgrade TaskHarbor here as well"),
}


@pytest.mark.left_to("full", except_for=lanes.Chosen("no module"))
@pytest.mark.parametrize("case", MISTAKES)
def test_a_usage_error_is_one_clear_line(case: str, tmp_path: Path) -> None:
    options, expected = MISTAKES[case]
    (tmp_path / "ours.py").write_text("from taskharbor import Harbor\nharbor, number = Harbor('memory://'), 5\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "leaving.py").write_text("raise SystemExit(3)\n")
    with closing(sqlite3.connect(tmp_path / "newer.db")) as newer:
        newer.executescript(
            "CREATE TABLE taskharbor_meta (version INTEGER, oldest INTEGER);"
            "INSERT INTO taskharbor_meta VALUES (999, 999)"
        )
    code, said = run(*options, cwd=tmp_path)
    assert code == (3 if case == "a newer schema" else 2), said
    assert len(said.splitlines()) == 1, said
    assert said.startswith("taskharbor: ")
    assert expected in said
    assert "canary" not in said


def test_a_store_that_is_away_is_waited_for_and_its_password_stays_secret(here: Yard) -> None:
    program = here.start(dsn="postgresql://user:canary@127.0.0.1:1/jobs?connect_timeout=2", app=None)
    eventually(lambda: "event=StoreLost" in here.log, "the outage is logged")
    assert program.poll() is None
    program.send_signal(signal.SIGTERM)
    assert here.ended(program) == 0
    assert "Connection refused" in here.log
    assert "canary" not in here.log
    assert "Traceback" not in here.log


def test_without_an_app_the_builtin_tasks_run(here: Yard) -> None:
    [echo], [sleep] = here.enqueue("echo", text="hello", more=[1]), here.enqueue("sleep", seconds=0.01)
    [fail] = here.enqueue("fail", reason="canary")
    here.start("--log-format", "json", app=None)
    here.done(echo, sleep)
    assert here.info(echo).job.result == b'{"text":"hello","more":[1]}'
    eventually(lambda: here.info(fail).job.attempts > 0, "it failed")
    assert "canary" in here.info(fail).job.last_error
    assert "canary" not in here.log
    assert all(line.startswith("{") and line.endswith("}") for line in here.log.splitlines())
