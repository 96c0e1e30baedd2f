"""Schedules: rows by name that become due, and are changed together with the jobs that they store.

A row that another program damaged counts as absent. Listings leave it out, and a change that adds a schedule of its
name replaces it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any, TypeAlias

from taskharbor.drivers.cursor import encode_due, encode_schedule
from taskharbor.drivers.queries import DueQuery, ScheduleQuery
from taskharbor.drivers.sqlite.damage import is_name
from taskharbor.drivers.sqlite.enqueue import enqueue
from taskharbor.drivers.sqlite.records import LAST_MICROSECOND, ids_json, is_moment, maybe_us
from taskharbor.drivers.sqlite.session import ReadSession, WriteSession
from taskharbor.drivers.sqlite.statements import statement
from taskharbor.model.bounds import check_schedule_changes
from taskharbor.model.schedule import MAX_SCHEDULE_BYTES, ScheduleChange, SchedulePage, StoredSchedule
from taskharbor.model.times import from_us, to_us

REVISION = statement("schedule_revision")
PUT = statement("put_schedule")
DELETE = "DELETE FROM taskharbor_schedules WHERE name = ?"
LOAD = statement("schedule")
PAGE = statement("schedules")
PAGE_OF_QUEUE = statement("schedules_of_queue")
DUE_QUEUES = statement("due_queues")
DUE_PLACES = statement("due_places")
PLACES_PER_LOOK = 100  # of one queue: a page of many queues takes few from each

Place: TypeAlias = tuple[int, bytes]  # `next_at` and name


def change_schedules(
    session: WriteSession, changes: Sequence[ScheduleChange], now: datetime, max_payload: int
) -> list[bool]:
    """Apply changes in their order; InvalidJob if one of them cannot be stored, and then none is."""
    check_schedule_changes(changes, max_payload)
    return [_change(session, change, now, max_payload) for change in changes]


def _change(session: WriteSession, change: ScheduleChange, now: datetime, max_payload: int) -> bool:
    name, to = change.name.encode(), change.to
    stored = _revision(session, name)
    if to is not None and stored == to.revision:
        return True  # the reply to the same change was lost
    is_gone = stored is None and to is None
    if stored != change.expect and not is_gone:
        return False
    enqueue(session, change.jobs, now, max_payload)
    if to is None:
        session.execute(DELETE, (name,))  # also the remains of a damaged one
    else:
        session.execute(PUT, (name, to.queue, to.revision, maybe_us(to.next_at), to.body))
    return True


def _revision(session: WriteSession, name: bytes) -> str | None:
    """The revision of a stored schedule; None if there is none."""
    rows = session.execute(REVISION, {"name": name, "size": MAX_SCHEDULE_BYTES}).fetchall()
    if not rows:
        return None
    queue, revision, next_at, has_body = rows[0]
    return revision if has_body and _is_sound(queue, revision, next_at) else None


def list_schedules(session: ReadSession, wanted: ScheduleQuery) -> SchedulePage:
    """A page of schedules by name."""
    rows = _by_name(session, wanted) if wanted.names is None else _of_names(session, wanted, wanted.names)
    found = list(islice(rows, wanted.limit + 1))
    if len(found) <= wanted.limit:
        return SchedulePage(tuple(found))
    return SchedulePage(tuple(found[:-1]), encode_schedule(found[-2].name))


def _by_name(session: ReadSession, wanted: ScheduleQuery) -> Iterator[StoredSchedule]:
    sql = PAGE if wanted.queue is None else PAGE_OF_QUEUE
    after, count = "" if wanted.after is None else wanted.after, wanted.limit + 1
    given = {"size": MAX_SCHEDULE_BYTES, "queue": wanted.queue, "after": after.encode(), "count": count}
    while True:
        rows = session.execute(sql, given).fetchall()
        yield from (schedule for row in rows if (schedule := _schedule(*row)) is not None)
        if len(rows) < count:
            return
        given["after"] = rows[-1][0]


def _of_names(session: ReadSession, wanted: ScheduleQuery, names: Sequence[str]) -> Iterator[StoredSchedule]:
    for name in names if wanted.after is None else names[bisect_right(names, wanted.after) :]:
        schedule = _load(session, name.encode())
        if schedule is not None and wanted.queue in (None, schedule.queue):
            yield schedule


def list_due_schedules(session: ReadSession, wanted: DueQuery) -> SchedulePage:
    """A page of due schedules, and when the next one will be."""
    now = to_us(wanted.now)
    at, name = (0, b"") if wanted.after is None else (to_us(wanted.after[0]), wanted.after[1].encode())
    given = {"queues": ids_json(wanted.queues), "now": now, "at": at, "name": name, "last": LAST_MICROSECOND}
    lines, moments = [], []
    for queue, may_be_due, next_at in session.execute(DUE_QUEUES, given).fetchall():
        if may_be_due:
            lines.append(_places(session, queue, now, (at, name)))
        if next_at is not None:
            moments.append(next_at)
    upcoming = from_us(min(moments)) if moments else None
    due = ((place, schedule) for place in merge(*lines) if (schedule := _load(session, place[1])) is not None)
    found = list(islice(due, wanted.limit + 1))
    cursor = None
    if len(found) > wanted.limit:
        found.pop()
        (at, _), last = found[-1]
        cursor = encode_due(from_us(at), last.name)
    return SchedulePage(tuple(schedule for _, schedule in found), cursor, upcoming)


def _places(session: ReadSession, queue: str, now: int, after: Place) -> Iterator[Place]:
    """The places of a queue's due schedules behind one, in order."""
    while True:
        at, name = after
        given = {"queue": queue, "now": now, "at": at, "name": name, "count": PLACES_PER_LOOK}
        rows = session.execute(DUE_PLACES, given).fetchall()
        yield from rows
        if len(rows) < PLACES_PER_LOOK:
            return
        after = rows[-1]


def _load(session: ReadSession, name: bytes) -> StoredSchedule | None:
    rows = session.execute(LOAD, {"name": name, "size": MAX_SCHEDULE_BYTES}).fetchall()
    return _schedule(*rows[0]) if rows else None


def _schedule(name: bytes, queue: Any, revision: Any, next_at: Any, body: Any) -> StoredSchedule | None:
    """A schedule; None if another program damaged it."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return None
    if type(body) is not bytes or not is_name(text) or not _is_sound(queue, revision, next_at):
        return None
    moment = None if next_at is None else from_us(next_at)
    return StoredSchedule(name=text, queue=queue, revision=revision, next_at=moment, body=body)


def _is_sound(queue: Any, revision: Any, next_at: Any) -> bool:
    return is_name(queue) and is_name(revision) and (next_at is None or is_moment(next_at))
