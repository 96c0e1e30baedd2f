"""From samples to figures: medians, ratios round by round, and the aims.

Rates are jobs for each second of processor time. Every subject but the latency keeps one core busy from its beginning
to its end, so on a machine that does nothing else this is what the wall clock says; on one that does, it is what the
subject itself is answerable for. The wall clock's rates stand beside them.
"""

from __future__ import annotations

from statistics import median, quantiles

import msgspec

from bench.rounds import Samples
from bench.sample import Sample


class Figure(msgspec.Struct, frozen=True):
    """A median and how far the rounds lie apart."""

    median: float
    least: float
    most: float


class Aim(msgspec.Struct, frozen=True):
    """A ratio of two subjects that must be reached."""

    text: str
    subject: str
    base: str
    at_least: float


AIMS = (
    Aim("at least 0.3 of a bare asyncio task for each job", "process", "bare", 0.3),
    Aim("ahead of huey's memory queue", "process", "huey", 1.0),
    Aim("ahead of taskiq's memory queue", "process", "taskiq", 1.0),
    Aim("at least 0.7 of itself with the backlog waiting in its queue", "before-ready", "alone", 0.7),
    Aim("at least 0.7 of itself with the backlog scheduled for later", "beside-scheduled", "alone", 0.7),
)


class Result(msgspec.Struct, frozen=True):
    """What became of an aim; `ratio` is None if one of its subjects was not measured."""

    aim: Aim
    ratio: Figure | None

    @property
    def missed(self) -> bool:
        """Whether the measured median lies below the aim."""
        return self.ratio is not None and self.ratio.median < self.aim.at_least


def rate(samples: list[Sample], clock: str = "cpu") -> Figure:
    """Jobs a second."""
    return figure_of([sample.jobs / getattr(sample, clock) for sample in samples])


def ratio(samples: Samples, name: str, base: str) -> Figure | None:
    """How many times the base's rate, compared within each round; None if one of them was not measured."""
    if not samples.get(name) or not samples.get(base):
        return None
    pairs = zip(samples[name], samples[base], strict=True)
    return figure_of([(own.jobs / own.cpu) / (other.jobs / other.cpu) for own, other in pairs])


def percentile(samples: list[Sample], percent: int) -> Figure:
    """A percentile of the latencies in each round, in seconds."""
    return figure_of([quantiles(sample.latencies, n=100)[percent - 1] for sample in samples])


def results(samples: Samples) -> list[Result]:
    """Every aim and what became of it."""
    return [Result(aim, ratio(samples, aim.subject, aim.base)) for aim in AIMS]


def figure_of(values: list[float]) -> Figure:
    """What the rounds found, as one figure."""
    return Figure(median(values), min(values), max(values))
