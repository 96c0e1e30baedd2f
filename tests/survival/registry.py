"""Which function is the row of which scenario, and on which stores."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.survival.figures import Figures

Run = Callable[[str, Path], Figures]
DURABLE = ("sqlite", "postgres", "redis", "cluster")
ALL = ("memory", *DURABLE)


class Row(NamedTuple):
    """One scenario on one store: `run(store, folder)` returns its figures, or raises what it found."""

    scenario: str
    store: str
    run: Run
    seconds: int
    """About how long it takes at full size on one store: longer ones are begun first."""
    elsewhere: bool = False
    """`make test` has the same tests in other lanes, or cannot afford it: here the row runs in `make chaos` only."""


ROWS: dict[tuple[str, str], Row] = {}


def row(
    scenario: str, stores: Sequence[str] = DURABLE, seconds: int = 60, elsewhere: bool = False
) -> Callable[[Run], Run]:
    """A scenario may have several functions, each for stores of its own."""

    def keep(run: Run) -> Run:
        for store in stores:
            assert (scenario, store) not in ROWS
            ROWS[scenario, store] = Row(scenario, store, run, seconds, elsewhere)
        return run

    return keep


def load() -> dict[tuple[str, str], Row]:
    """All rows, by scenario and store."""
    from tests.survival import (  # noqa: F401 - importing them declares them
        rows_calls,
        rows_elsewhere,
        rows_flow,
        rows_kills,
        rows_load,
        rows_network,
        rows_records,
        rows_store,
        rows_supervised,
    )

    return ROWS
