"""manage.py of the project in site/, as a process."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.in_django.environment import described, python

SITE = Path(__file__).parent / "site"
BACKEND = "taskharbor.django.TaskHarborBackend"
PATIENCE = 240  # seconds until a command counts as hanging; never a figure


def command(*arguments: str) -> list[str]:
    return [python(), "-W", "error::ResourceWarning", str(SITE / "manage.py"), *arguments]


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which only a test says where things are."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TASKHARBOR", "DJANGO", "PG"))}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", **environment}


def run(*arguments: str, **environment: str) -> str:
    """Run a command of manage.py, from another folder than its own; what it printed."""
    done = subprocess.run(
        command(*arguments), cwd="/", env=clean(environment), capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, f"{described()}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr
