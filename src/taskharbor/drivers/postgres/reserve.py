"""Reserving: which of the reserve functions is called, where it starts to scan, and what its rows become.

Claimed jobs leave dead entries at the head of the index. Vacuum may not remove them as long as any older transaction is
open, so a scan from the head reads more of them with every job. A reserve that read many dead entries therefore returns
where it came to (an opaque text), and the next ones start there (`ScanStart`). A job that joined the queue before that
place (a higher priority, a worker with a slower clock) is found by a scan from the head, every 1 to 10 s: ten times
what the last such scan took. If nothing is found from the place on, the reserve scans from the head at once.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from taskharbor.drivers.base import within_lease
from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.drivers.postgres.pool import Runner
from taskharbor.drivers.postgres.records import (
    RESERVED_COLUMNS,
    SCAN_FROM,
    DamagedRecord,
    from_reserved_row,
    lost_before,
    to_json,
)
from taskharbor.drivers.postgres.statement import Program, Statement, array, call, rows_of
from taskharbor.model.ids import new_tokens
from taskharbor.model.lease import Lease, Reserved
from taskharbor.model.times import to_us

MAX_JOBS = 10_000  # of one reserve: more would make tokens by the megabyte
MIN_INTERVAL_S = 1.0  # between two scans from the head
MAX_INTERVAL_S = 10.0
_TOKEN = operator.itemgetter(-1)
_ONE = "reserve_queue(text, bigint, bigint, integer, text, text, boolean)"
_SEVERAL = "reserve_queues(text, bigint, bigint, integer, text, text, text, boolean)"
_AGAIN = "reserve_again(text, bigint, bigint, integer, text, text, text, boolean)"


class ReserveRequest:
    """One reserve: it may be sent again after its reply was lost, with the same tokens."""

    def __init__(
        self,
        options: PostgresOptions,
        queues: Sequence[str],
        now: datetime,
        lease_for: timedelta,
        limit: int,
        worker: str,
    ) -> None:
        self._schema = options.schema
        self._queues = queues
        self._worker = worker
        self.now = now
        self.ends = now + lease_for
        # Sorted, and given out in the order of the queue: so sorting by token restores that order.
        tokens = ",".join(sorted(new_tokens(limit)))
        self._common = (to_us(now), to_us(self.ends), limit, worker, tokens)
        self._durable = options.durable_reserve
        self._place: str | None = None
        self._is_sent = False

    def start_at(self, place: str | None) -> None:
        """Begin anew, scanning from a place on."""
        self._place, self._is_sent = place, False

    def program(self) -> Program[Any]:
        """The program of the next try."""
        statement = self._statement()
        self._is_sent = True
        return rows_of(statement)

    def reserved(self, row: Sequence[Any]) -> Reserved:
        """A row of the reply; DamagedRecord if no worker can have it."""
        lease = Lease(row[0], row[1], row[-1], self.ends)
        return Reserved(from_reserved_row(row, self.now, self._worker), lease, lost_before(row))

    def _statement(self) -> Statement:
        if len(self._queues) == 1 and self._place is None and not self._is_sent:
            one = (self._queues[0], *self._common, self._durable)
            return call(self._schema, _ONE, *one, columns=RESERVED_COLUMNS)
        several = (array(self._queues), *self._common, self._place, self._durable)
        return call(self._schema, _AGAIN if self._is_sent else _SEVERAL, *several, columns=RESERVED_COLUMNS)


class Reserving:
    """The reserves of one driver."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._scan_start = ScanStart()

    async def reserve(
        self, runner: Runner, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str
    ) -> list[Reserved]:
        names = [name for name in dict.fromkeys(queues) if "\x00" not in name]
        if limit < 1 or not names:
            return []
        limit = min(limit, MAX_JOBS)
        request = ReserveRequest(self._options, names, now, lease_for, limit, worker)
        rows = await self._rows(runner, request, within_lease(lease_for))
        rows.sort(key=_TOKEN)
        try:
            return [request.reserved(row) for row in rows]
        except DamagedRecord:
            sound = await self._set_damaged_aside(runner, rows, request)
            return sound + await self.reserve(runner, names, now, lease_for, limit - len(sound), worker)

    async def _rows(self, runner: Runner, request: ReserveRequest, within: float) -> list[Any]:
        start = self._scan_start
        while True:
            began = runner.time()
            place = start.place(began)
            request.start_at(place)
            rows: list[Any] = await runner.run(request.program, within=within)
            start.learn(rows, place, began, runner.time())
            if rows or place is None:
                return rows
            start.forget()

    async def _set_damaged_aside(self, runner: Runner, rows: Sequence[Any], request: ReserveRequest) -> list[Reserved]:
        """The reserved jobs without those whose records are damaged, which go to the dead letter queue."""
        sound: list[Reserved] = []
        damaged: list[dict[str, str]] = []
        for row in rows:
            try:
                sound.append(request.reserved(row))
            except DamagedRecord as error:
                damaged.append({"id": row[0], "token": row[-1], "reason": str(error)})
        schema, now = self._options.schema, to_us(request.now)
        statement = call(schema, "set_reserved_aside(text, bigint)", to_json(damaged), now)
        await runner.run(lambda: rows_of(statement))
        return sound


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
