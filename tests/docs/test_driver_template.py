"""The driver template passes the suite as it stands, and keeps the protocol as mypy reads it."""

import os
import subprocess
import sys
from pathlib import Path

TEMPLATE = Path(__file__).resolve().parents[2] / "examples" / "driver_template"


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=TEMPLATE,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_template_passes_the_suite(tmp_path):
    quiet = {"PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path)}
    done = run("pytest", "-q", "-p", "no:cacheprovider", "tests", TASKHARBOR_MACHINE_RUNS="10", **quiet)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


def test_the_template_keeps_the_protocol(tmp_path):
    check = tmp_path / "check.py"
    check.write_text(
        "from taskharbor.drivers import Driver\n"
        "from taskharbor_mystore import MyStoreDriver\n\n"
        'driver: Driver = MyStoreDriver("mystore://x")\n'
    )
    done = run("mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(check), MYPYPATH="src")
    assert done.returncode == 0, done.stdout + done.stderr
