"""Whether this worker can renew leases. While it cannot, it takes no jobs: it would lose them.

Set by the heart, in its own thread, and by the thread that listens to a supervisor; read by the worker's loop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger("taskharbor.worker")


class RenewalGate:
    """Open while there is a connection for renewals and the last renewal has reached the store."""

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
