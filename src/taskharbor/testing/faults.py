"""Fault injection: what goes wrong in production, on demand, on any driver.

faults = Faults()
harbor = Harbor(faults.wrap("memory://"))
faults.fail("settle")                    # the next settle fails before it reaches the store
faults.fail("enqueue", after=True)       # the store does it, but the reply is lost
faults.deliver_twice(handle.id)          # the next ack of this job is lost with its worker: it runs again
await faults.expire(handle.id)           # the lease on a running job ends now
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from taskharbor.drivers.base import Driver
from taskharbor.drivers.registry import open_driver
from taskharbor.drivers.wrapped import VERBS, WrappedDriver
from taskharbor.model.errors import BackendUnavailable, JobNotInflight, LeaseMismatch, TaskHarborError
from taskharbor.model.lease import Reserved
from taskharbor.model.outcome import Ack, Outcome


class Faults:
    """A plan of faults, shared by a wrapped driver and all its siblings: `Harbor(faults.wrap("memory://"))`."""

    def __init__(self) -> None:
        self._failures: dict[str, list[tuple[bool, BaseException]]] = {}
        self._doubles: set[str] = set()
        self._leases: dict[str, tuple[Driver, Reserved, str]] = {}
        self._turns: dict[str, threading.Lock] = {}
        self._now: datetime | None = None  # the newest `now` of a worker's call

    def wrap(self, driver: Driver | str) -> Driver:
        """The driver (or the one for a DSN) with this plan applied to it."""
        inner = open_driver(driver) if isinstance(driver, str) else driver
        return _FaultyDriver(inner, self)

    def fail(self, verb: str, *, times: int = 1, after: bool = False, error: BaseException | None = None) -> None:
        """Let the next calls of a verb of the driver fail: before they reach the store, or `after` it has done them.

        `times`: how many calls. `error`: what they raise. Default: BackendUnavailable.
        """
        if verb not in VERBS:
            raise ValueError(f"verb: expected one of {', '.join(VERBS)}, got {verb!r}")
        if times < 1:
            raise ValueError(f"times: expected 1 or more, got {times}")
        what = error or BackendUnavailable(f"injected: {verb} failed {'after' if after else 'before'} the store did it")
        self._failures.setdefault(verb, []).extend([(after, what)] * times)

    def deliver_twice(self, job_id: str) -> None:
        """Lose the next successful end of a job, as if its worker had died before its settle."""
        self._doubles.add(job_id)

    async def expire(self, job_id: str) -> None:
        """End the lease on a job that a worker holds now: the job is ready again, and its worker is refused."""
        held = self._leases.get(job_id)
        if held is None:
            raise JobNotInflight(f"no worker on this driver has reserved {job_id}")
        async with self.alone(held[2]):
            driver, reserved, worker = self._leases[job_id]
            if reserved is not held[1]:
                raise JobNotInflight(f"{job_id} was reserved again")
            others = [other.lease.token for _, other, name in self._leases.values() if name == worker]
            others.remove(reserved.lease.token)
            # The workers' own present, whatever clock the test uses: a lease that has expired is not released.
            if not await driver.release(worker, self._now or reserved.lease.expires_at, keep=others):
                raise JobNotInflight(f"no worker holds {job_id} any more")

    @asynccontextmanager
    async def alone(self, worker: str) -> AsyncIterator[None]:
        """Either a reserve of this worker or the end of one of its leases, never both at once: jobs of a reserve whose
        reply is on its way are not noted yet, and would be given back together with the lease that is meant."""
        turn = self._turns.setdefault(worker, threading.Lock())
        # Polled: a test may call from another loop than the worker's.
        while not turn.acquire(blocking=False):  # noqa: ASYNC110 - a lock of threads has no event to wait for
            await asyncio.sleep(0.001)
        try:
            yield
        finally:
            turn.release()

    def pending(self) -> dict[str, int]:
        """How many planned failures of each verb have not happened yet."""
        return {verb: len(planned) for verb, planned in self._failures.items() if planned}

    def take(self, verb: str) -> tuple[bool, BaseException] | None:
        """The next planned failure of a verb."""
        planned = self._failures.get(verb)
        return planned.pop(0) if planned else None

    def saw(self, now: datetime) -> None:
        """Note the time of a call."""
        self._now = now if self._now is None else max(self._now, now)

    def note(self, driver: Driver, batch: Sequence[Reserved], worker: str) -> None:
        """Note which worker has which lease."""
        for reserved in batch:
            self._leases[reserved.job.id] = (driver, reserved, worker)

    def lost(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """The outcomes of this call that the plan wants lost."""
        found: list[Outcome] = []
        for outcome in outcomes:
            if isinstance(outcome, Ack) and outcome.lease.job_id in self._doubles:
                self._doubles.discard(outcome.lease.job_id)
                found.append(outcome)
        return found


class _FaultyDriver(WrappedDriver):
    """A driver that consults a plan before and after each call."""

    def __init__(self, inner: Driver, faults: Faults) -> None:
        super().__init__(inner)
        self._faults = faults

    def sibling(self) -> Driver:
        return self._faults.wrap(self.inner.sibling())

    async def around(self, verb: str, call: Callable[[], Awaitable[Any]], args: tuple[Any, ...]) -> Any:
        if verb == "close":  # never fails
            return await call()
        planned = self._faults.take(verb)
        if planned is not None and not planned[0]:
            raise planned[1]
        result = await call()
        if planned is not None:
            raise planned[1]
        return result

    async def reserve(
        self, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str = ""
    ) -> list[Reserved]:
        self._faults.saw(now)
        async with self._faults.alone(worker):
            batch = await super().reserve(queues, now, lease_for, limit, worker)
            self._faults.note(self.inner, batch, worker)
            return batch

    async def settle(self, outcomes: Sequence[Outcome], now: datetime) -> list[TaskHarborError | None]:
        self._faults.saw(now)
        lost = self._faults.lost(outcomes)
        for outcome in lost:
            try:
                await self._faults.expire(outcome.lease.job_id)
            except JobNotInflight:
                continue  # cancelled or expired meanwhile: its end is refused all the same
        results = await super().settle([each for each in outcomes if each not in lost], now)
        rest = iter(results)
        gone = LeaseMismatch("injected: this delivery's end was lost")
        return [gone if each in lost else next(rest) for each in outcomes]
