"""The tests of a Django project (site/), run by Django itself: on SQLite in memory, on a file and on PostgreSQL."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path


from tests.django.environment import described, python
from tests.servers import postgres

SITE = Path(__file__).parent / "site"
PATIENCE = 240  # seconds until a command counts as hanging; never a figure


def run(*arguments: str, **environment: str) -> str:
    """Run manage.py; what it printed."""
    done = subprocess.run(
        [python(), "-W", "error::ResourceWarning", "manage.py", *arguments],
        cwd=SITE,
        env=clean(environment),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, f"{described()}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TASKHARBOR", "DJANGO", "PG"))}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", **environment}


def test_in_memory() -> None:
    assert "OK" in run("test", SITE_DATABASE=":memory:")


def test_a_file(tmp_path: Path) -> None:
    connections = json.dumps({"TEST": {"NAME": str(tmp_path / "test.sqlite3")}})
    run("test", "shop.tests.test_transactions", SITE_DATABASE=str(tmp_path / "db"), SITE_CONNECTIONS=connections)


def test_postgres() -> None:
    assert "OK" in run("test", SITE_DATABASE=postgres.shared().address(postgres.shared().database()))
