"""How long one call of a client may take: opening the store and all of its tries together, whatever the store does.

A store that refuses is asked again, five times in all; one that stands still is waited for until the budget is spent.
Either way the caller hears what was tried, for how long, and what is in doubt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.job import JobRecord
from taskharbor.model.times import Duration, duration

CALL_TIMEOUT = timedelta(seconds=10)


def seconds_of(call_timeout: Duration | None, default: float) -> float:
    """A call's own budget, or the default; ValueError or TypeError for what is none."""
    return default if call_timeout is None else duration(call_timeout, "call_timeout", zero=False).total_seconds()


class Budget:
    """The time of one call, on the running loop. `what` names the call, `doubt` says what nobody knows if it fails."""

    __slots__ = ("_began", "doubt", "last", "reached", "tries", "until", "what")

    def __init__(self, seconds: float, what: str, doubt: Callable[[], str] | None = None) -> None:
        self._began = asyncio.get_running_loop().time()
        self.until = self._began + seconds
        self.what = what
        self.doubt = doubt
        self.tries = 0
        self.reached = False  # whether the store was open, so that something may have been sent to it
        self.last: BackendUnavailable | None = None

    def refused(self, error: BackendUnavailable) -> BackendUnavailable:
        """It was tried often enough."""
        return self._made(
            f"{str(error).rstrip('.')} ({self.what}, tried {self._times()} in {self._spent():.1f} s)", error
        )

    def spent(self) -> BackendUnavailable:
        """The time is over while the store was asked, or during a pause."""
        how = "did not answer" if self.reached else "could not be opened"
        last = f"; before that: {str(self.last).rstrip('.')}" if self.last is not None else ""
        text = f"{self.what}: the store {how} within {self.until - self._began:g} s (tried {self._times()}{last})"
        return self._made(text, self.last)

    def _made(self, text: str, error: BackendUnavailable | None) -> BackendUnavailable:
        doubt = f". {self.doubt()}" if self.doubt is not None and self.reached else ""
        made = BackendUnavailable(text + doubt)
        if error is not None:
            made.lasting = error.lasting
            made.__cause__ = error.__cause__ or error
        return made

    def _times(self) -> str:
        return "once" if self.tries == 1 else f"{self.tries} times"

    def _spent(self) -> float:
        return asyncio.get_running_loop().time() - self._began


def in_doubt(records: Sequence[JobRecord]) -> str:
    """What nobody knows if the answer to an enqueue is lost, and what to do about it."""
    first = records[0]
    if len(records) > 1:
        what, others = "The jobs", f" and the {len(records) - 1} other(s)"
    else:
        what, others = "The job", ""
    told = f"{what} may or may not be stored; client.handle({first.id!r}).status() says it later"
    if all(record.idempotency_key is not None for record in records):
        return f"{told}. Enqueue again with the same idempotency key{'s' if others else ''}: it is stored once"
    return (
        f"{told}. Enqueued again it may be stored twice: give it{others} an idempotency_key, then it can always be "
        "sent again"
    )
