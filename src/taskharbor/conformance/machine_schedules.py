"""What the state machine does with schedules: numbers turned into changes of rows, and what was sent before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from taskharbor.conformance.actions import QUEUES, SCHEDULE_NAMES, SECOND
from taskharbor.conformance.twins import Twins
from taskharbor.drivers import JobRecord, ScheduleChange, StoredSchedule


class ScheduleWalk:
    """The changes of one walk."""

    def __init__(self, twins: Twins, prefix: str) -> None:
        self.twins = twins
        self.prefix = prefix
        self.sent: list[list[ScheduleChange]] = []
        self._revisions: dict[str, list[str]] = {}  # of each schedule, those that it was to have
        self._made = 0

    def changes(
        self, given: Sequence[tuple[int, int, int | None, int | None]], jobs: Sequence[Sequence[JobRecord]]
    ) -> list[ScheduleChange]:
        """What one call makes. `given`, for each: which schedule, what the caller saw, its queue, when it is due."""
        stored = {name: row.revision for name, row in self.twins.model.schedules.items()}
        changes = [self._change(stored, *each, jobs[place]) for place, each in enumerate(given)]
        self.sent.append(changes)
        return changes

    def _change(
        self,
        stored: dict[str, str],
        number: int,
        seen: int,
        queue: int | None,
        next_at: int | None,
        jobs: Sequence[JobRecord],
    ) -> ScheduleChange:
        """Mostly from the revision that the row will have by then; else from none, or from an older one."""
        name = self.prefix + SCHEDULE_NAMES[number]
        older = self._revisions.setdefault(name, [])
        expect = stored.get(name)
        if seen == 0:
            expect = None
        elif seen == 1 and older:
            expect = older[-min(len(older), 2)]
        happens = expect == stored.get(name)
        if queue is None:
            if happens:
                stored.pop(name, None)
            return ScheduleChange(name=name, expect=expect, to=None)
        self._made += 1
        to = StoredSchedule(
            name=name,
            queue=self.prefix + QUEUES[queue],
            revision=f"{self.prefix}r{self._made}",
            next_at=None if next_at is None else self.twins.now + next_at * SECOND,
            body=b"%d" % self._made,
        )
        older.append(to.revision)
        if happens:
            stored[name] = to.revision
        plain: dict[str, Any] = {"queue": to.queue, "depends_on": (), "flow_id": None, "idempotency_key": None}
        return ScheduleChange(name=name, expect=expect, to=to, jobs=tuple(replace(job, **plain) for job in jobs))
