"""The store's clock: the machine's, whose steps move no lease.

`taskharbor_meta` holds how far the machine's two clocks were apart, the one that is set and the one that only counts.
When they have parted by more than a second, the clock was set (or the machine was asleep). The first process that reads
it then moves all leases by the same step, in the same transaction. As long as they have not parted, a reading costs no
look at the store. Other processes learn of a step with their own next reading, a few seconds later. Until then the
driver adds it to the times that they give: `Reading.step`, and `{now}` in statements.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from functools import lru_cache

from msgspec import structs

from taskharbor.drivers.sqlite.session import ReadSession, WriteSession
from taskharbor.drivers.sqlite.statements import statement
from taskharbor.model.lease import Lease
from taskharbor.model.times import from_ms

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
        self.now = max(self.now, now) if stepped == self.stepped else now
        self.stepped, self._apart = stepped, apart
        return self.now

    def step(self, session: ReadSession) -> timedelta:
        """By how much the clock was set since the last reading."""
        (stepped,) = session.one(STEPPED)
        return timedelta(0) if self.stepped is None else timedelta(microseconds=stepped - self.stepped)


def follow_step(session: WriteSession, reading: Reading) -> datetime:
    """The present. If the clock was set since the last reading of any process, all leases move by the same step."""
    boot, apart, stepped = session.one(LOAD)
    ms, apart_now = _read()
    step = apart_now - apart
    if boot != _boot():  # no process of ours has outlived that
        apart = apart_now
        session.do(SAVE, _boot(), apart, stepped)
    elif abs(step) > STEP_US:
        apart, stepped = apart_now, stepped + step
        session.do(SAVE, boot, apart, stepped)
        _step(session, step)
    return reading.take(ms, apart, stepped)


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
        return "unknown"
