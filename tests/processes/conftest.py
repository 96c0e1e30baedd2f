"""Worker processes on SQLite: what is tested here does not depend on the store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.supervisor.worker_run import Yard, yard


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Yard]:
    with yard(f"sqlite:///{tmp_path}/jobs.db", tmp_path, app="tests.processes.app:harbor") as made:
        yield made
