"""`taskharbor dashboard`: refuses what would be open, prints a link that works once, and ends at Ctrl-C."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from taskharbor import Harbor
from tests.cli.shell import Answer, taskharbor


@pytest.fixture
def dsn(tmp_path: Path) -> str:
    found = f"sqlite:///{tmp_path}/jobs.db"
    with Harbor(found) as harbor:
        harbor.counts()
    return found


def refused(*arguments: str, environment: dict[str, str] | None = None) -> Answer:
    """The command in this process, which refuses before it listens."""
    return taskharbor("dashboard", *arguments, environment=environment)


def test_a_host_that_others_reach_needs_a_token_or_an_access_function(dsn: str, tmp_path: Path):
    answer = refused("--dsn", dsn, "--host", "0.0.0.0")
    assert answer.code == 2
    assert "--token-file" in answer.err
    (tmp_path / "short").write_text("short")
    assert "at least 32" in refused("--dsn", dsn, "--token-file", str(tmp_path / "short")).err
    assert "cannot be read" in refused("--dsn", dsn, "--token-file", str(tmp_path / "none")).err
    assert "at least 32" in refused("--dsn", dsn, environment={"TASKHARBOR_DASHBOARD_TOKEN": "short"}).err
    assert "expected module:name, for example web.auth:access" in refused("--dsn", dsn, "--access", "nothing").err
    assert "expected a function" in refused("--dsn", dsn, "--access", "os:sep").err


def test_a_store_that_is_not_there_is_not_created(tmp_path: Path):
    missing = refused("--dsn", f"sqlite:///{tmp_path}/none.db")
    assert missing.code == 3
    assert not (tmp_path / "none.db").exists()
    assert "memory://" in refused("--driver", "memory").err


def test_the_link_works_once_and_ctrl_c_ends_it(dsn: str):
    command = [sys.executable, "-m", "taskharbor", "dashboard", "--dsn", dsn, "--port", "0", "--secure-cookie"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/login\?key=\S+", process.stdout.readline())
            assert found is not None
            link = found.group()
            base = link.partition("/login")[0]
            with httpx.Client(base_url=base, timeout=30) as browser:
                assert browser.get("/").status_code == 303
                assert browser.get("/", headers={"host": "evil.example"}).status_code == 403
                came = browser.get(link)
                assert came.status_code == 200
                assert "Secure" in came.headers["set-cookie"].split("; ")
                session = came.headers["set-cookie"].partition(";")[
                    0
                ]  # as a browser behind a proxy with https sends it
                browser.headers["cookie"] = session
                assert browser.get("/").status_code == 200
                assert httpx.get(link, timeout=30).status_code == 403
                with browser.stream("GET", "/events") as events:
                    assert next(events.iter_lines()) == "retry: 2000"
                    process.send_signal(signal.SIGINT)
                    assert process.wait(30) in (0, 130)
        finally:
            if process.poll() is None:
                process.kill()
