"""Idempotency keys that came with other arguments: a mistake that a store cannot tell from a second click.

A store answers that it knows a key, not with which arguments. So a client remembers, for the keys that it has sent
itself, a hash of the job; a key that is known to the store and was sent before with something else is a conflict. What
other processes sent is not seen. It costs no look at the store, and nothing for jobs without a key.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued

REMEMBERED = 1024


class SentKeys:
    """The newest keys of one client. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: dict[tuple[str, str], int] = {}

    def conflicts(self, records: Sequence[JobRecord], answers: Sequence[Enqueued]) -> list[tuple[JobRecord, str]]:
        """The jobs that were not stored although they are others than the known one, each with the id of that."""
        found = []
        for record, answer in zip(records, answers, strict=True):
            if record.idempotency_key is not None:
                place, mark = (record.queue, record.idempotency_key), hash((record.type, record.payload))
                with self._lock:
                    known = self._sent.get(place)
                    if known is None or not answer.existed:
                        self._remember(place, mark)
                    elif known != mark:
                        found.append((record, answer.id))
        return found

    def _remember(self, place: tuple[str, str], mark: int) -> None:
        self._sent.pop(place, None)  # so that it counts as new
        self._sent[place] = mark
        if len(self._sent) > REMEMBERED:
            del self._sent[next(iter(self._sent))]
