"""Reserving: which of the reserve functions is called, and what its rows become."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from taskharbor.drivers.base import within_lease
from taskharbor.drivers.postgres.bloat import ScanStart
from taskharbor.drivers.postgres.client_calls import Runner
from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.drivers.postgres.records import RESERVED_COLUMNS, DamagedRecord, from_reserved_row, lost_before, to_json
from taskharbor.drivers.postgres.statement import Program, Statement, array, call, rows_of, value
from taskharbor.model.ids import new_tokens
from taskharbor.model.lease import Lease, Reserved
from taskharbor.model.times import to_us

MAX_JOBS = 10_000  # of one reserve: more would make tokens by the megabyte
_TOKEN = operator.itemgetter(-1)


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
        self._common = (
            (to_us(now), "bigint"),
            (to_us(self.ends), "bigint"),
            (limit, "integer"),
            (worker, "text"),
            # Sorted, and given out in the order of the queue: so sorting by token restores that order.
            (",".join(sorted(new_tokens(limit))), "text"),
        )
        self._durable = (options.durable_reserve, "boolean")
        self._place: str | None = None
        self._is_sent = False

    def start_at(self, place: str | None) -> None:
        """Begin anew, scanning from a place on (bloat.py)."""
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
            one = (self._queues[0], "text")
            return call(self._schema, "reserve_queue", one, *self._common, self._durable, columns=RESERVED_COLUMNS)
        return call(
            self._schema,
            "reserve_again" if self._is_sent else "reserve_queues",
            (array(self._queues), "text"),
            *self._common,
            (self._place, "text"),
            self._durable,
            columns=RESERVED_COLUMNS,
        )


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
        statement = value(
            self._options.schema, "set_reserved_aside", (to_json(damaged), "text"), (to_us(request.now), "bigint")
        )
        await runner.run(lambda: rows_of(statement))
        return sound
