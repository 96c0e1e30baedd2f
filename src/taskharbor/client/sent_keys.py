"""Key conflicts: an idempotency key that was enqueued before with other arguments.

A store returns that it knows a key, not with which arguments, so it cannot tell this mistake from a second click. A
client therefore remembers a hash of the job for each key that it has sent. A key that the store knows and that this
client sent with another job is a conflict. Keys of other processes are not seen. It costs no call to the store, and
nothing for jobs without a key.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence

from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued

MAX_REMEMBERED_KEYS = 1024

_all: weakref.WeakSet[SentKeys] = weakref.WeakSet()


class SentKeys:
    """The newest keys that one client has sent. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: dict[tuple[str, str], int] = {}
        _all.add(self)

    def conflicts(self, records: Sequence[JobRecord], results: Sequence[Enqueued]) -> list[tuple[JobRecord, str]]:
        """The jobs that were not stored because another job has their key, each with the id of that job."""
        conflicts = []
        for record, result in zip(records, results, strict=True):
            if record.idempotency_key is not None:
                place, mark = (record.queue, record.idempotency_key), hash((record.type, record.payload))
                with self._lock:
                    known = self._sent.get(place)
                    if known is None or not result.existed:
                        self._remember(place, mark)
                    elif known != mark:
                        conflicts.append((record, result.id))
        return conflicts

    def forget_lock(self) -> None:
        """In a forked child: a thread that holds the lock is the parent's."""
        self._lock = threading.Lock()

    def _remember(self, place: tuple[str, str], mark: int) -> None:
        self._sent.pop(place, None)  # so that it counts as new
        self._sent[place] = mark
        if len(self._sent) > MAX_REMEMBERED_KEYS:
            del self._sent[next(iter(self._sent))]


def _forget_locks() -> None:
    for keys in list(_all):
        keys.forget_lock()


os.register_at_fork(after_in_child=_forget_locks)
