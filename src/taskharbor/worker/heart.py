"""The heart: renews the leases of everything a worker holds, and notices when one is lost.

It runs apart from the loop that runs handlers, in a thread with an event loop and a driver of its own, so that a
handler that blocks the loop loses no lease. From there it also notices that the loop is blocked, and by which handler.
(A handler that holds the interpreter itself stops every thread: against that, a supervisor renews the leases.)
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from taskharbor.model.errors import BackendUnavailable, InvalidJob, TaskHarborError
from taskharbor.model.events import HandlerBlocked
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Lease
from taskharbor.model.progress import Progress
from taskharbor.worker import executor, invocation
from taskharbor.worker.delivery import Delivery
from taskharbor.worker.outage import Backoff, RenewalGate
from taskharbor.worker.parts import Part, WorkerParts
from taskharbor.worker.progress_notes import ProgressNotes, written
from taskharbor.worker.waiting import StopBudget, close, first_of, set_within

CHECK_INTERVAL_S = 1.0  # between two checks of the worker's loop
BLOCKED_AFTER_S = 2.0  # a loop that has not turned for this long is blocked
NO_HANDLER_S = 1.0  # longer still, if the loop is in no handler
OUR_FILES = (executor.__file__, invocation.__file__)  # the frames that call handlers
OVERDUE_S = 10.0  # past a job's timeout: if its handler was not stopped by then, its lease is renewed no longer

OnLost: TypeAlias = Callable[[Delivery, TaskHarborError], object]


def overdue(delivery: Delivery, monotonic: float) -> bool:
    """Whether a job has outlived its timeout and could not be stopped, because the worker's loop is blocked."""
    return delivery.due is not None and monotonic > delivery.due + OVERDUE_S


class Heart(Part, ABC):
    """Extends all held leases in one call. `on_lost` is called with a delivery whose lease is gone."""

    def __init__(self, parts: WorkerParts, gate: RenewalGate, on_lost: OnLost) -> None:
        super().__init__(parts)
        self.gate = gate
        self.on_lost = on_lost
        self._every = parts.settings.heartbeat
        self._backoff = Backoff()
        self._extending = asyncio.Lock()  # one call at a time: a reply must not put back an older end of a lease
        self._missed: Lease | None = None  # of the last renewal that failed

    @abstractmethod
    async def extend(self, *arguments: Any) -> Sequence[Lease | TaskHarborError]:
        """Call `Driver.extend`."""

    async def run(self) -> None:
        """Extend all leases again and again, and in between those whose jobs have reported progress."""
        storing = None if self._notes is None else asyncio.ensure_future(self._store_notes(self._notes))
        seconds = self._every
        try:
            while True:
                await self._rest(seconds)
                seconds = await self.beat()
        finally:
            if storing is not None:
                storing.cancel()

    async def _rest(self, seconds: float) -> None:
        """Wait until the next renewal. One that failed is tried again although the clock stands still, as a test's may:
        no job is taken until then."""
        if self.gate.renewing:
            await self._clock.sleep(seconds)
        else:
            await first_of(self._clock.sleep(seconds), asyncio.sleep(seconds))

    async def _store_notes(self, notes: ProgressNotes) -> None:
        while True:
            await notes.gate.wait(self._clock)
            await self.store_notes()

    async def beat(self) -> float:
        """Extend all leases; return after how many seconds to do it again."""
        moment = self._clock.monotonic()
        if self._notes is not None:
            self._notes.gate.take(self._clock)
        deliveries = [each for each in list(self._held.values()) if not overdue(each, moment)]
        if not deliveries and self.gate.renewing:
            self._outage.answered("extend")  # nothing to renew: an earlier failure no longer matters
        elif not await self._extend(deliveries):
            return min(self._backoff.next(), self._every)
        self._backoff.reset()
        return max(self._every - (self._clock.monotonic() - moment), 0)  # a slow store must not stretch the interval

    async def store_notes(self) -> None:
        """Extend the leases of the jobs whose progress waits to be stored, and store it."""
        assert self._notes is not None
        self._notes.gate.take(self._clock)
        moment, held = self._clock.monotonic(), list(self._held.values())
        waiting = [each for each in held if each.progress is not each.noted and not each.decided]
        if deliveries := [each for each in waiting if not overdue(each, moment)]:
            await self._extend(deliveries)

    async def _extend(self, deliveries: list[Delivery]) -> bool:
        """Extend leases, with the progress that waits; return False if some have to be tried again soon.

        Without deliveries the lease that was missed last is tried: its refusal shows that renewals reach the store.
        """
        leases = [each.lease for each in deliveries]
        if not leases and self._missed is not None:
            leases = [self._missed]
        notes = {} if self._notes is None else self._notes.take(deliveries)
        now = self._clock.now()
        for delivery in deliveries:
            delivery.unrenewed = delivery.unrenewed or delivery.lease.expires_at > now
        try:
            async with self._extending:
                more = [written(notes)] if notes else []  # only a driver that takes them has any
                results = await self.extend(leases, self._clock.now(), self._settings.lease, *more)
            if len(results) != len(leases):
                raise RuntimeError(f"the driver returned {len(results)} results for {len(leases)} leases")
        except Exception as error:
            self._outage.failed("extend", error)
            self._missed = leases[-1]
            self.gate.update(renewing=not isinstance(error, BackendUnavailable | OSError))
            self._wait_again(notes)
            return False
        self._outage.answered("extend")
        again = False
        for delivery, lease, result in zip(deliveries, leases, results, strict=bool(deliveries)):
            if isinstance(result, Lease):
                delivery.lease = result
                delivery.unrenewed = result.expires_at <= self._clock.now()  # it came too late, as behind a locked file
                delivery.noted = notes.get(lease.token, delivery.noted)
            elif isinstance(result, BackendUnavailable):
                again = True  # its record is locked, which says nothing about the lease
            elif isinstance(result, InvalidJob) and lease.token in notes:
                delivery.noted = notes[lease.token]  # the store does not take it: without it the lease is extended
                again = True
            elif not delivery.decided and lease.token in self._held:
                self.on_lost(delivery, result)  # a decided one is being settled: the store decides then
        self.gate.update(renewing=True)
        if again:
            self._wait_again(notes)
        return not again

    def _wait_again(self, notes: dict[str, Progress]) -> None:
        if notes and self._notes is not None:
            self._notes.gate.waiting = True


