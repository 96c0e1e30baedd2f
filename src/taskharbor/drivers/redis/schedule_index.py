"""The index of schedules: which queue has the row of a name. lua/lib/schedules_read.lua describes it.

No key of it bears the hash tag of a queue, so it neither makes a queue known nor keeps one.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from taskharbor.drivers.redis.records import name_of
from taskharbor.model.bounds import check_name
from taskharbor.model.errors import InvalidJob
from taskharbor.model.safe_repr import shown

HOME = "th:schedules"
INDEX = "{th:schedules}:names"
SLOW_MS = 5_000  # a row that has been on its way between hash slots for this long may have lost its client


class ScheduleEntry(NamedTuple):
    """One name in the index. `claim` is empty on one server; on a Cluster it is the token of the row's arrival."""

    name: str
    queue: str
    claim: str = ""

    def data(self) -> bytes:
        return f"{self.name}\n{self.queue}\n{self.claim}".encode()

    @staticmethod
    def read(data: bytes) -> ScheduleEntry | None:
        """The entry; None if another program wrote it.

        >>> ScheduleEntry.read(ScheduleEntry("nightly", "reports").data())
        ScheduleEntry(name='nightly', queue='reports', claim='')
        """
        parts = data.split(b"\n")
        if len(parts) != 3:
            return None
        name, queue, claim = storable_name(parts[0]), storable_name(parts[1]), name_of(parts[2])
        return None if name is None or queue is None or claim is None else ScheduleEntry(name, queue, claim)


class PackedChange(NamedTuple):
    """A change as change_schedules.lua takes it. `to`: queue, revision and value of the row."""

    name: str
    expect: str | Literal[False]
    to: tuple[str, str, Any] | Literal[False]
    jobs: list[Any]

    def __repr__(self) -> str:
        return shown(self, "name")


def storable_name(data: bytes) -> str | None:
    """A name; None for anything that no schedule and no queue can be called."""
    text = name_of(data)
    return text if text is not None and is_name(text) else None


def is_name(text: str) -> bool:
    """Whether a schedule, a queue or a revision can be called so."""
    try:
        check_name(text, "name")
    except InvalidJob:
        return False
    return True
