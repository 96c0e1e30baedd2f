"""`worker run`: a developer at a terminal sees tracebacks in colour; a log elsewhere shows nothing of a payload."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from taskharbor.cli.commands.worker import _log_options
from taskharbor.drivers import JobRecord
from tests.cli.shell import PATIENCE, Process, environment, store

CANARY = "canary-4111"
APP = """
from taskharbor import Harbor
harbor = Harbor({dsn!r})

@harbor.task(name="charge", max_attempts=1)
def charge(card: str) -> None:
    raise ConnectionError(f"declined {{card}}")
"""


@pytest.fixture
def app(tmp_path: Path, dsn: str) -> str:
    (tmp_path / "shop_to_log.py").write_text(APP.format(dsn=dsn))
    store(dsn, JobRecord(id="j1", type="charge", payload=f'{{"card": "{CANARY}"}}'.encode(), max_attempts=1))
    return "shop_to_log:harbor"


def on_a_terminal(app: str, folder: Path, *options: str, until: str, **environ: str) -> str:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "taskharbor", "worker", "run", "--no-spare", "--app", app, *options]
    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env=environment(COLUMNS="80", LINES="50", TERM="xterm-256color", **environ),
    ) as process:
        os.close(theirs)
        seen = b""
        try:
            while until.encode() not in seen:
                seen += os.read(ours, 65536)
        finally:
            process.terminate()
            process.wait(PATIENCE)
            os.close(ours)
    return seen.decode().replace("\r\n", "\n")


def test_a_terminal_gets_colours_and_the_frames_of_the_application(app: str, tmp_path: Path):
    seen = on_a_terminal(app, tmp_path, until="is dead")
    assert "\x1b[33mWARNING\x1b[0m" in seen
    assert f"ConnectionError: declined {CANARY}\n" in seen
    assert 'shop_to_log.py", line 7, in charge' in seen
    assert "taskharbor/worker" not in seen


def test_no_color_is_honoured(app: str, tmp_path: Path):
    seen = on_a_terminal(app, tmp_path, until="is dead", NO_COLOR="1")
    assert "\x1b[" not in seen
    assert " WARNING charge j1 failed after " in seen


@pytest.mark.parametrize("options", [["--log-errors", "class"], ["--log-format", "json"]])
def test_a_terminal_gets_no_text_if_it_asks_for_none(app: str, tmp_path: Path, options: list[str]):
    until = "is dead" if "json" not in options else "JobDeadLettered"
    assert CANARY not in on_a_terminal(app, tmp_path, *options, until=until)


@pytest.mark.parametrize(("options", "shown"), [([], False), (["--log-errors", "traceback"], True)])
def test_a_pipe_gets_a_payload_only_on_request(app: str, tmp_path: Path, options: list[str], shown: bool):
    with Process("worker", "run", "--no-spare", "--app", app, *options, cwd=str(tmp_path)) as process:
        process.wait_for("event=JobDeadLettered")
    assert (CANARY in process.seen) == shown
    assert "\x1b" not in process.seen


@pytest.mark.parametrize(
    ("format", "errors", "at_terminal", "expected"),
    [
        (None, None, False, ("text", "class")),
        (None, None, True, ("terminal", "traceback")),
        ("text", None, True, ("text", "traceback")),
        ("json", None, True, ("json", "class")),
        ("json", "traceback", False, ("json", "traceback")),
        ("terminal", None, False, ("terminal", "class")),
    ],
)
def test_what_is_chosen(format: str | None, errors: str | None, at_terminal: bool, expected: tuple[str, str]):
    assert tuple(_log_options(format, errors, at_terminal).values()) == expected
