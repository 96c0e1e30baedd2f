"""The heart: keeps the leases of everything a worker holds, and notices when it has lost one.

It beats off the loop that runs handlers: in a thread with an event loop and a driver of its own, so that a handler
that blocks the loop loses no lease. From there it also sees that the loop stands still, and names the handler.
(A handler that holds the interpreter itself stops every thread: against that, leases are kept by another process.)
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from datetime import timedelta

from taskharbor.drivers.contract import Driver
from taskharbor.model.clock import Clock
from taskharbor.model.errors import BackendUnavailable, TaskHarborError
from taskharbor.model.events import HandlerBlocked, Observers
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Lease
from taskharbor.worker import executor, invocation
from taskharbor.worker.delivery import Delivery
from taskharbor.worker.outage import Backoff, Outage
from taskharbor.worker.stop_budget import StopBudget, close

logger = logging.getLogger("taskharbor.worker")

PULSE = 1.0  # seconds between two looks at the worker's loop
BLOCKED_AFTER = 2.0  # seconds after which a loop that has not turned is blocked
NOBODY = 1.0  # seconds more for one that is in no handler
OUR_FILES = (executor.__file__, invocation.__file__)  # the frames that call handlers
OVERDUE = 10.0  # seconds past a job's timeout: if that was not noticed by then, its lease is kept no longer


def overdue(run: Delivery, monotonic: float) -> bool:
    """Whether a job has outlived its timeout and nobody could end it, because the loop that would stands still."""
    return run.due is not None and monotonic > run.due + OVERDUE


class Heart:
    """Extends all held leases, in one call a beat."""

    def __init__(
        self,
        *,
        clock: Clock,
        outage: Outage,
        held: dict[str, Delivery],
        lease: timedelta,
        every: float,
        on_lost: Callable[[Delivery, TaskHarborError], None],
    ) -> None:
        self._clock = clock
        self.outage = outage
        self._held = held
        self._lease = lease
        self.every = every
        self._on_lost = on_lost
        self._backoff = Backoff()

    async def beat(self, driver: Driver) -> float:
        """Extend what is held, and answer how many seconds later to do it again."""
        moment = self._clock.monotonic()
        runs = [run for run in list(self._held.values()) if not overdue(run, moment)]
        if runs:
            try:
                answers = await driver.extend([run.lease for run in runs], self._clock.now(), self._lease)
                if len(answers) != len(runs):
                    raise RuntimeError(f"the driver answered {len(answers)} of {len(runs)} leases")
            except Exception as error:
                self.outage.failed("extend", error)
                return min(self._backoff.next(), self.every)
            self.outage.answered("extend")
            again = False
            for run, answer in zip(runs, answers, strict=True):
                if isinstance(answer, Lease):
                    run.lease = answer
                elif isinstance(answer, BackendUnavailable):
                    again = True  # not now: somebody has its record locked. That says nothing about the lease
                elif not run.decided and run.lease.token in self._held:
                    self._on_lost(run, answer)  # otherwise its outcome is on the way: the answer to that decides
            if again:
                return min(self._backoff.next(), self.every)
        else:
            self.outage.answered("extend")  # nothing to keep: a beat that failed before is of no concern
        self._backoff.reset()
        return self.every


class LoopHeart:
    """A heart on the worker's own loop, for where one thread is all there may be."""

    def __init__(self, heart: Heart, driver: Driver, clock: Clock) -> None:
        self._heart = heart
        self._driver = driver
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to beat."""
        self._task = asyncio.create_task(self._run(), name="taskharbor-heart")

    async def stop(self, patience: StopBudget) -> None:
        """Beat no more."""
        if self._task is not None:
            self._task.cancel()
            await patience.ended(self._task)

    async def _run(self) -> None:
        seconds = self._heart.every
        while True:
            await self._clock.sleep(seconds)
            seconds = await self._heart.beat(self._driver)


class ThreadHeart:
    """A heart in a thread of its own, with a sibling of the worker's driver; it also watches the worker's loop."""

    def __init__(self, heart: Heart, driver: Driver, clock: Clock, watch: LoopWatch) -> None:
        self._heart = heart
        self._driver = driver
        self._clock = clock
        self._watch = watch
        self._ended: asyncio.Future[None] | None = None  # of the worker's loop
        self._lock = threading.Lock()
        self._stopped = False
        self._cancel: Callable[[], object] | None = None

    async def start(self) -> None:
        """Begin to beat."""
        loop = asyncio.get_running_loop()
        self._ended = ended = loop.create_future()
        self._thread = threading.Thread(target=self._serve, args=(loop, ended), name="taskharbor-heart", daemon=True)
        self._thread.start()

    async def stop(self, patience: StopBudget) -> None:
        """Beat no more, and wait for the thread: it may be in a call that the store does not answer."""
        with self._lock:
            self._stopped = True
            if self._cancel is not None:
                self._cancel()
        if self._ended is not None and await patience.ended(self._ended):
            self._thread.join()  # it has nothing left to do

    def _serve(self, loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
        try:
            asyncio.run(self._run())
        except asyncio.CancelledError:
            pass
        finally:
            try:
                loop.call_soon_threadsafe(_end, ended)
            except RuntimeError:
                pass  # nobody waited so long: the worker's loop is closed

    async def _run(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        with self._lock:
            if self._stopped:
                return
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        watching = asyncio.create_task(self._watch.run())
        try:
            await self.keep()
        finally:
            with self._lock:
                self._cancel = None
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await close(self._driver)

    async def keep(self) -> None:
        """Beat for ever."""
        await self._open()
        seconds = self._heart.every
        while True:
            await self._clock.sleep(seconds)
            seconds = await self._heart.beat(self._driver)

    async def _open(self) -> None:
        backoff = Backoff()
        while True:
            try:
                await self._driver.open()
            except Exception as error:
                self._heart.outage.failed("open for the heart", error)
                await asyncio.sleep(backoff.next())
            else:
                return self._heart.outage.answered("open for the heart")


class LoopWatch:
    """Notices, from another thread, that the worker's loop does not turn, and says which handler holds it."""

    def __init__(self, worker: str, held: dict[str, Delivery], observers: Observers) -> None:
        self._worker = worker
        self._held = held
        self._observers = observers
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._time = self._loop.time  # the same for every loop
        self._since: float | None = None  # when a loop that has not answered yet was asked

    @property
    def blocked_for(self) -> float:
        """For how many seconds the loop has not turned, if that was noticed; else 0. Safe from any thread."""
        since = self._since
        return 0.0 if since is None else self._time() - since

    async def run(self) -> None:
        """Ask the loop for a sign of life every second, for ever."""
        here = asyncio.get_running_loop()
        while True:
            alive = asyncio.Event()
            asked = here.time()
            try:
                self._loop.call_soon_threadsafe(_sign, here, alive)
            except RuntimeError:
                return  # the worker's loop is closed
            if not await _within(BLOCKED_AFTER, alive):
                self._since = asked
                try:
                    job, where = self._look()
                    # Without a handler it may be over just now: the one that blocked has ended, or the worker has.
                    if job is not None or not await _within(NOBODY, alive):
                        self._observers.emit(HandlerBlocked(self._worker, job, here.time() - asked, where))
                    await alive.wait()  # told once for each blockage
                finally:
                    self._since = None
            await asyncio.sleep(PULSE)

    def _look(self) -> tuple[JobRecord | None, str]:
        """The job whose handler the loop is in, and where: the line of the handler, and the innermost one below it."""
        frame = sys._current_frames().get(self._thread)
        task = asyncio.current_task(self._loop)
        blocking = next((run for run in list(self._held.values()) if run.task is task and task is not None), None)
        stack = traceback.extract_stack(frame) if frame is not None else []
        ours = max((index for index, each in enumerate(stack) if each.filename in OUR_FILES), default=-1)
        places = [f"{each.filename}:{each.lineno} in {each.name}" for each in stack[ours + 1 :]]
        where = " → ".join(dict.fromkeys(places[:1] + places[-1:])) or "unknown"
        return (blocking.job if blocking is not None else None), where


async def _within(seconds: float, event: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _end(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


def _sign(loop: asyncio.AbstractEventLoop, alive: asyncio.Event) -> None:
    try:
        loop.call_soon_threadsafe(alive.set)
    except RuntimeError:
        return  # the heart has stopped meanwhile
