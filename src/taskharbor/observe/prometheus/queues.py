"""How deep the queues are, and how long their oldest ready job has waited: read from the store at a scrape.

The cost is bounded. The store is read at most every `every` seconds, and the longer a read takes the rarer reads become
(at most a twentieth of the time); in between, the last figures are returned again. A read is one `counts`, to a cap,
and one `heads` of the queues with ready jobs, on a connection that is closed afterwards. When the store does not answer
within `timeout` seconds, `taskharbor_store_up` is 0 and there are no figures of queues: none are better than old ones.
Where the store cannot tell how long the oldest job waits, there is no age: 0 would say that none does.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping
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
PAUSE_FACTOR = 20  # a read that took a second is not repeated within twenty


class QueueFigures(NamedTuple):
    """The result of one read: jobs by queue and state, and the age in seconds of each queue's oldest ready job, where
    that is known."""

    counts: Mapping[str, Mapping[str, int]]
    ages: Mapping[str, float]


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
        self._figures: QueueFigures | None = None
        self._next_read = float("-inf")

    def describe(self) -> Iterable[Metric]:
        """The names, without reading the store."""
        return _families(None)

    def collect(self) -> Iterable[Metric]:
        """The figures of the last read, which is made now if it is time."""
        with self._lock:
            began = self._clock.monotonic()
            if began >= self._next_read:
                self._figures = self._read_in_thread()
                ended = self._clock.monotonic()
                pause = self._every if self._figures is None else max(self._every, PAUSE_FACTOR * (ended - began))
                self._next_read = ended + pause
            return _families(self._figures, up=self._figures is not None)

    def _read_in_thread(self) -> QueueFigures | None:
        # In a thread of its own: the scraping thread may have a running event loop.
        with ThreadPoolExecutor(1, "taskharbor-metrics") as thread:
            try:
                return thread.submit(asyncio.run, self._read()).result()
            except Exception:  # any error: the metric only says that the store is down, the worker's log says why
                return None

    async def _read(self) -> QueueFigures:
        driver = self._driver.sibling()
        async with asyncio.timeout(self._timeout):
            try:
                await driver.open()
                await follow(self._clock, driver.server_time)
                now = self._clock.now()
                counts = self._bounded(await read_counts(driver, now, MAX_COUNTED_JOBS))
                heads = await read_waiting(driver, counts, [queue for queue in counts if queue != OTHER], now)
                ages = {
                    queue: (head.waited(now) or timedelta()).total_seconds()
                    for queue, head in heads.items()
                    if head.oldest_known
                }
                return QueueFigures(counts, ages)
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
    jobs = GaugeMetricFamily("taskharbor_queue_jobs", "Jobs in the store, by state.", labels=("queue", "state"))
    age = GaugeMetricFamily(
        "taskharbor_queue_oldest_ready_age_seconds", "How long the oldest ready job has waited.", labels=("queue",)
    )
    store = GaugeMetricFamily("taskharbor_store_up", "Whether the store answered the last time it was read.")
    if figures is not None:
        for queue, states in figures.counts.items():
            for state in State:
                jobs.add_metric((queue, state.value), states.get(state, 0))
        for queue, seconds in figures.ages.items():
            age.add_metric((queue,), seconds)
    store.add_metric((), float(up))
    return [jobs, age, store]
