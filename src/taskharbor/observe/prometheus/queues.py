"""How deep the queues are, and how long their oldest ready job has waited: read from the store at a scrape.

Two questions, apart from each other. Whether the store answers (`taskharbor_store_up`) follows from the cheapest call
there is, at most every `every` seconds. The figures of queues cost more: `queues`, one `counts`, to a cap, and one
`heads` of the queues with ready jobs. The longer they take the rarer they are read, at most a twentieth of the time; in
between, the last ones are returned again. If they are not read within `timeout` seconds, what was read is shown and
`taskharbor_queue_figures_complete` is 0: a slow store is up.

A store that does not answer has no figures of queues: none are better than old ones. Where the store cannot tell how
long the oldest job waits, there is no age: 0 would say that none does.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from taskharbor.drivers.heads import read_counts, read_waiting
from taskharbor.model.clock import Clock, StoreClock, follow
from taskharbor.model.job import State
from taskharbor.observe.prometheus.observer import OTHER

if TYPE_CHECKING:
    from taskharbor.drivers.base import Driver

MAX_COUNTED_JOBS = 100_000  # of a queue in one state
MAX_ALL_COUNTED_JOBS = 1_000_000  # in one state, over all queues: many queues are counted less far each
PAUSE_FACTOR = 20  # a read that took a second is not repeated within twenty


def cap_beside(queues: int) -> int:
    """How far the jobs of one queue in one state are counted, beside this many queues.

    >>> cap_beside(7), cap_beside(1_000), cap_beside(1_000_000)
    (100000, 1000, 100)
    """
    return max(100, min(MAX_COUNTED_JOBS, MAX_ALL_COUNTED_JOBS // max(queues, 1)))


class QueueFigures(NamedTuple):
    """The result of one read: jobs by queue and state, counted to `cap`; and the age in seconds of each queue's oldest
    ready job, where that is known. `complete`: whether all of it was read."""

    counts: Mapping[str, Mapping[str, int]] = {}
    ages: Mapping[str, float] = {}
    cap: int = MAX_COUNTED_JOBS
    complete: bool = False


class QueueCollector(Collector):
    """Register it in a registry: `REGISTRY.register(QueueCollector(harbor.driver))`. Safe to scrape from many threads.

    At most `max_queues` queues have a label of their own; the jobs of all others count as `other`, without an age.

    Options:
        clock: What time it is. Default: the clock of the store.
        every: The store is read at most once in this many seconds. Default: 15.
        timeout: How many seconds a read may take. Default: 5.
        max_queues: How many queues have a label of their own. Default: 100.
    """

    def __init__(
        self,
        driver: Driver,
        *,
        clock: Clock | None = None,
        every: float = 15.0,
        timeout: float = 5.0,
        max_queues: int = 100,
    ) -> None:
        self._driver = driver
        self._clock: Clock = StoreClock() if clock is None else clock
        self._every = every
        self._timeout = timeout
        self._max_queues = max_queues
        self._labelled: dict[str, None] = {}
        self._lock = threading.Lock()
        self._up = False
        self._figures: QueueFigures | None = None  # of the last read that found the store up
        self._next_look = self._next_read = float("-inf")

    def describe(self) -> Iterable[Metric]:
        """The names, without reading the store."""
        return _families(None)

    def collect(self) -> Iterable[Metric]:
        """Whether the store answers, and the figures of the last read; both are read now if it is time."""
        with self._lock:
            began = self._clock.monotonic()
            if began >= self._next_look:
                self._next_look = began + self._every
                self._refresh(began >= self._next_read)
            return _families(self._figures, self._up)

    def _refresh(self, with_figures: bool) -> None:
        began = self._clock.monotonic()
        self._up, found = False, QueueFigures()
        with_figures = with_figures or self._figures is None

        def note(figures: QueueFigures | None) -> None:
            nonlocal found
            self._up, found = True, figures or found

        # In a thread of its own: the scraping thread may have a running event loop.
        with ThreadPoolExecutor(1, "taskharbor-metrics") as thread:
            try:
                thread.submit(asyncio.run, self._read(with_figures, note)).result()
            except Exception:  # any error: the metrics only say that something is missing, the worker's log says why
                pass
        if not self._up:
            self._figures = None
        elif with_figures:
            ended = self._clock.monotonic()
            self._figures = found
            self._next_read = ended + max(self._every, PAUSE_FACTOR * (ended - began))

    async def _read(self, with_figures: bool, note: Callable[[QueueFigures | None], None]) -> None:
        """Note that the store answers, then each figure as soon as it is known."""
        driver = self._driver.sibling()
        async with asyncio.timeout(self._timeout):
            try:
                await driver.open()
                await driver.server_time()
                note(None)
                await follow(self._clock, driver.server_time)
                if not with_figures:
                    return
                now = self._clock.now()
                cap = cap_beside(len(await driver.queues()))
                counts = self._bounded(await read_counts(driver, now, cap))
                note(QueueFigures(counts, cap=cap))
                heads = await read_waiting(driver, counts, [queue for queue in counts if queue != OTHER], now)
                ages = {
                    queue: (head.waited(now) or timedelta()).total_seconds()
                    for queue, head in heads.items()
                    if head.oldest_known
                }
                note(QueueFigures(counts, ages, cap, complete=True))
            finally:
                await driver.close()

    def _bounded(self, counts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
        """The counts, with all queues but the first `max_queues` added up as one."""
        for queue in [each for each in self._labelled if each not in counts]:
            del self._labelled[queue]
        bounded: dict[str, dict[str, int]] = {}
        for queue, states in counts.items():
            if queue in self._labelled or len(self._labelled) < self._max_queues:
                self._labelled[queue] = None
                name = queue
            else:
                name = OTHER
            totals = bounded.setdefault(name, {})
            for state, number in states.items():
                totals[state] = totals.get(state, 0) + number
        return bounded


def _families(figures: QueueFigures | None, up: bool = False) -> list[Metric]:
    jobs = GaugeMetricFamily(
        "taskharbor_queue_jobs",
        "Jobs in the store, by state, counted to taskharbor_queue_jobs_cap.",
        labels=("queue", "state"),
    )
    cap = GaugeMetricFamily("taskharbor_queue_jobs_cap", "A count that reaches this means that many jobs or more.")
    age = GaugeMetricFamily(
        "taskharbor_queue_oldest_ready_age_seconds", "How long the oldest ready job has waited.", labels=("queue",)
    )
    complete = GaugeMetricFamily(
        "taskharbor_queue_figures_complete", "Whether all figures of queues were read in time, the last time."
    )
    store = GaugeMetricFamily("taskharbor_store_up", "Whether the store answered the last time it was asked.")
    if figures is not None:
        for queue, states in figures.counts.items():
            for state in State:
                jobs.add_metric((queue, state.value), states.get(state, 0))
        for queue, seconds in figures.ages.items():
            age.add_metric((queue,), seconds)
        cap.add_metric((), figures.cap)
        complete.add_metric((), float(figures.complete))
    store.add_metric((), float(up))
    return [jobs, cap, age, complete, store]
