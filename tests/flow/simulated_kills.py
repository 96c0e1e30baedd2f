"""Workers that die: real ones, as processes on virtual time, killed before or after any call to the store.

Who holds what is kept here, apart from the store, so that every execution beyond the first must be explained by a
death, and no finalizer may be taken before all its members were settled.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from taskharbor import Harbor
from taskharbor.drivers import Driver, WrappedDriver
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.outcome import Retry
from taskharbor.model.times import truncate
from tests.simulation.loop import VirtualLoop
from tests.simulation.machine import START, Process, machines

Fate = Callable[[str, str], bool | str]
"""Whether the process dies at this call: (verb, "before" or "after"). "lost": it lives, but gets no reply; "frozen":
it is stopped for longer than its leases, and comes back as a zombie."""

DRAIN = 3600.0  # virtual seconds after which a run is stuck


class Dying(WrappedDriver):
    """A driver on a shared store, for one process, which may die at any call."""

    def __init__(self, inner: Driver, process: Process, fate: Fate, book: "Book") -> None:
        super().__init__(inner)
        self._process, self._fate, self._book = process, fate, book

    def sibling(self) -> "Dying":
        return Dying(self.inner.sibling(), self._process, self._fate, self._book)

    async def server_time(self) -> Any:
        return truncate(START + timedelta(seconds=self._process.loop.time()))

    async def around(self, verb: str, call: Any, args: Any) -> Any:
        await self._die(verb, "before")
        answer = await call()
        if verb == "reserve":
            self._book.reserved(self._process, answer)
        elif verb == "settle":
            self._book.settled(self._process, args[0], answer)
        await self._die(verb, "after")
        return answer

    async def _die(self, verb: str, when: str) -> None:
        await asyncio.sleep(0)
        fate = self._fate(verb, when)
        if fate == "frozen":
            self._book.frozen += 1
            self._process.freeze(10)
            await asyncio.sleep(0)
            return
        if fate == "lost":
            raise BackendUnavailable(f"no answer to {verb}")
        if self._process.dead or fate:
            if not self._process.dead:
                self._book.died(self._process)
                self._process.kill(f"{when} {verb}")
            await asyncio.get_running_loop().create_future()  # nothing of it ever runs again


class Book:
    """Who holds what, and how often each job was taken, given back, or lost with its worker."""

    def __init__(self) -> None:
        self.held: dict[Process, set[str]] = {}
        self.taken: Counter[str] = Counter()
        self.given_back: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.tokens: set[str] = set()
        self.done: set[str] = set()
        self.problems: list[str] = []
        self.deaths = 0
        self.frozen = 0
        self.cancelled: set[str | None] = set()  # flows that nobody may take a job of any more

    def reserved(self, process: Process, batch: Any) -> None:
        for reserved in batch:
            job = reserved.job
            self.taken[job.id] += 1
            self.held.setdefault(process, set()).add(job.id)
            if job.flow_id in self.cancelled:
                self.problems.append(f"{job.type} {job.id} was taken after its flow was cancelled")
            early = set(job.depends_on) - self.done
            if early:
                self.problems.append(f"{job.type} {job.id} was released before {len(early)} of what it waits for")
            if job.id in self.done:
                self.problems.append(f"{job.type} {job.id} was taken again after it was done")

    def settled(self, process: Process, outcomes: Any, answers: Any) -> None:
        for outcome, answer in zip(outcomes, answers, strict=True):
            id = outcome.lease.job_id
            if answer is None:
                self.held.get(process, set()).discard(id)
                if type(outcome) is Retry:
                    self.given_back[id] += outcome.lease.token not in self.tokens
                    self.tokens.add(outcome.lease.token)
                else:
                    self.done.add(id)

    def died(self, process: Process) -> None:
        self.deaths += 1
        self.lost.update(self.held.pop(process, ()))

    def unexplained(self) -> dict[str, int]:
        """Jobs that were taken more often than deaths and give-backs explain."""
        more = {id: times - 1 - self.lost[id] - self.given_back[id] for id, times in self.taken.items()}
        return {id: number for id, number in more.items() if number}


class Yard:
    """Some workers on one store, each started again when it died, until every job has ended."""

    def __init__(
        self,
        declare: Callable[[Harbor], Any],
        fate: Fate,
        *,
        workers: int = 4,
        seed: int = 0,
        store: MemoryDriver | None = None,
    ) -> None:
        self.declare, self.fate, self.workers = declare, fate, workers
        self.rng = random.Random(seed)
        self.store = MemoryDriver("memory://") if store is None else store
        self.book = Book()
        self.loop = VirtualLoop(random.Random(seed), shuffle=True, steps=10**8)

    def run(self, enqueue: Callable[[Any], Any]) -> Any:
        """Let `enqueue(declared)` store its flows, work them off, and answer what `enqueue` answered."""
        asyncio.set_event_loop(None)
        state = random.getstate()
        random.seed(self.rng.random())
        try:
            with machines(self.rng):
                return self.loop.run_until_complete(self._main(enqueue))
        finally:
            self.loop.dispose()
            random.setstate(state)

    async def _main(self, enqueue: Callable[[Any], Any]) -> Any:
        process = Process("client", self.loop)
        harbor = Harbor(Dying(self.store, process, lambda *_: False, self.book))
        answer = await process.spawn(enqueue(self.declare(harbor)), "client")
        lives = [self.loop.create_task(self._live(index)) for index in range(self.workers)]
        idle = 0
        while idle < 2:  # what was settled a moment ago may release something
            await asyncio.sleep(1)
            idle = idle + 1 if not await self._busy() else 0
            if self.loop.time() > DRAIN:
                self.book.problems.append("it does not come to an end")
                break
        self._look_at_blocked()
        for life in lives:
            life.cancel()
        return answer

    async def _busy(self) -> bool:
        counts = await self.store.counts(START + timedelta(seconds=self.loop.time()))
        return any({"ready", "scheduled", "inflight"} & set(states) for states in counts.values())

    def _look_at_blocked(self) -> None:
        """Only a job behind a dead or cancelled one of its flow may still wait."""
        records = [entry.record for entry in self.store.store.entries.values()]
        excused = {record.flow_id for record in records if record.reason}
        for record in records:
            if record.finished_at is None and record.flow_id not in excused:
                self.book.problems.append(f"{record.type} {record.id} is blocked for ever")

    async def _live(self, index: int) -> None:
        for life in range(10**6):
            process = Process(f"worker{index}.{life}", self.loop)
            harbor = Harbor(Dying(self.store.sibling(), process, self.fate, self.book))
            self.declare(harbor)
            worker = harbor.worker(concurrency=8, lease=3, max_lost=10**6, heart="loop", poll_interval=0.5)
            process.spawn(worker.arun(), "worker")
            await process.died.wait()
            await asyncio.sleep(self.rng.uniform(0.0, 0.5))
