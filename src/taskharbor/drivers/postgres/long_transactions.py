"""Transactions that stay open: while one lasts, the server cannot remove what was finished since it began.

A reserve then reads the dead entries at the head of its index, so its cost grows with every job that is processed
meanwhile (see reserve.py). A driver cannot end a transaction of another program; it logs which one it is.
"""

from __future__ import annotations

import logging
from typing import Any

from taskharbor.drivers.postgres.statement import Program, Statement

log = logging.getLogger("taskharbor.drivers.postgres")

OLD_S = 30
# Only what keeps rows alive: a transaction that has written, or one that holds a snapshot.
_OLDEST = """
select a.pid, cast(extract(epoch from clock_timestamp() - a.xact_start) as integer), coalesce(a.state, 'unknown')
from pg_stat_activity a
where a.datname = current_database() and a.pid <> pg_backend_pid() and a.backend_type = 'client backend'
  and (a.backend_xid is not null or a.backend_xmin is not null)
  and a.xact_start < clock_timestamp() - make_interval(secs => ?)
order by a.xact_start limit 1
"""


class LongTransactionWarning:
    """Warns once of each server process whose transaction has been open for too long."""

    def __init__(self) -> None:
        self._reported: int | None = None

    def check(self) -> Program[None]:
        rows: Any = yield Statement(_OLDEST, (OLD_S,))
        if not rows:
            self._reported = None
            return
        pid, seconds, state = rows[0]
        if pid != self._reported:
            self._reported = pid
            log.warning(
                "the server process %d has had a transaction open for %d s (%s): while it lasts, finished jobs cannot "
                "be cleared away and every reserve grows slower; end it, or set idle_in_transaction_session_timeout",
                pid,
                seconds,
                state,
            )
