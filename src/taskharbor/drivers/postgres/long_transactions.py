"""Looking for transactions that stay open: while one lasts, nothing that was finished since can be cleared away.

A reserve steps over what is dead at the head of its line, so its cost grows with every job that is processed meanwhile.
A driver cannot end a transaction of somebody else's; it says which it is.
"""

from __future__ import annotations

import logging
from typing import Any

from taskharbor.drivers.postgres.statement import Program, Statement

log = logging.getLogger("taskharbor.drivers.postgres")

OLD = 30  # seconds
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
    """Says once of each server process that its transaction has been open for too long."""

    def __init__(self) -> None:
        self._told: int | None = None

    def look(self) -> Program[None]:
        rows: Any = yield Statement(_OLDEST, (OLD,))
        if not rows:
            self._told = None
            return
        pid, seconds, state = rows[0]
        if pid != self._told:
            self._told = pid
            log.warning(
                "the server process %d has had a transaction open for %d s (%s): while it lasts, finished jobs cannot "
                "be cleared away and every reserve grows slower; end it, or set idle_in_transaction_session_timeout",
                pid,
                seconds,
                state,
            )
