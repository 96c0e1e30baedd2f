"""The worker's end of the line to its parent: hands its leases over, and does what the parent says.

A lease is handed over right after it was taken, before its handler starts: the handler may hold the interpreter from
its first moment on. What the parent renewed comes back, so that the worker knows how long it may go on. When the
parent does not renew (it is gone, stopped, or has trouble of its own), the worker's heart does, from its thread.
When the line ends the parent is gone: the worker stops as if told to, and `orphan` sees to it that the process ends.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import cast

from taskharbor.drivers.contract import Driver
from taskharbor.model.clock import Clock
from taskharbor.model.errors import (
    DriverError,
    JobNotFound,
    JobNotInflight,
    LeaseExpired,
    LeaseMismatch,
    TaskHarborError,
)
from taskharbor.model.lease import Lease
from taskharbor.model.times import from_ms
from taskharbor.tasks.handler import HandlerRegistry
from taskharbor.worker.delivery import Delivery
from taskharbor.worker.heart import Heart, LoopWatch, ThreadHeart, overdue
from taskharbor.worker.settings import WorkerSettings
from taskharbor.worker.supervisor import messages
from taskharbor.worker.supervisor.handover_driver import HandoverDriver
from taskharbor.worker.worker import Worker

logger = logging.getLogger("taskharbor.worker")

TICK = 1.0  # seconds between two signs of life
LOST = {error.__name__: error for error in (JobNotFound, JobNotInflight, LeaseMismatch, LeaseExpired)}


class ChildChannel:
    """One for each worker process; `attach` it to the worker before that runs."""

    def __init__(
        self,
        line: socket.socket,
        heard: Iterable[bytes],
        max_jobs: int | None = None,
        orphaned: Callable[[threading.Event], None] = lambda left: None,
    ) -> None:
        self.dsn: str | None = None  # None: nobody else can reach the store
        self.offer: messages.Offer | None = None
        self.left = max_jobs  # how many jobs the worker may still take; None: any number
        self.suspect: messages.TakenLease | None = None  # the one job that this process is there for
        self.ready = False
        self._line = line
        self._heard = heard
        self._lock = threading.Lock()
        self._unsent = b""  # the rest of a message that the parent has not taken yet
        self._missed = False  # something was not said meanwhile: all has to be said again
        self._worker: Worker | None = None
        self._handing: HandoverDriver | None = None
        self._early: list[str] = []  # what was asked of the worker before there was one
        self._held: dict[str, Delivery] = {}
        self._handed: dict[str, messages.TakenLease] = {}
        self._fresh: set[str] = set()  # handed over, and not yet in `held`
        self._on_lost: Callable[[Delivery, TaskHarborError], None] | None = None
        self._turn = threading.Event()  # a spare's waiting is over
        self._alone = False  # the parent is gone: nobody hears what is said
        self._left = threading.Event()  # the worker has stopped serving
        self._orphaned = orphaned  # called in a thread when the parent is gone

    def listen(self) -> None:
        """Hear the parent from now on, in a thread: it is heard also while the worker's loop stands still."""
        threading.Thread(target=self._listen, name="taskharbor-link", daemon=True).start()

    def wait(self) -> None:
        """Be a spare: until it is this one's turn, or it is told to end, or the parent is gone."""
        self._say(messages.Waiting())
        self._turn.wait()

    def attach(self, worker: Worker) -> None:
        """Serve this worker, which learns first what was asked of it before."""
        worker.channel = self
        with self._lock:
            self._worker = worker
            early, self._early = self._early, []
        for what in early:
            getattr(worker, what)()

    def fail(self, text: str, code: int) -> None:
        """Say why this process cannot start."""
        self._say(messages.StartFailed(text, code))

    def leave(self) -> None:
        """Say that the worker has stopped serving: the process is about to exit, or is ended by its parent."""
        self._left.set()
        self._say(messages.StoppedServing())

    # What the crew asks for ----------------------------------------------------------------------------------

    def hand_over(self, driver: Driver, clock: Clock, handlers: HandlerRegistry, settings: WorkerSettings) -> Driver:
        """The fetcher's driver, whose every reserve is told to the parent before anything of it runs."""
        self._handing = HandoverDriver(driver, clock, handlers, settings, self)
        return cast(Driver, self._handing)

    def heart(
        self,
        settings: WorkerSettings,
        heart: Heart,
        driver: Driver,
        clock: Clock,
        watch: LoopWatch,
        held: dict[str, Delivery],
        on_lost: Callable[[Delivery, TaskHarborError], None],
    ) -> ThreadHeart:
        """A heart that leaves the beating to the parent, as long as that does it."""
        self._held, self._on_lost = held, on_lost
        self._say(messages.Ready(settings.name, self.dsn, self.offer))
        self.ready = True
        return _SupervisedHeart(heart, driver, clock, watch, self, settings)

    @property
    def hands_on(self) -> bool:
        """Whether the parent has another process run what may take its own down."""
        return self.dsn is not None and not self._alone

    def hand_on(self, lease: messages.TakenLease) -> bool:
        """Leave a job to another process. Its lease is the parent's to keep from here on, if that listens."""
        return self._say(messages.SuspectTaken(lease))

    def tokens(self) -> list[str]:
        """The leases that this worker holds, or did a moment ago."""
        with self._lock:
            return [*self._handed]

    def seen(self) -> None:
        """What was handed over before stands in `held` by now, or is settled already."""
        with self._lock:
            self._fresh.clear()

    def taken(self, leases: Sequence[messages.TakenLease]) -> None:
        """Hand leases over."""
        with self._lock:
            for each in leases:
                self._handed[each.token] = each
                self._fresh.add(each.token)
        if self.left is not None:
            self.left -= len(leases)
            if self.left <= 0:
                self._ask("retire")
        self._say(messages.Taken(list(leases), self._gone()))

    def tick(self, clock: Clock) -> None:
        """Give a sign of life, and say what is no longer held and what may run how long."""
        worker = self._worker
        if worker is None:
            return
        health, now = worker.health(), clock.monotonic()
        self._say(
            messages.Tick(
                ok=health.ok,
                state=health.state,
                busy=health.busy,
                running=health.running,
                polled_seconds_ago=health.polled_seconds_ago,
                store_error=health.store_error,
                gone=self._gone(),
                due=self._due(now),
                slots=health.slots,
                stuck=health.stuck,
                blocked_for=health.blocked_for,
            )
        )

    def _gone(self) -> list[str]:
        with self._lock:
            gone = [token for token in self._handed if token not in self._held and token not in self._fresh]
            for token in gone:
                del self._handed[token]
        return gone

    def _due(self, now: float) -> list[tuple[str, float]]:
        """How many seconds each job may still run: one that waits for its start, all of its time."""
        due = []
        for token, run in list(self._held.items()):
            handed = self._handed.get(token)
            if run.due is not None:
                due.append((token, run.due - now))
            elif run.task is None and handed is not None and handed.limit is not None:
                due.append((token, handed.limit))
        return due

    # The line ------------------------------------------------------------------------------------------------

    def _say(self, message: messages.ToParent) -> bool:
        """Never waits for a parent that does not listen: the handlers go on, and all is said again when it does."""
        with self._lock:
            self._send(b"")
            if self._unsent:
                self._missed = True
                return False
            if self._missed:
                self._missed = False
                held = [each for token, each in self._handed.items() if token in self._held or token in self._fresh]
                self._send(messages.line(messages.Taken(held, [], all=True)))
            self._send(messages.line(message))
            return True

    def _send(self, data: bytes) -> None:
        data = self._unsent + data
        try:
            while data:
                data = data[self._line.send(data, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            pass
        except OSError:
            data = b""  # the parent is gone; the thread that listens sees that, too
        self._unsent = data

    def _listen(self) -> None:
        try:
            for line in self._heard:
                self._hear(messages.read_by_child(line))
        except OSError:
            pass
        self._alone = True
        logger.warning("the supervising process is gone: this worker stops")
        self._ask("stop")
        self._orphaned(self._left)

    def _hear(self, message: messages.ToChild) -> None:
        if isinstance(message, messages.Kept):
            self._kept(message)
        elif isinstance(message, messages.Serve):
            self.suspect = message.suspect
            self._turn.set()
        elif isinstance(message, messages.Release):
            if self._handing is not None and not self._handing.loop.is_closed():
                asyncio.run_coroutine_threadsafe(self._handing.release(message.keep), self._handing.loop)
        elif isinstance(message, messages.Retire):
            self._ask("retire")
        else:
            self._ask("hurry" if message.hurry else "stop")

    def _ask(self, what: str) -> None:
        with self._lock:
            worker = self._worker
            if worker is None:
                self._early.append(what)
                self._turn.set()
        if worker is not None:
            getattr(worker, what)()

    def _kept(self, message: messages.Kept) -> None:
        for token, milliseconds in message.renewed:
            run = self._held.get(token)
            if run is not None:
                run.lease = Lease(run.lease.job_id, run.lease.queue, token, from_ms(milliseconds))
        for token, name, text in message.lost:
            run = self._held.get(token)
            if run is not None and not run.decided and self._on_lost is not None:
                self._on_lost(run, LOST.get(name, DriverError)(text))


class _SupervisedHeart(ThreadHeart):
    """Gives signs of life; beats itself, on a connection opened for that, only when the parent has missed two beats."""

    def __init__(
        self, heart: Heart, driver: Driver, clock: Clock, watch: LoopWatch, link: ChildChannel, settings: WorkerSettings
    ) -> None:
        super().__init__(heart, driver, clock, watch)
        self._link = link
        self._every = min(TICK, settings.heartbeat / 2)
        self._neglect = (settings.lease - timedelta(seconds=settings.heartbeat)) / 2
        self._opened = False

    async def keep(self) -> None:
        """Both at once: a store that does not answer must not silence the signs of life."""
        await asyncio.gather(self._tick(), self._beat_if_needed())

    async def _tick(self) -> None:
        while True:
            self._link.tick(self._clock)
            await asyncio.sleep(self._every)

    async def _beat_if_needed(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            if self._neglected():
                if not self._opened:
                    await self._open()
                    self._opened = True
                await self._heart.beat(self._driver)

    def _neglected(self) -> bool:
        now, moment = self._clock.now(), self._clock.monotonic()
        return any(
            run.lease.expires_at - now < self._neglect and not overdue(run, moment)
            for run in list(self._link._held.values())
        )
