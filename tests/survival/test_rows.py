"""Every row of the table in docs/reliability.md: small in `make test`, at full size in `make chaos`."""

import tempfile
from pathlib import Path

import pytest

from tests import lanes
from tests.survival.figures import record
from tests.survival.registry import load
from tests.survival.stores import on_disk

CELLS = [(row.scenario, store) for row in load().values() for store in row.stores]


@pytest.mark.timeout(3600)
@pytest.mark.rotates(7)
@pytest.mark.parametrize(("scenario", "store"), CELLS, ids=[f"{scenario}@{store}" for scenario, store in CELLS])
def test_row(scenario: str, store: str) -> None:
    found = load()[scenario]
    with tempfile.TemporaryDirectory(dir=on_disk(), prefix="th-row-") as folder:
        figures = found.run(store, Path(folder))
    assert (figures.lost, figures.unexplained) == (0, 0)
    assert figures.jobs > 0
    record(scenario, store, figures)
    if lanes.run() != "test":
        print(figures)
