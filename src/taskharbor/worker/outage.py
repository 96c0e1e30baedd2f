"""Outages of the store: retry for ever with growing, jittered delays, and report each outage once.

All services of a worker share one Outage (the heart calls it from its own thread), so that one outage is one event, and
the health report knows how long it has lasted.
"""

from __future__ import annotations

import logging
import random
import threading
import traceback
from collections.abc import Callable

from taskharbor.model.clock import Clock
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.events import Observers, StoreBack, StoreLost

logger = logging.getLogger("taskharbor.worker")

FIRST_DELAY_S, MAX_DELAY_S = 0.05, 5.0


class Outage:
    """Whether the store answers, and since when it does not."""

    def __init__(self, worker: str, clock: Clock, observers: Observers) -> None:
        self._worker = worker
        self._clock = clock
        self._observers = observers
        self._lock = threading.Lock()
        self._failing: set[str] = set()  # which kinds of call fail
        self._since = 0.0  # when the first of them did
        self.error: BaseException | None = None

    def answered(self, *doing: str) -> None:
        """Calls of these kinds succeed again, or are no longer needed."""
        if not self._failing or self._failing.isdisjoint(doing):
            return
        with self._lock:
            since = self._since
            self._failing.difference_update(doing)
            over = not self._failing
            if over:
                self.error = None
        if over:
            self._observers.emit(StoreBack(self._worker, self._clock.monotonic() - since))

    def failed(self, doing: str, error: BaseException) -> None:
        """A call to the store failed. Anything but BackendUnavailable and OSError is a bug: log where it happened."""
        with self._lock:
            first = not self._failing
            if first:
                self._since = self._clock.monotonic()
            self.error = error
            self._failing.add(doing)
        if first:
            self._observers.emit(StoreLost(self._worker, doing, error))
        if not isinstance(error, BackendUnavailable | OSError):
            # The place without the text: a driver's exception may quote keys or payloads.
            where = "".join(traceback.format_tb(error.__traceback__)).rstrip()
            logger.error("worker %s: %s failed with %s\n%s", self._worker, doing, type(error).__name__, where)

    @property
    def seconds(self) -> float:
        """For how many seconds the store has not answered; 0 while it does."""
        return self._clock.monotonic() - self._since if self._failing else 0.0


class Backoff:
    """Growing delays for one caller: 0.05, 0.1, 0.2 … 5 s, each plus up to a half, so that callers spread out."""

    def __init__(self) -> None:
        self._tries = 0

    def reset(self) -> None:
        """Start again with the shortest delay."""
        self._tries = 0

    def next(self) -> float:
        """The next delay in seconds."""
        delay = min(MAX_DELAY_S, FIRST_DELAY_S * 2.0**self._tries)
        self._tries = min(self._tries + 1, 16)
        return delay * (1 + random.random() / 2)


class RenewalGate:
    """Whether this worker can renew leases. While it cannot, it takes no jobs: it would lose them.

    Open while there is a connection for renewals and the last renewal has reached the store. Set by the heart, in its
    own thread, and by the thread that listens to a supervisor; read by the worker's loop.
    """

    def __init__(self, worker: str, on_open: Callable[[], None] = lambda: None) -> None:
        self._worker = worker
        self._on_open = on_open
        self._lock = threading.Lock()
        self._reported = False  # that the worker takes no jobs
        self.connected = False  # the heart, or the supervisor, has a connection for renewals
        self.renewing = True  # the last renewal reached the store

    @property
    def is_open(self) -> bool:
        """Whether jobs may be taken."""
        return self.connected and self.renewing

    def update(self, *, connected: bool | None = None, renewing: bool | None = None) -> None:
        """Note what has changed; report when the worker takes no jobs, and when it takes them again."""
        with self._lock:
            before = self.is_open
            self.connected = self.connected if connected is None else connected
            self.renewing = self.renewing if renewing is None else renewing
            opened = self.is_open and not before
            report = self.is_open is self._reported
            if report:
                self._reported = not self.is_open
        if report and not opened:
            why = "its last renewal did not reach the store" if self.connected else "the store gave no connection"
            logger.warning("worker %s takes no jobs: leases cannot be renewed, %s", self._worker, why)
        elif report:
            logger.warning("worker %s takes jobs again: leases can be renewed", self._worker)
        if opened:
            self._on_open()
