"""Which function is the row of which scenario, and on which stores."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.survival.figures import Figures

Run = Callable[[str, Path], Figures]
DURABLE = ("sqlite", "postgres", "redis", "cluster")
SERVERS = ("postgres", "redis", "cluster")
ALL = ("memory", *DURABLE)


class Row(NamedTuple):
    """One scenario: `run(store, folder)` returns its figures, or raises what it found."""

    scenario: str
    run: Run
    stores: Sequence[str]
    seconds: int
    """About how long it takes at full size on one store: longer ones are begun first."""


ROWS: dict[str, Row] = {}


def row(scenario: str, stores: Sequence[str] = DURABLE, seconds: int = 60) -> Callable[[Run], Run]:
    def keep(run: Run) -> Run:
        assert scenario not in ROWS
        ROWS[scenario] = Row(scenario, run, stores, seconds)
        return run

    return keep


def load() -> dict[str, Row]:
    """All rows, in the order of the table."""
    from tests.survival import (  # noqa: F401 - importing them declares them
        rows_calls,
        rows_flow,
        rows_kills,
        rows_load,
        rows_network,
        rows_records,
        rows_store,
        rows_supervised,
    )

    return ROWS