class LoopHeart(Heart):
    """A heart on the worker's own loop, for tests and simulations that allow one thread only."""

    async def start(self) -> None:
        """Start renewing, over the worker's own driver."""
        self.gate.update(connected=True)
        self._task = asyncio.create_task(self.run(), name="taskharbor-heart")

    async def stop(self, budget: StopBudget) -> None:
        """Stop renewing."""
        self._task.cancel()
        await budget.ended(self._task)

    async def extend(self, *arguments: Any) -> Sequence[Lease | TaskHarborError]:
        return await self._driver.extend(*arguments)


class ThreadHeart(Heart):
    """A heart in a thread of its own, with a sibling of the worker's driver; it also watches the worker's loop."""

    def __init__(self, parts: WorkerParts, gate: RenewalGate, on_lost: OnLost, watch: LoopWatch) -> None:
        super().__init__(parts, gate, on_lost)
        self._own_driver = parts.driver.sibling()
        self._opened = False  # its own driver is open
        self._watch = watch
        self._loop = asyncio.get_running_loop()  # the worker's
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._serve, name="taskharbor-heart", daemon=True)
        self._lock = threading.Lock()
        self._stopped = False
        self._cancel: Callable[[], object] | None = None

    async def start(self) -> None:
        """Start renewing."""
        self._thread.start()

    async def stop(self, budget: StopBudget) -> None:
        """Stop renewing, and wait for the thread: it may be in a call that the store does not answer."""
        with self._lock:
            self._stopped = True
            if self._cancel is not None:
                self._cancel()
        if await budget.ended(self._ended):
            self._thread.join()  # returns at once: the thread has nothing left to do

    def _serve(self) -> None:
        try:
            asyncio.run(self._run())
        except asyncio.CancelledError:
            pass
        finally:
            try:
                self._loop.call_soon_threadsafe(_end, self._ended)
            except RuntimeError:
                pass  # the worker's loop was closed meanwhile

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
            await close(self._own_driver)

    async def keep(self) -> None:
        """Renew for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._open())
            group.create_task(self.run())

    async def _open(self) -> None:
        """Open the heart's driver: until then renewals go over the worker's, and no jobs are taken."""
        backoff = Backoff()
        while True:
            try:
                await self._own_driver.open()
            except Exception as error:
                self._outage.failed("open for the heart", error)
                self.note_connection()
                await asyncio.sleep(backoff.next())
            else:
                self._opened = True
                self._outage.answered("open for the heart")
                return self.note_connection()

    def note_connection(self) -> None:
        """Note whether there is a connection for renewals."""
        self.gate.update(connected=self._opened)

    async def extend(self, *arguments: Any) -> Sequence[Lease | TaskHarborError]:
        """Renew over the heart's driver, and over the worker's if that one has no connection to the store.

        The worker's belongs to the worker's loop. A handler that blocks that loop holds up those renewals: so it is
        only the second choice, and no job is taken before the heart's own driver is open.
        """
        if self._opened:
            try:
                return await self._own_driver.extend(*arguments)
            except (BackendUnavailable, OSError) as error:
                failure: Exception = error
        else:
            failure = BackendUnavailable("the heart has no connection to the store")
        if self._watch.blocked_for:
            raise failure  # not after a wait in vain: the heart's own connection may be back at the next try
        calling = self._on_workers_loop(arguments)
        try:
            answer = asyncio.run_coroutine_threadsafe(calling, self._loop)
            async with asyncio.timeout(self._every):
                return await asyncio.wrap_future(answer)
        except (BackendUnavailable, OSError) as error:  # also its TimeoutError: the loop is blocked
            raise failure from error
        except RuntimeError:  # the worker's loop is closed
            calling.close()
            raise failure from None

    async def _on_workers_loop(self, arguments: tuple[Any, ...]) -> Sequence[Lease | TaskHarborError]:
        return await self._driver.extend(*arguments)


class LoopWatch(Part):
    """Notices, from another thread, that the worker's loop is blocked, and by which handler."""

    def __init__(self, parts: WorkerParts) -> None:
        super().__init__(parts)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._time = self._loop.time  # the same for every loop
        self._since: float | None = None  # when the check began that a blocked loop has not answered

    @property
    def blocked_for(self) -> float:
        """For how many seconds the loop has been blocked; 0 if it is not. Safe from any thread."""
        since = self._since
        return 0.0 if since is None else self._time() - since

    async def run(self) -> None:
        """Check the loop every second, for ever."""
        here = asyncio.get_running_loop()
        while True:
            alive = asyncio.Event()
            since = here.time()
            try:
                self._loop.call_soon_threadsafe(_set_on, here, alive)
            except RuntimeError:
                return  # the worker's loop is closed
            if not await set_within(BLOCKED_AFTER_S, alive):
                self._since = since
                try:
                    job, where = self._find_blocker()
                    # In no handler: perhaps the handler that blocked has just ended, or the worker has.
                    if job is not None or not await set_within(NO_HANDLER_S, alive):
                        self._observers.emit(HandlerBlocked(self._worker, job, here.time() - since, where))
                    await alive.wait()  # one event for each blockage
                finally:
                    self._since = None
            await asyncio.sleep(CHECK_INTERVAL_S)

    def _find_blocker(self) -> tuple[JobRecord | None, str]:
        """The job whose handler blocks the loop, and where: the handler's line, and the innermost line below it."""
        frame = sys._current_frames().get(self._thread)
        task = asyncio.current_task(self._loop)
        held = list(self._held.values())
        blocking = next((each for each in held if task is not None and each.task is task), None)
        stack = traceback.extract_stack(frame) if frame is not None else []
        ours = max((index for index, each in enumerate(stack) if each.filename in OUR_FILES), default=-1)
        places = [f"{each.filename}:{each.lineno} in {each.name}" for each in stack[ours + 1 :]]
        where = " → ".join(dict.fromkeys(places[:1] + places[-1:])) or "unknown"
        return (blocking.job if blocking is not None else None), where


def _end(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


def _set_on(loop: asyncio.AbstractEventLoop, alive: asyncio.Event) -> None:
    try:
        loop.call_soon_threadsafe(alive.set)
    except RuntimeError:
        return  # the heart has stopped meanwhile
