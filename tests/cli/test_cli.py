"""The program as a shell sees it."""

import subprocess
import sys
from pathlib import Path

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


def test_migrate_creates_a_schema_and_may_be_run_again(tmp_path: Path) -> None:
    for _ in range(2):
        done = taskharbor("migrate", "--dsn", f"sqlite:///{tmp_path}/jobs.db")
        assert (done.returncode, done.stdout) == (0, "the schema is up to date\n"), done.stderr
    assert (tmp_path / "jobs.db").exists()


def test_migrate_where_there_is_nothing_to_migrate() -> None:
    done = taskharbor("migrate", "--dsn", "memory://")
    assert done.returncode == 2
    assert "migrate" in done.stderr
    assert "Traceback" not in done.stderr
