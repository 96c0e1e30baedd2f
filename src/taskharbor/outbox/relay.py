"""The relay: it carries jobs from an outbox to the store, in the order of the rows.

    take a batch ──► send its records to the store ──► remove the rows, commit ──► the next batch
         │                      └── the store refuses a row: it is set aside, with the reason
         └── none: ask again in a second           either side does not answer: say so once, try again each second

Rows are removed after the store has their jobs. Ended anywhere in between, the next relay sends them again, with the
same ids: the store has each job once, as long as it keeps its record. Several relays of one database take turns on
Postgres. On SQLite they may send the same rows, which changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TypeAlias

from taskharbor.drivers.within import Caller
from taskharbor.model.clock import Clock
from taskharbor.model.errors import BackendUnavailable, TaskHarborError, WrongConnection
from taskharbor.model.events import JobsRelayed, Observers, RelayRefused
from taskharbor.model.job import JobRecord
from taskharbor.model.naming import class_name
from taskharbor.model.times import from_us
from taskharbor.outbox.rows import Row, Unreadable, decoded, finish, take
from taskharbor.outbox.source import RowSource
from taskharbor.outbox.tables import ADVICE, OUTBOX

logger = logging.getLogger("taskharbor.outbox")

LOOK_INTERVAL_S = 1.0
FULL_LOOKS = 100  # batches after which it begins at the first row again: transactions commit in another order than ids

Send: TypeAlias = Callable[[list[JobRecord]], Awaitable[object]]
"""Stores records, all or none. BackendUnavailable and OSError: the store does not answer. Anything else: it refuses."""
Rest: TypeAlias = Callable[[float], Awaitable[object]]


class Relay:
    """Carries jobs from one outbox to one store."""

    def __init__(
        self,
        source: RowSource,
        send: Send,
        *,
        clock: Clock,
        observers: Observers,
        retention: timedelta,
        worker: str = "",
        raises: bool = False,
    ) -> None:
        """`raises`: a connection that no waiting will mend, such as one to a database without an outbox, is an error
        of the caller's."""
        self._source, self._send = source, send
        self._clock, self._observers, self._worker = clock, observers, worker
        self._retention, self._raises = retention, raises
        self._moving = asyncio.Lock()
        self._after = self._batches = 0  # the last row that was seen, and how many batches ago the first one was
        self._failing = self._late = False

    async def run(self, rest: Rest, is_stopping: Callable[[], bool], *, until_empty: bool = False) -> int:
        """Carry on until a stop, or until the outbox is empty; how many jobs were sent."""
        total = 0
        try:
            while not is_stopping():
                moved = await self.try_once()
                total += moved or 0
                if moved == 0 and until_empty:
                    break
                if not moved:
                    await rest(LOOK_INTERVAL_S * (0.8 + 0.4 * random.random()))
        finally:
            await self._source.close()
        return total

    async def try_once(self) -> int | None:
        """Move one batch; how many jobs left the outbox, or None if one side does not answer."""
        try:
            async with self._moving:
                moved = await self._move()
        except Exception as error:
            await self._source.close()
            if self._raises and isinstance(error, WrongConnection | TypeError):
                raise
            if not self._failing:
                self._failing = True
                logger.error("outbox %s: jobs wait in it: %s", self._source.place, _reason(error))
            return None
        if self._failing:
            self._failing = False
            logger.warning("outbox %s: jobs leave it again", self._source.place)
        return moved

    async def _move(self) -> int:
        rows = await self._source.ask(self._take, begins=False)
        if not (rows and self._source.is_held):
            await self._source.rollback()
        if not rows:
            self._after = 0
            return 0
        aside = await self._sent(rows)
        await self._source.ask(partial(finish, [row.id for row in rows if row.id not in aside], aside))
        await self._source.commit()
        self._batches += 1
        self._after = rows[-1].id if self._batches % FULL_LOOKS else 0
        self._report(rows, aside)
        return sum(row.jobs for row in rows)

    async def _take(self, caller: Caller) -> list[Row]:
        await caller.expect(OUTBOX, ADVICE)
        return await take(self._after, caller) or (await take(0, caller) if self._after else [])

    async def _sent(self, rows: Sequence[Row]) -> dict[int, str]:
        """Send rows; why some were refused, by id. All at once, and in halves where the store refuses something."""
        records, aside = list[JobRecord](), dict[int, str]()
        for row in rows:
            try:
                records += decoded(row.records)
            except Unreadable as error:
                aside[row.id] = str(error)
        rows = [row for row in rows if row.id not in aside]
        if not rows:
            return aside
        try:
            await self._send(records)
        except (BackendUnavailable, OSError):
            raise
        except Exception as error:
            if len(rows) == 1:
                return {**aside, rows[0].id: _reason(error)}
            middle = len(rows) // 2
            return {**aside, **await self._sent(rows[:middle]), **await self._sent(rows[middle:])}
        return aside

    def _report(self, rows: Sequence[Row], aside: dict[int, str]) -> None:
        sent = [row for row in rows if row.id not in aside]
        if sent:
            waited = max(self._clock.now() - from_us(min(row.at for row in sent)), timedelta())
            self._observers.emit(JobsRelayed(self._worker, sum(row.jobs for row in sent), waited.total_seconds()))
            if waited > self._retention and not self._late:
                self._late = True
                logger.warning(
                    "outbox %s: jobs waited in it for longer than the store keeps the record of an ended one. A relay "
                    "that was ended on its way may have stored some of them twice: raise the retention of the store",
                    self._source.place,
                )
        for row, problem in aside.items():
            self._observers.emit(RelayRefused(self._worker, row, problem))


def _reason(error: BaseException) -> str:
    """An error as it may be logged and stored: of one that is not ours only the class, for its text may quote data."""
    return f"{class_name(error)}: {error}" if isinstance(error, TaskHarborError) else class_name(error)
