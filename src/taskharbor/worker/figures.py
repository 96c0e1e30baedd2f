"""Figures: what this worker has settled, by minute and queue, for the charts of operators.

    settler, transactions ─► count ─► every 15 s, and at the stop: driver.add_figures

    done, failed, dead, cancelled, snoozed, given_back   executions by how they ended; `failed` counts each failed
                                                         execution, `dead` those of them that were the last
    timeout, lost                                        failed ones that timed out; executions lost before this one
    ran_ms, waited_ms                                    sums: of the handlers, and from due to reserved
    ran_00 … ran_15, waited_00 … waited_15               their histograms (model/histogram.py)

Executions are counted exactly. Their times are, too, on a worker with two jobs a second; a busy one takes every
sixteenth. Numbers that could not be stored are kept and sent again, up to a bound. They are for people: a crash loses
those of up to 15 s, and a call whose reply was lost may count twice. Nothing here ever stops a worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice

from taskharbor.drivers.base import Driver
from taskharbor.model.bounds import INT_MAX
from taskharbor.model.clock import Clock
from taskharbor.model.errors import InvalidJob
from taskharbor.model.executions import AttemptKind
from taskharbor.model.histogram import RAN, WAITED, bucket_of
from taskharbor.model.job import EPOCH, Figures
from taskharbor.model.outcome import Fail, Outcome
from taskharbor.policy.trail import kind_of
from taskharbor.worker.delivery import SNOOZED, TIMEOUT, Decided, Delivery

FLUSH_INTERVAL_S = 15.0
MAX_KEPT_ROWS = 5_000
MAX_SENT_ROWS = 500  # in one call
MAX_PARTS = 100  # in which a row is sent: a sum of times soon passes the largest number that a store takes
TIMED_EACH = 32  # executions between two flushes whose times are all taken
TIMED_ONE_OF = 16  # of more, one in sixteen is timed and counted sixteen times: timing costs 10 % of a job on memory

NAMES = (
    *("done", "failed", "dead", "cancelled", "snoozed", "given_back", "timeout", "lost", "ran_ms", "waited_ms"),
    *RAN,
    *WAITED,
)
_COLUMN = {name: place for place, name in enumerate(NAMES)}
_DONE, _RAN_MS, _WAITED_MS, _LOST = _COLUMN["done"], _COLUMN["ran_ms"], _COLUMN["waited_ms"], _COLUMN["lost"]
_RAN, _WAITED = _COLUMN[RAN[0]], _COLUMN[WAITED[0]]


class FigureCounter:
    """Counts what was settled. Everything here happens on the worker's loop."""

    def __init__(self, clock: Clock, queues: Sequence[str]) -> None:
        self._clock = clock
        self._monotonic = clock.monotonic
        self._only_queue = queues[0] if len(queues) == 1 else None
        self._rows: dict[tuple[datetime, str], list[int]] = {}  # what the store does not have yet
        self._minute = EPOCH
        self._minute_ends = 0.0  # monotonic
        self._now_rows: dict[str, list[int]] = {}  # those of the current minute, by queue
        self._only_row: list[int] | None = None  # that of the only queue
        self._timed = 0  # since the last flush
        self._skip = 0  # how many executions to pass over before the next one is timed
        self._flush_at = clock.monotonic() + FLUSH_INTERVAL_S

    def add(self, batch: Sequence[Decided], others: Sequence[Decided] = ()) -> None:
        """Count outcomes that the store has recorded; `others`: those of them that are not an Ack."""
        monotonic, size = self._monotonic, len(batch)
        if monotonic() >= self._minute_ends:
            self._begin_minute()
        row = self._only_row
        if row is not None:
            row[_DONE] += size
        else:
            for queue, number in Counter(delivery.job.queue for delivery, _ in batch).items():
                self._row(queue)[_DONE] += number
        for delivery, outcome in others:
            _count_other(self._row(delivery.job.queue), delivery, outcome)
        if self._timed < TIMED_EACH:
            self._time(batch, 0, 1)
        elif self._skip < size:
            self._time(batch, self._skip, TIMED_ONE_OF)
        else:
            self._skip -= size

    def lost(self, queue: str) -> None:
        """Count an execution that was lost, as the next one of that job learns."""
        if self._monotonic() >= self._minute_ends:
            self._begin_minute()
        self._row(queue)[_LOST] += 1

    def _begin_minute(self) -> None:
        now = self._clock.now()
        self._minute = now.replace(second=0, microsecond=0)
        self._minute_ends = self._monotonic() + 60.0 - (now - self._minute).total_seconds()
        self._forget_rows()

    def _forget_rows(self) -> None:
        self._now_rows, self._only_row = {}, None

    def _time(self, batch: Sequence[Decided], place: int, weight: int) -> None:
        """Count run times and waiting times, of each execution from `place` on or of one in `weight`."""
        while place < len(batch):
            delivery = batch[place][0]
            place += weight
            if delivery.started:  # else it was settled without being run
                job = delivery.job
                row = self._row(job.queue)
                _count_time(row, _RAN_MS, _RAN, int(delivery.seconds * 1000), weight)
                if job.began_at is not None:
                    due = job.created_at if job.run_at is None or job.run_at < job.created_at else job.run_at
                    waited = job.began_at - due
                    milliseconds = (waited.days * 86_400 + waited.seconds) * 1000 + waited.microseconds // 1000
                    _count_time(row, _WAITED_MS, _WAITED, milliseconds, weight)
                self._timed += 1
        self._skip = place - len(batch)

    async def flush(self, driver: Driver, *, now: bool = False) -> None:
        """Send what was counted, if it is time. What cannot be sent is kept, and its error raised."""
        if not now and self._clock.monotonic() < self._flush_at:
            return
        self._flush_at = self._clock.monotonic() + FLUSH_INTERVAL_S
        self._timed = 0
        while self._rows:
            taken = dict(islice(self._rows.items(), MAX_SENT_ROWS))
            for key in taken:
                del self._rows[key]
            self._forget_rows()
            try:
                rows = [part for key, row in taken.items() for part in _figures(key, row)]
                await driver.add_figures(rows, self._clock.now())
            except InvalidJob:  # it would be refused again
                raise
            except BaseException:
                self._keep(taken)
                raise

    def _row(self, queue: str) -> list[int]:
        row = self._now_rows.get(queue)
        if row is None:
            row = self._now_rows[queue] = self._rows.setdefault((self._minute, queue), [0] * len(NAMES))
            if queue == self._only_queue:
                self._only_row = row
            if len(self._rows) > MAX_KEPT_ROWS:
                del self._rows[next(iter(self._rows))]
        return row

    def _keep(self, taken: dict[tuple[datetime, str], list[int]]) -> None:
        """Add what could not be sent to what was counted meanwhile; the oldest goes first where it is too much."""
        for key, row in taken.items():
            known = self._rows.get(key)
            self._rows[key] = row if known is None else [a + b for a, b in zip(known, row, strict=True)]
        self._forget_rows()
        ordered = sorted(self._rows.items())
        self._rows = dict(ordered[-MAX_KEPT_ROWS:])


