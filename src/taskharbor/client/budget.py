"""How long one call of a client may take: opening the store and all tries together, whatever the store does.

A call that the store refuses is repeated, five times in all. For a store that does not respond it waits until the
budget is spent. Either way the error says what was tried, for how long, and what is unknown now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from taskharbor.client.access import StoreAccess
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.job import JobRecord
from taskharbor.model.times import Duration, duration

CALL_TIMEOUT = timedelta(seconds=10)
RESOLUTION_S = 0.001  # of every clock here: what is left after rounding is not worth waiting for


def seconds_of(limit: Duration, name: str) -> float:
    """How long a call may take; ValueError or TypeError for an invalid limit."""
    return duration(limit, name, zero=False).total_seconds()


class Budget:
    """The time of one call, by the clock of its `access`. `what` names the call; `doubt` says what is unknown if the
    call fails after the store was reached."""

    __slots__ = ("_began", "access", "deadline", "doubt", "in_handler", "last", "method", "reached", "tries", "what")

    def __init__(self, access: StoreAccess, seconds: float, what: str, doubt: Callable[[], str] | None = None) -> None:
        self.access = access
        self._began = access.time()
        self.deadline = self._began + seconds
        self.what = what
        self.doubt = doubt
        self.method = what  # as the caller wrote it: "aresult"
        self.in_handler = False  # whether a handler of a worker made a call that may wait for jobs
        self.tries = 0
        self.reached = False  # whether the store was open, so that something may have been sent to it
        self.last: BackendUnavailable | None = None  # the error of the last try that failed in time

    def again(self, what: str = "") -> Budget:
        """A new budget for another call of the same caller: for each read of one that polls."""
        return Budget(self.access, self.deadline - self._began, what or self.what)

    def left(self) -> float:
        """Seconds until the deadline, never less than 0."""
        return max(self.deadline - self.access.time(), 0.0)

    def is_spent(self) -> bool:
        """Whether the deadline has come."""
        return self.left() < RESOLUTION_S

    def cause(self, error: BackendUnavailable | None = None) -> BaseException | None:
        """What the error of this call is raised from: the driver's own error, or what that was raised from."""
        error = error or self.last
        return None if error is None else error.__cause__ or error

    def refused(self, error: BackendUnavailable | None) -> BackendUnavailable:
        """The error for a call that failed in time, and is not tried again."""
        text = str(error).rstrip(".")
        return self._error(f"{text} ({self.what}, tried {self._times()} in {self._elapsed():.1f} s)", error)

    def spent(self) -> BackendUnavailable:
        """The error for a call whose time is over."""
        how = "did not answer" if self.reached else "could not be opened"
        last = f"; before that: {str(self.last).rstrip('.')}" if self.last is not None else ""
        text = f"{self.what}: the store {how} within {self.deadline - self._began:g} s (tried {self._times()}{last})"
        return self._error(text, self.last)

    def _error(self, text: str, error: BackendUnavailable | None) -> BackendUnavailable:
        doubt = f". {self.doubt()}" if self.doubt is not None and self.reached else ""
        made = BackendUnavailable(text + doubt)
        if error is not None:
            made.lasting = error.lasting
            made.__cause__ = self.cause(error)
        return made

    def _times(self) -> str:
        return "once" if self.tries == 1 else f"{self.tries} times"

    def _elapsed(self) -> float:
        return self.access.time() - self._began


def in_doubt(records: Sequence[JobRecord]) -> str:
    """What is unknown if the reply to an enqueue is lost, and what to do about it."""
    first = records[0]
    if len(records) > 1:
        what, others = "The jobs", f" and the {len(records) - 1} other(s)"
    else:
        what, others = "The job", ""
    unknown = f"{what} may or may not be stored; harbor.job({first.id!r}).status() says it later"
    if all(record.idempotency_key is not None for record in records):
        return f"{unknown}. Enqueue again with the same idempotency key{'s' if others else ''}: it is stored once"
    return (
        f"{unknown}. Enqueued again it may be stored twice: give it{others} an idempotency_key, then it can always be "
        "sent again"
    )
