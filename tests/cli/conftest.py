"""What the tests of the command line share."""

from pathlib import Path

import pytest


@pytest.fixture
def dsn(tmp_path: Path) -> str:
    """An SQLite file that is not there yet."""
    return f"sqlite:///{tmp_path}/jobs.db"