def _count_time(row: list[int], sum_at: int, histogram_at: int, milliseconds: int, weight: int) -> None:
    milliseconds = max(milliseconds, 0)  # the clocks of two machines may differ
    row[sum_at] += milliseconds * weight
    row[histogram_at + bucket_of(milliseconds)] += weight


def _count_other(row: list[int], delivery: Delivery, outcome: Outcome) -> None:
    job = delivery.job
    row[_DONE] -= 1
    if type(outcome) is Fail:
        row[_COLUMN["dead"]] += 1
        if outcome.attempts == job.attempts:
            return  # lost too often: it was not executed
    kind = kind_of(job, outcome, timed_out=delivery.stop_reason == TIMEOUT, snoozed=delivery.why == SNOOZED)
    if kind is AttemptKind.TIMEOUT:
        row[_COLUMN["timeout"]] += 1
        kind = AttemptKind.FAILED
    row[_COLUMN[kind.value]] += 1


def _figures(key: tuple[datetime, str], row: list[int]) -> Iterator[Figures]:
    """A row as a store takes it: in parts, which it adds up, where a number is too large. (Ten thousand jobs that have
    waited for an hour come to 36,000,000,000 ms.)"""
    counts = {name: number for name, number in zip(NAMES, row, strict=True) if number}
    for _ in range(MAX_PARTS):
        if not counts:
            return
        yield Figures(*key, {name: min(number, INT_MAX) for name, number in counts.items()})
        counts = {name: number - INT_MAX for name, number in counts.items() if number > INT_MAX}
