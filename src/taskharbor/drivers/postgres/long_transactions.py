"""Transactions that stay open: while one lasts, the server cannot remove what was finished since it began.

A reserve then reads the dead entries at the head of its index, so its cost grows with every job that is processed
meanwhile (see reserve.py). A driver cannot end a transaction of another program; it logs which one it is.
"""

from __future__ import annotations

import logging
from typing import Any

OLD_S = 30
log = logging.getLogger("taskharbor.drivers.postgres")


class LongTransactionWarning:
    """Warns once of each server process whose transaction has been open for too long."""

    def __init__(self) -> None:
        self._reported: int | None = None

    def note(self, oldest: list[Any]) -> None:
        """`oldest`: what beat.sql returned."""
        pid, seconds, state = oldest[0] if oldest else (None, 0, "")
        if pid is not None and pid != self._reported:
            log.warning(
                "the server process %d has had a transaction open for %d s (%s): while it lasts, finished jobs cannot "
                "be cleared away and every reserve grows slower; end it, or set idle_in_transaction_session_timeout",
                pid,
                seconds,
                state,
            )
        self._reported = pid
