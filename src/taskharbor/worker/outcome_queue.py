"""The outcome queue: what the executor has decided and the settler has not yet written.

It is made before both of them, so that neither knows the other. It belongs to the worker's loop.
"""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from taskharbor.model.outcome import Outcome
from taskharbor.worker.delivery import Delivery

Decided: TypeAlias = tuple[Delivery, Outcome]
"""A delivery and the outcome to settle it with."""


class OutcomeQueue:
    """First in, first out. With `max_outcomes` of them it is full, and the fetcher takes no more jobs."""

    __slots__ = ("_max_outcomes", "changed", "waiting")

    def __init__(self, max_outcomes: int) -> None:
        self.waiting: list[Decided] = []
        self.changed = asyncio.Event()  # set when the queue stops being empty; the settler clears it
        self._max_outcomes = max_outcomes

    def submit(self, delivery: Delivery, outcome: Outcome) -> None:
        """Add an outcome. Call it on the worker's loop."""
        waiting = self.waiting
        if not waiting:
            self.changed.set()
        waiting.append((delivery, outcome))

    def take(self, limit: int) -> list[Decided]:
        """Remove the oldest outcomes, at most `limit`, and return them."""
        batch = self.waiting[:limit]
        del self.waiting[:limit]
        return batch

    @property
    def is_full(self) -> bool:
        """Whether the settler is so far behind that no more jobs should be taken."""
        return len(self.waiting) >= self._max_outcomes

    @property
    def is_nearly_full(self) -> bool:
        """Whether three quarters are taken: from here on the settler should not wait for more."""
        return len(self.waiting) >= self._max_outcomes * 3 // 4
