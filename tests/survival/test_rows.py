"""Every row of the table in docs/reliability.md: small in `make test`, at full size in `make chaos`."""

import tempfile
from pathlib import Path

import pytest

from tests import lanes
from tests.survival.figures import record
from tests.survival.registry import load
from tests.survival.stores import folder_for_files

ROWS = load()
EACH_TIME = lanes.Chosen(
    *("kill-points-postgres", "zombie-sqlite", "chords-cluster", "cut-replies-redis"),
    *("idempotent-race-postgres", "full-redis"),
)
"""Kills, stopped workers, joins, lost replies, races, no room. The others run in `make full`; `make chaos` runs all at
full size."""


def cells(elsewhere: bool) -> list[tuple[str, str]]:
    return [cell for cell, row in ROWS.items() if row.elsewhere is elsewhere]


def run(scenario: str, store: str) -> None:
    with tempfile.TemporaryDirectory(dir=folder_for_files(), prefix="th-row-") as folder:
        figures = ROWS[scenario, store].run(store, Path(folder))
    assert (figures.lost, figures.unexplained) == (0, 0)
    assert figures.jobs > 0 or figures.note
    record(scenario, store, figures)
    if lanes.run() != "test":
        print(figures)


@pytest.mark.timeout(3600)
@pytest.mark.left_to("full", except_for=EACH_TIME)
@pytest.mark.parametrize(("scenario", "store"), cells(elsewhere=False), ids=lambda word: word)
def test_row(scenario: str, store: str) -> None:
    run(scenario, store)


@pytest.mark.timeout(3600)
@pytest.mark.left_to("chaos")
@pytest.mark.parametrize(("scenario", "store"), cells(elsewhere=True), ids=lambda word: word)
def test_row_of_another_lane(scenario: str, store: str) -> None:
    run(scenario, store)
