"""The program as a shell sees it."""

import subprocess
import sys

import pytest


def taskharbor(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "taskharbor", *arguments], capture_output=True, text=True, check=False)


def test_help_and_version() -> None:
    assert "conformance" in taskharbor("--help").stdout
    assert taskharbor("--version").stdout.startswith("taskharbor, version 0.")


def test_conformance_on_memory_passes() -> None:
    done = taskharbor("conformance", "--dsn", "memory://", "--theme", "pause")
    assert done.returncode == 0, done.stderr
    assert "0 failed" in done.stdout


@pytest.mark.parametrize("dsn", ["nonsense", "gopher://user:canary@host/x", "memory://?colour=canary"])
def test_a_bad_dsn_is_one_clear_line_without_secrets(dsn: str) -> None:
    done = taskharbor("conformance", "--dsn", dsn)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert "canary" not in done.stderr.replace("'colour'", "")
