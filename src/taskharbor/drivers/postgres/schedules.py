"""Schedules: rows that become due, and are changed together with the jobs that they store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from taskharbor.drivers.connections import Rows
from taskharbor.drivers.cursor import encode_due, encode_schedule
from taskharbor.drivers.postgres.calls import PostgresCalls
from taskharbor.drivers.postgres.enqueue import MAX_CALL_BYTES
from taskharbor.drivers.postgres.records import base64_of, nearest_moment, optional_moment, optional_us, to_json, to_row
from taskharbor.drivers.postgres.statement import array
from taskharbor.drivers.queries import DueQuery, ScheduleQuery
from taskharbor.model.bounds import check_name, check_schedule_changes
from taskharbor.model.errors import InvalidJob
from taskharbor.model.schedule import ScheduleChange, SchedulePage, StoredSchedule
from taskharbor.model.times import to_us

BATCH_CHANGES = 1_000
BATCH_BYTES = 16 << 20  # of bodies and payloads: a statement is in the memory several times
_COLUMNS = "name, queue, revision, next_at, body"


def change_batches(changes: Sequence[ScheduleChange], max_payload: int) -> list[list[ScheduleChange]]:
    """The changes in order, in batches that are a transaction each; InvalidJob if one of them cannot be stored."""
    check_schedule_changes(changes, max_payload)
    batches: list[list[ScheduleChange]] = []
    left = 0
    for change in changes:
        size = _size(change)
        if not batches or size > left or len(batches[-1]) == BATCH_CHANGES:
            batches.append([])
            left = BATCH_BYTES
        batches[-1].append(change)
        left -= size
    return batches


def _size(change: ScheduleChange) -> int:
    size = sum(len(job.payload) for job in change.jobs)
    if size > MAX_CALL_BYTES:
        raise InvalidJob(
            f"jobs: expected payloads of at most {MAX_CALL_BYTES >> 20} MiB together in one change, got {size >> 20}; "
            "store them with several changes"
        )
    return size if change.to is None else size + len(change.to.body)


class PostgresSchedules(PostgresCalls):
    """The calls about schedules."""

    async def change_schedules(self, changes: Sequence[ScheduleChange], now: datetime) -> list[bool]:
        """Sent twice, a batch of changes is made once."""
        results: list[bool] = []
        for batch in change_batches(changes, self._options.max_payload):
            jobs, position = [], 0
            for change in batch:
                jobs.append([to_row(job, position + place) for place, job in enumerate(change.jobs)])
                position += len(change.jobs)
            rows = await self._call(
                "change_schedules(text, text, bigint)",
                to_json([_change(change, place) for place, change in enumerate(batch)]),
                to_json(jobs) if position else None,
                to_us(now),
            )
            results += rows[0][0]
        return results

    async def list_schedules(self, wanted: ScheduleQuery) -> SchedulePage:
        names = None if wanted.names is None else array(wanted.names)
        given = (names, wanted.queue, wanted.after or "", wanted.limit + 1)
        rows = await self._call("list_schedules(text, text, text, integer)", *given, columns=_COLUMNS)
        cursor = encode_schedule(rows[wanted.limit - 1][0]) if len(rows) > wanted.limit else None
        return SchedulePage(_sound(rows[: wanted.limit]), cursor)

    async def list_due_schedules(self, wanted: DueQuery) -> SchedulePage:
        at, name = (0, "") if wanted.after is None else (to_us(wanted.after[0]), wanted.after[1])
        given = (array(wanted.queues), to_us(wanted.now), at, name, wanted.limit + 1)
        function = "due_schedules(text, bigint, bigint, text, integer)"
        *rows, (*_, upcoming, _) = await self._call(function, *given, columns=_COLUMNS)
        cursor = None
        if len(rows) > wanted.limit:
            last = rows[wanted.limit - 1]
            cursor = encode_due(nearest_moment(last[3]), last[0])
        return SchedulePage(_sound(rows[: wanted.limit]), cursor, optional_moment(upcoming))


def _change(change: ScheduleChange, position: int) -> dict[str, Any]:
    given: dict[str, Any] = {"o": position, "name": change.name, "expect": change.expect}
    to = change.to
    if to is not None:
        given |= {"revision": to.revision, "queue": to.queue, "body": base64_of(to.body)}
        given["next_at"] = optional_us(to.next_at)
    return given


def _sound(rows: Rows) -> tuple[StoredSchedule, ...]:
    """The schedules of rows. One whose names no client can have stored is left out: no change could name it."""
    found = []
    for name, queue, revision, next_at, body in rows:
        try:
            for text in (name, queue, revision):
                check_name(text, "name")
        except InvalidJob:
            continue
        moment = optional_moment(next_at)
        found.append(StoredSchedule(name=name, queue=queue, revision=revision, next_at=moment, body=body))
    return tuple(found)
