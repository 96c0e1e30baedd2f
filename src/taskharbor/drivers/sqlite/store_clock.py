"""The store's clock: the machine's, whose steps move no lease.

`taskharbor_meta` holds how far the machine's two clocks were apart, the one that is set and the one that only counts.
When they have parted by more than a second, the clock was set (or the machine was asleep). The first process that reads
it then moves all leases by the same step, in the same transaction. As long as they have not parted, a reading costs no
look at the store. Other processes learn of a step with their own next reading, a few seconds later. Until then the
driver adds it to the times that they give: `step_since`, and `{now}` in statements.

Those times come from a caller's clock, which takes a reading over a little later than the driver: others may have asked
for it. `Reading.stepped_at` tells which reading such a time comes from.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from functools import lru_cache

from msgspec import structs

from taskharbor.drivers.sqlite.session import ReadSession, WriteSession
from taskharbor.drivers.sqlite.statements import statement
from taskharbor.model.lease import Lease
from taskharbor.model.times import from_ms, to_us

UNKNOWN_BOOT = "unknown"
STEP_US = 1_000_000  # smaller ones are followed as they come
LOAD = "SELECT boot, apart, stepped FROM taskharbor_meta"
SAVE = "UPDATE taskharbor_meta SET boot = ?, apart = ?, stepped = ?"
STEP_LEASES = statement("step_leases")
STEP_DUE = statement("step_due")
STEPPED = "SELECT stepped FROM taskharbor_meta"


class Reading:
    """The last reading of a driver and its siblings: the clock of a worker follows it."""

    def __init__(self) -> None:
        self.now = from_ms(0)
        self.stepped: int | None = None  # by how much the clock was set since the store was made; None: not read yet
        self._before: int | None = None  # the same of the reading before the last step
        self._apart = 0  # how far the machine's clocks were apart

    def present(self) -> datetime | None:
        """A new reading, without a look at the store; None if the clock was set, or was never read: `follow_step`."""
        ms, apart = _read()
        if self.stepped is None or abs(apart - self._apart) > STEP_US:
            return None
        return self.take(ms, self._apart, self.stepped)

    def take(self, ms: int, apart: int, stepped: int) -> datetime:
        """A new reading. It goes back with a step only."""
        now = from_ms(ms)
        if stepped == self.stepped:
            now = max(self.now, now)
        else:
            self._before = self.stepped
        self.now, self.stepped, self._apart = now, stepped, apart
        return now

    def stepped_at(self, now: datetime) -> int | None:
        """`stepped` of the reading that a time of this moment comes from: the last one or, where the caller's clock has
        not taken that over yet, the one before it."""
        stepped, before = self.stepped, self._before
        if stepped is None or before is None:
            return stepped
        late_us = _read()[0] * 1000 - to_us(now)
        return stepped if abs(late_us) <= abs(late_us - (stepped - before)) else before


def step_since(session: ReadSession, stepped: int | None) -> timedelta:
    """By how much the clock was set since a reading."""
    (now_stepped,) = session.one(STEPPED)
    return timedelta(0) if stepped is None else timedelta(microseconds=now_stepped - stepped)


def follow_step(session: WriteSession, is_first: bool) -> tuple[int, int, int]:
    """A new reading, as `Reading.take` takes it once this is committed. If the clock was set since the last one of any
    process, all leases move by the same step. `is_first`: it is the first one of a driver."""
    boot, apart, stepped = session.one(LOAD)
    ms, apart_now = _read()
    step = apart_now - apart
    # No process of ours has outlived a start of the machine. Where the system does not name that, one that has read the
    # clock before tells it from a step.
    if boot != _boot() or (boot == UNKNOWN_BOOT and is_first):
        apart = apart_now
        session.do(SAVE, _boot(), apart, stepped)
    elif abs(step) > STEP_US:
        apart, stepped = apart_now, stepped + step
        session.do(SAVE, boot, apart, stepped)
        _step(session, step)
    return ms, apart, stepped


def machine_time(reading: Reading) -> datetime:
    """The present, without a look at the store."""
    ms, _ = _read()
    return max(reading.now, from_ms(ms))


def before_step(lease: Lease, step: timedelta) -> Lease:
    """A lease as its worker sees it, whose clock has not followed the step yet."""
    return structs.replace(lease, expires_at=lease.expires_at - step)


def _step(session: WriteSession, step: int) -> None:
    """Move what must not notice the step. A queue's own time moves back with its leases, so `lined` of those stays
    true; jobs that are due no longer leave the line. Forward, what has become due joins it with the next reserve."""
    if step > 0:
        session.do(STEP_LEASES, step, 0)
        return
    session.do(STEP_LEASES, step, 1)
    for (name,) in session.all("SELECT name FROM taskharbor_queues WHERE at > 0 ORDER BY name"):
        queue = session.queue(name)
        queue.at, queue.changed = max(queue.at + step, 0), True
        for _, group in sorted(session.all(STEP_DUE, name, queue.at), key=lambda row: row[0]):
            if group is not None:
                session.touch_group(name, group)


def _read() -> tuple[int, int]:
    """The machine's time in ms, and how far its two clocks are apart in µs."""
    wall, counted = time.time(), time.monotonic()
    return int(wall * 1000), int((wall - counted) * 1_000_000)


@lru_cache(maxsize=1)
def _boot() -> str:
    """Which start of the machine this is: the clock that counts begins anew with it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return UNKNOWN_BOOT
