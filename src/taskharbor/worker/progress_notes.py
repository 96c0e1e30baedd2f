"""Progress on its way into the store: what `ctx.progress` reports is kept with the delivery until the heart takes it.

    ctx.progress (any thread) ─► delivery.progress ─► the heart: driver.extend(…, notes=…) ─► delivery.noted

A renewal takes along what waits. Between two renewals what waits wakes the heart, at most every two seconds for all
jobs of a worker together. A job that reports nothing costs nothing: no call, no wake-up. What a handler gives is never
refused: what cannot be stored is left out.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from taskharbor.model.bounds import replace_unstorable
from taskharbor.model.clock import Clock
from taskharbor.model.progress import Progress, write_note
from taskharbor.worker.delivery import Delivery
from taskharbor.worker.error_masking import masked_text

NOTES_INTERVAL_S = 2.0  # between two calls that only store progress


def progress_of(done: Any, total: Any, note: Any, at: datetime) -> Progress | None:
    """What a handler reported, as it can be stored; None if that is nothing.

    >>> progress_of(3, float("nan"), "pages", datetime(2030, 1, 1)).total is None
    True
    """
    number = _finite(done)
    if number is None:
        return None
    words = replace_unstorable(str.__str__(note)) if issubclass(type(note), str) else ""
    return Progress(done=number, total=None if total is None else _finite(total), note=words, at=at)


def _finite(value: Any) -> float | None:
    try:
        number = float(value) if not issubclass(type(value), str | bytes | bytearray) else math.nan
        return number if type(number) is float and math.isfinite(number) else None
    except Exception:  # not a number, too large, or an object of the user's own that raises
        return None


class NoteGate:
    """Wakes the heart when progress waits, but not too often. `signal` is safe from any thread."""

    def __init__(self) -> None:
        self.waiting = False  # progress waits to be stored
        self._sent_at = -math.inf  # monotonic; when the heart last took what waited
        self._wake: Callable[[], object] | None = None

    def signal(self) -> None:
        """Progress waits. Only the first one since the last `take` wakes the heart."""
        if not self.waiting:
            self.waiting = True
            if self._wake is not None:
                self._wake()

    def take(self, clock: Clock) -> None:
        """The heart is about to collect what waits: what is reported from here on signals again."""
        self.waiting = False
        self._sent_at = clock.monotonic()

    async def wait(self, clock: Clock) -> None:
        """Return when progress waits, and the last call that stored some is long enough ago."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(woken.set)
            except RuntimeError:
                return  # the loop of the heart is closed

        self._wake = wake
        while True:
            if not self.waiting:  # after the assignment: what is reported meanwhile either shows here or wakes
                woken.clear()
                await woken.wait()
            left = self._sent_at + NOTES_INTERVAL_S - clock.monotonic()
            if left <= 0:
                return
            await clock.sleep(left)  # meanwhile a renewal may take along what waits


class ProgressNotes:
    """What the handlers of one worker have reported."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.gate = NoteGate()

    def report(self, delivery: Delivery, done: Any, total: Any, note: Any) -> None:
        """Keep what a handler reported; called in its thread. Words are masked here, where its values are known."""
        progress = progress_of(done, total, note, self._clock.now())
        if progress is None or delivery.decided:
            return
        handler = delivery.handler
        if progress.note and handler is not None:
            words = masked_text(delivery.job, handler.signature.codec, progress.note)
            progress = replace(progress, note=words)
        delivery.progress = progress
        self.gate.signal()

    def take(self, deliveries: Iterable[Delivery]) -> dict[str, Progress]:
        """What waits to be stored, by the token of its lease. (After `gate.take`, so that nothing is missed.)"""
        waiting = [(each, each.progress) for each in deliveries]  # read once: a handler may report more meanwhile
        return {each.lease.token: new for each, new in waiting if new is not None and new is not each.noted}


def written(notes: dict[str, Progress]) -> dict[str, bytes]:
    """Progress as a store keeps it."""
    return {token: write_note(progress) for token, progress in notes.items()}
