"""What happened lately, as the points of a chart: executions, failures, run times and waiting times.

The store has a row for each minute and queue. Of more queues than MAX_ROWS allows for a span, the busiest are read, one
by one, and the series says how many. The steps of a span grow with it, so that a chart has at most 96 points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from taskharbor.drivers.base import Driver
from taskharbor.model.histogram import RAN, WAITED, merged, percentile
from taskharbor.model.job import Figures

SPANS = {"1h": timedelta(hours=1), "24h": timedelta(hours=24), "72h": timedelta(hours=72)}
DEFAULT_SPAN = "1h"
STEPS = {"1h": timedelta(minutes=1), "24h": timedelta(minutes=15), "72h": timedelta(hours=1)}
MAX_ROWS = 60_000  # read for one series
MAX_READ_QUEUES = 50  # one by one


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
    queues: int | None = None  # of how many queues; None: of all

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
    driver: Driver, now: datetime, span: str = DEFAULT_SPAN, queue: str | None = None, among: Sequence[str] = ()
) -> FigureSeries:
    """The figures of a span that ends now. ValueError for an unknown span.

    `queue`: of this one alone. `among`: all queues, the busiest first; if they have too many rows, some are read.
    """
    if span not in SPANS:
        raise ValueError(f"span: expected one of {', '.join(SPANS)}, got {span!r}")
    step = STEPS[span]
    since = _floor(now, step) - SPANS[span]
    until = _floor(now, step) + step
    most = MAX_ROWS // ((until - since) // timedelta(minutes=1))
    if queue is not None or len(among) <= most:
        return series_of(await driver.figures(since, until, queue), span, since)
    some = among[: min(most, MAX_READ_QUEUES)]
    rows = [row for name in some for row in await driver.figures(since, until, name)]
    return replace(series_of(rows, span, since), queues=len(some))


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
