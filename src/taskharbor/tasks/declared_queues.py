"""The queues of a program: those that its tasks declare, and those that it names for calls.

A call may name any queue with `.options(queue=…)`. A queue that no task declares is served only by a worker that names
it; without one its jobs wait for ever. So the log warns of it, once. A program that lists its queues may use no others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from taskharbor.model.bounds import check_name
from taskharbor.model.job import JobRecord
from taskharbor.model.validation import did_you_mean

logger = logging.getLogger("taskharbor")

MAX_WARNINGS = 10
"""Queues that the log warns of: a program that makes names at run time must not fill its log."""


class Queues:
    """The queues that may be used. `declared` returns those of the tasks; it is called only for a new name."""

    def __init__(self, listed: Iterable[str] | None, declared: Callable[[], frozenset[str]]) -> None:
        self.listed = None if listed is None else _names(listed)
        self._declared = declared
        self._known: set[str] = set()
        self._warnings = 0
        self.has_tasks = False  # a program without tasks only enqueues: which queues others serve, it cannot know

    def check(self, queue: str | None, who: str) -> None:
        """ValueError for a queue that is not among those that the program lists."""
        if self.listed is None or queue is None or not isinstance(queue, str):
            return
        known = self._declared() | self.listed
        if queue not in known:
            raise ValueError(
                f"{who}: queue: expected one of those that Harbor(queues=…) lists, got {queue!r}; "
                f"{did_you_mean(queue, known)}they are: {', '.join(sorted(known))}"
            )

    def warn_of_undeclared(self, records: Sequence[JobRecord]) -> None:
        """Warn once of each queue that got a job and that `harbor.worker()` does not serve."""
        if self.has_tasks and self._warnings < MAX_WARNINGS:
            known = self._known
            for record in records:
                if record.queue not in known:
                    self._check_declared(record.queue)

    def _check_declared(self, queue: str) -> None:
        self._known.add(queue)
        if queue not in self._declared() and (self.listed is None or queue not in self.listed):
            self._warnings += 1
            logger.warning(
                "the queue %r got a job, but no task declares it, so harbor.worker() does not serve it: list it in "
                "Harbor(queues=[…]), or run a worker that does, with harbor.worker(queues=[…]) or --queues (once)",
                queue,
            )


def _names(listed: Any) -> frozenset[str]:
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        raise TypeError(f"queues: expected a list of queue names, got {type(listed).__name__}")
    # A member of a StrEnum counts as its text.
    names = [str.__str__(name) if isinstance(name, str) else name for name in listed]
    for name in names:
        check_name(name, "queues")
    return frozenset(names)
