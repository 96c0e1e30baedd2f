"""What happened lately, as the points of a chart: executions, failures, run times and waiting times.

The store has a row for each minute and queue. Reading is bounded by the span and the number of queues; what is shown is
bounded to MAX_POINTS whatever the span.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from taskharbor.drivers.contract import Driver
from taskharbor.drivers.features import FIGURES, offers
from taskharbor.model.histogram import RAN, WAITED, merged, percentile
from taskharbor.model.job import Figures

SPANS = {"1h": timedelta(hours=1), "24h": timedelta(hours=24), "72h": timedelta(hours=72)}
DEFAULT_SPAN = "1h"
STEPS = {"1h": timedelta(minutes=1), "24h": timedelta(minutes=15), "72h": timedelta(hours=1)}
MAX_POINTS = 100


@dataclass(frozen=True)
class FigurePoint:
    """One step of a chart. Times are milliseconds; None where nothing ran."""

    at: datetime
    done: int = 0
    failed: int = 0
    dead: int = 0
    ran_p50: float | None = None
    ran_p95: float | None = None
    waited_p50: float | None = None
    waited_p95: float | None = None


@dataclass(frozen=True)
class FigureSeries:
    """The points of a span, and the same numbers for all of it."""

    span: str
    step: timedelta
    points: tuple[FigurePoint, ...]
    total: FigurePoint

    @property
    def executions(self) -> int:
        """How many executions ended."""
        return self.total.done + self.total.failed

    @property
    def failure_share(self) -> float | None:
        """The share of executions that failed, from 0 to 1; None without any."""
        return self.total.failed / self.executions if self.executions else None

    @property
    def per_minute(self) -> float:
        """Jobs done in a minute, on average."""
        return self.total.done / (SPANS[self.span].total_seconds() / 60)


async def read_figures(
    driver: Driver, now: datetime, span: str = DEFAULT_SPAN, queue: str | None = None
) -> FigureSeries | None:
    """The figures of a span that ends now; None for a store that keeps none. ValueError for an unknown span."""
    if span not in SPANS:
        raise ValueError(f"span: expected one of {', '.join(SPANS)}, got {span!r}")
    if not offers(driver, FIGURES):
        return None
    step = STEPS[span]
    since = _floor(now, step) - SPANS[span]
    rows = await driver.figures(since, _floor(now, step) + step, queue)  # type: ignore[attr-defined]  # it offers them
    return series_of(rows, span, since)


def series_of(rows: list[Figures], span: str, since: datetime) -> FigureSeries:
    """Rows of minutes as a series; steps without a row are zero.

    The step that is not over yet counts for the total and is not a point: a line that falls at its end looks like an
    outage.
    """
    step = STEPS[span]
    number = SPANS[span] // step
    by_step: dict[int, list[Figures]] = {}
    for row in rows:
        by_step.setdefault((row.minute - since) // step, []).append(row)
    points = tuple(_point(since + step * at, by_step.get(at, [])) for at in range(number))
    return FigureSeries(span, step, points, _point(since, rows))


def _point(at: datetime, rows: list[Figures]) -> FigurePoint:
    if not rows:
        return FigurePoint(at)
    counts = merged(rows)
    times = [percentile(counts, names, share) for names in (RAN, WAITED) for share in (0.5, 0.95)]
    return FigurePoint(at, counts.get("done", 0), counts.get("failed", 0), counts.get("dead", 0), *times)


def _floor(moment: datetime, step: timedelta) -> datetime:
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + (moment - midnight) // step * step
