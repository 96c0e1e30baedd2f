"""Samples the store once for all viewers, again and again while a tab is open.

    no viewer ──first subscribes──► sampling ──last leaves──► no viewer
                                    └ a round, then a rest of at least 20 times what the round took

A round reads capped counts, the workers, the figures of the newest minutes and the jobs that a page shows whole. What
changed is sent to the viewers as names of topics; their pages then read what they show. So a store with a hundred
viewers is sampled once, and one without a viewer not at all. A round never takes more than 5 % of a connection.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from taskharbor.harbor import Harbor
from taskharbor.model.errors import JobNotFound, TaskHarborError
from taskharbor.ops.access import Access
from taskharbor.ops.operator import PageTooSlow, StoreReading, read_as
from taskharbor.store.queues import read_all_queues
from taskharbor.store.session import Store
from taskharbor.store.text import safe_text

REFRESH_S = 1.0
REST_FACTOR = 20
ROUND_TIMEOUT_S = 10.0
MAX_WATCHED_JOBS = 20
RECENT = timedelta(minutes=2)
SAMPLER = Access.view("dashboard")

JOBS, WORKERS, FIGURES_TOPIC, STORE = "jobs", "workers", "figures", "store"


class Viewer:
    """One open tab: whose it is, the job it shows, and what changed since it last asked."""

    def __init__(self, job: str | None, who: str = "") -> None:
        self.job = job
        self.who = who
        self.changed: set[str] = set()
        self.woken = asyncio.Event()
        self.problem = ""

    def tell(self, topics: set[str], problem: str) -> None:
        """Note what changed."""
        if topics:
            self.changed |= topics
            self.problem = problem
            self.woken.set()

    def take(self) -> tuple[set[str], str]:
        """What changed, and what is wrong with the store, if anything is."""
        changed, self.changed = self.changed, set()
        self.woken.clear()
        return changed, self.problem


class Sampler:
    """Samples one store for the viewers in this process, on the loop of the first of them."""

    def __init__(self, harbor: Harbor, refresh: float = REFRESH_S) -> None:
        self._harbor = harbor
        self._refresh = refresh
        self._viewers: list[Viewer] = []
        self._task: asyncio.Task[None] | None = None
        self._seen: dict[str, Any] = {}
        self._problem = ""
        self.rounds = 0

    @property
    def viewers(self) -> int:
        """How many tabs are open."""
        return len(self._viewers)

    def viewers_of(self, who: str) -> int:
        """How many of them are of one person."""
        return sum(viewer.who == who for viewer in self._viewers)

    @contextmanager
    def viewer(self, job: str | None = None, who: str = "") -> Iterator[Viewer]:
        """A viewer, for as long as the block lasts. The first one starts the sampling, the last one ends it."""
        viewer = Viewer(job, who)
        self._viewers.append(viewer)
        if self._problem:
            viewer.tell({STORE}, self._problem)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="taskharbor-dashboard-sampler")
        try:
            yield viewer
        finally:
            self._viewers.remove(viewer)
            if not self._viewers and self._task is not None:
                self._task.cancel()
                self._task = None
                self._seen.clear()

    async def _run(self) -> None:
        clock = self._harbor.clock
        while self._viewers:
            began = clock.monotonic()
            await self._round()
            took = clock.monotonic() - began
            await clock.sleep(max(self._refresh, REST_FACTOR * took))

    async def _round(self) -> None:
        """Read once, and tell the viewers what changed."""
        watched = Counter(viewer.job for viewer in self._viewers if viewer.job is not None)
        jobs = [job for job, _ in watched.most_common(MAX_WATCHED_JOBS)]
        self.rounds += 1
        try:
            found = await read_as(self._harbor, SAMPLER, lambda reading: _sample(reading, jobs), ROUND_TIMEOUT_S)
        except PageTooSlow:  # the store answers; the longer rest that follows is what it needs
            return
        except (TaskHarborError, OSError) as error:
            self._tell(lambda viewer: set() if self._problem else {STORE}, safe_text(str(error)))
            return
        before, self._seen = self._seen, found
        changed = {name for name in (JOBS, WORKERS, FIGURES_TOPIC) if before and before.get(name) != found[name]}
        if self._problem:
            changed.add(STORE)
        stirred = {job for job in jobs if f"job {job}" in before and before[f"job {job}"] != found[f"job {job}"]}
        self._tell(lambda viewer: changed | ({"job"} if viewer.job in stirred else set()), "")

    def _tell(self, topics: Callable[[Viewer], set[str]], problem: str) -> None:
        for viewer in self._viewers:
            viewer.tell(topics(viewer), problem)
        self._problem = problem


async def _sample(reading: StoreReading, jobs: list[str]) -> dict[str, Any]:
    driver, now = reading.driver, reading.now
    seen = await read_all_queues(driver, now)
    found: dict[str, Any] = {
        JOBS: seen.counts,
        WORKERS: [(worker.worker, worker.running, worker.stuck, worker.queues) for worker in seen.workers],
        FIGURES_TOPIC: {
            (row.queue, row.minute): row.counts.get("done", 0) + row.counts.get("failed", 0)
            for row in await driver.figures(now - RECENT, now)
        },
    }
    for job in jobs:
        try:
            info = await driver.inspect(job, now)
            record = info.job
            found[f"job {job}"] = (info.state, record.deliveries, record.edits, record.note, record.finished_at)
        except JobNotFound:
            found[f"job {job}"] = None
    return found


_samplers: weakref.WeakKeyDictionary[Store, Sampler] = weakref.WeakKeyDictionary()


def sampler_of(harbor: Harbor, refresh: float = REFRESH_S) -> Sampler:
    """The only sampler of a store in this process."""
    found = _samplers.get(harbor._store)
    if found is None:
        found = _samplers[harbor._store] = Sampler(harbor, refresh)
    return found
