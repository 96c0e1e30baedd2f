"""Reserving: which of the reserve functions is called, where it starts to scan, and what its rows become.

Claimed jobs leave dead entries at the head of the index. Vacuum may not remove them as long as any older transaction is
open, so a scan from the head reads more of them with every job. A reserve that read many dead entries therefore returns
where it came to (an opaque text), and the next ones start there (`ScanStart`). A job that joined the queue before that
place (a higher priority, a worker with a slower clock) is found by a scan from the head, every 1 to 10 s: ten times
what the last such scan took. If nothing is found from the place on, the reserve scans from the head at once.

A reserve that was given up may have leased jobs all the same. The next one gives them back first (`_give_back`).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from taskharbor.drivers.base import within_lease
from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.drivers.postgres.pool import Runner
from taskharbor.drivers.postgres.records import (
    ATTEMPTS,
    RESERVED_COLUMNS,
    RUN_AT,
    SCAN_FROM,
    DamagedRecord,
    from_reserved_row,
    lost_before,
    optional_moment,
    to_json,
)
from taskharbor.drivers.postgres.settle import settle_plain
from taskharbor.drivers.postgres.statement import Statement, array, call, rows_of
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.ids import new_tokens
from taskharbor.model.lease import Lease, Reserved
from taskharbor.model.outcome import Retry
from taskharbor.model.safe_repr import shown
from taskharbor.model.times import to_us

MAX_JOBS = 10_000  # of one reserve: more would make tokens by the megabyte
MIN_INTERVAL_S = 1.0  # between two scans from the head
MAX_INTERVAL_S = 10.0
STOPPED = "57014"  # the error of a statement that the server has stopped: it has changed nothing
MAX_IN_DOUBT = 8  # reserves; the jobs of older ones come back when their leases end
_TOKEN = operator.itemgetter(-1)
_ONE = "reserve_queue(text, bigint, bigint, integer, text, text, boolean)"
_SEVERAL = "reserve_queues(text, bigint, bigint, integer, text, text, text, boolean)"
_AGAIN = "reserve_again(text, bigint, bigint, integer, text, text, text, boolean)"


class Reserving:
    """The reserves of one driver."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._scan_start = ScanStart()
        self._in_doubt: list[_GivenUp] = []  # until their leases end

    async def reserve(
        self, runner: Runner, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str
    ) -> list[Reserved]:
        names = list(dict.fromkeys(queues))
        if limit < 1 or not names:
            return []
        limit = min(limit, MAX_JOBS)
        if self._in_doubt:
            await self._give_back(runner, now, within_lease(lease_for))
        ends = now + lease_for
        # Sorted, and given out in the order of the queue: so sorting by token restores that order.
        tokens = ",".join(sorted(new_tokens(limit)))
        given = (to_us(now), to_us(ends), limit, worker, tokens)
        try:
            rows = await self._rows(runner, names, given, within_lease(lease_for))
        except BackendUnavailable as error:
            if getattr(error.__cause__, "sqlstate", None) != STOPPED:
                self._in_doubt = [*self._in_doubt, _GivenUp(names, given, ends)][-MAX_IN_DOUBT:]
            raise
        rows.sort(key=_TOKEN)
        reserved: list[Reserved] = []
        damaged: list[dict[str, str]] = []
        for row in rows:
            try:
                job = from_reserved_row(row, now, worker)
            except DamagedRecord as error:
                damaged.append({"id": row[0], "token": row[-1], "reason": str(error)})
            else:
                reserved.append(Reserved(job, Lease(row[0], row[1], row[-1], ends), lost_before(row)))
        if damaged:  # they go to the dead letter queue, and others are taken in their place
            aside = call(self._options.schema, "set_reserved_aside(text, bigint)", to_json(damaged), to_us(now))
            await runner.run(lambda: rows_of(aside))
            reserved += await self.reserve(runner, names, now, lease_for, limit - len(reserved), worker)
        return reserved

    async def _give_back(self, runner: Runner, now: datetime, within: float) -> None:
        """Give back, as they were, the jobs that reserves have leased although they were given up."""
        for reserve in list(self._in_doubt):
            again = (to_us(now), reserve.given[1], 0, *reserve.given[3:], None, self._options.durable_reserve)
            leased = call(self._options.schema, _AGAIN, array(reserve.queues), *again, columns=RESERVED_COLUMNS)
            rows = [row for row in await runner.run(lambda: rows_of(leased), within=within) if row[0] is not None]  # noqa: B023 - at once
            back = [
                Retry(Lease(row[0], row[1], row[-1], reserve.ends), optional_moment(row[RUN_AT]), row[ATTEMPTS])
                for row in rows
            ]
            if back:
                await runner.run(lambda: settle_plain(self._options.schema, back, now), within=within)  # noqa: B023 - the same
            if back or reserve.ends <= now:
                self._in_doubt.remove(reserve)

    async def _rows(self, runner: Runner, queues: Sequence[str], given: tuple[Any, ...], within: float) -> list[Any]:
        start = self._scan_start
        while True:
            began = runner.time()
            place = start.place(began)
            tries = self._tries(queues, given, place)
            rows: list[Any] = await runner.run(lambda: rows_of(next(tries)), within=within)  # noqa: B023 - at once
            start.learn(rows, place, began, runner.time())
            if rows or place is None:
                return rows
            start.forget()

    def _tries(self, queues: Sequence[str], given: tuple[Any, ...], place: str | None) -> Iterator[Statement]:
        """The statement of the first try, then that of each further one, with the same tokens: the reply was lost."""
        schema, durable = self._options.schema, self._options.durable_reserve
        if len(queues) == 1 and place is None:
            yield call(schema, _ONE, queues[0], *given, durable, columns=RESERVED_COLUMNS)
        else:
            yield call(schema, _SEVERAL, array(queues), *given, place, durable, columns=RESERVED_COLUMNS)
        while True:
            yield call(schema, _AGAIN, array(queues), *given, place, durable, columns=RESERVED_COLUMNS)


class _GivenUp(NamedTuple):
    """A reserve that may have leased jobs although its caller has given it up."""

    queues: list[str]
    given: tuple[Any, ...]  # to the function, from the time on
    ends: datetime  # of its leases

    def __repr__(self) -> str:
        return shown(self, "queues", "ends")


class ScanStart:
    """Where the reserves of one driver start."""

    def __init__(self) -> None:
        self._place: str | None = None
        self._until = 0.0  # when the next scan from the head is due

    def place(self, now: float) -> str | None:
        """Where to start at `now` (seconds of a monotonic clock); None: at the head."""
        if self._place is not None and now >= self._until:
            self._place = None
        return self._place

    def forget(self) -> None:
        """Start at the head next time."""
        self._place = None

    def learn(self, rows: list[Any], started_at: str | None, began: float, now: float) -> None:
        """Take the place out of the rows of a reserve, if they end with one."""
        if rows and rows[-1][SCAN_FROM] is not None:
            self._place = rows.pop()[SCAN_FROM]
            if started_at is None:
                self._until = now + min(max(MIN_INTERVAL_S, 10 * (now - began)), MAX_INTERVAL_S)
        elif started_at is None:
            self._place = None
