"""Schedules: rows by name, and in each queue the places of those that will be due, in order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from datetime import datetime
from heapq import merge
from itertools import islice
from operator import itemgetter

from taskharbor.drivers.cursor import encode_due, encode_schedule
from taskharbor.drivers.memory.enqueue import enqueue
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.drivers.queries import DueQuery, ScheduleQuery
from taskharbor.model.bounds import check_schedule_changes
from taskharbor.model.schedule import ScheduleChange, SchedulePage, StoredSchedule


def change_schedules(
    store: MemoryStore, changes: Sequence[ScheduleChange], now: datetime, max_payload: int
) -> list[bool]:
    """Apply changes in their order; InvalidJob if one of them cannot be stored, and then none is."""
    check_schedule_changes(changes, max_payload)
    return [_change(store, change, now, max_payload) for change in changes]


def _change(store: MemoryStore, change: ScheduleChange, now: datetime, max_payload: int) -> bool:
    rows = store.schedules
    row, to = rows.get(change.name), change.to
    if row is None and to is None:
        return True
    if row is not None and to is not None and row.revision == to.revision:
        return True  # the reply to the same change was lost
    if (None if row is None else row.revision) != change.expect:
        return False
    enqueue(store, change.jobs, now, max_payload)
    if row is not None:
        _remove(store, row)
    if to is not None:
        _add(store, to)
    return True


def _add(store: MemoryStore, row: StoredSchedule) -> None:
    store.schedules[row.name] = row
    insort(store.schedule_names, row.name)
    if row.next_at is not None:
        insort(store.schedule_places.setdefault(row.queue, []), (row.next_at, row.name))


def _remove(store: MemoryStore, row: StoredSchedule) -> None:
    del store.schedules[row.name]
    del store.schedule_names[bisect_left(store.schedule_names, row.name)]
    if row.next_at is not None:
        places = store.schedule_places[row.queue]
        del places[bisect_left(places, (row.next_at, row.name))]
        if not places:
            del store.schedule_places[row.queue]


def list_schedules(store: MemoryStore, wanted: ScheduleQuery) -> SchedulePage:
    """A page of schedules by name."""
    names = store.schedule_names if wanted.names is None else wanted.names
    start = 0 if wanted.after is None else bisect_right(names, wanted.after)
    rows = (row for name in islice(names, start, None) if (row := store.schedules.get(name)) is not None)
    found = list(islice((row for row in rows if wanted.queue in (None, row.queue)), wanted.limit + 1))
    if len(found) <= wanted.limit:
        return SchedulePage(tuple(found))
    return SchedulePage(tuple(found[:-1]), encode_schedule(found[-2].name))


def list_due_schedules(store: MemoryStore, wanted: DueQuery) -> SchedulePage:
    """A page of due schedules, and when the next one will be."""
    lines, upcoming = [], None
    for queue in wanted.queues:
        places = store.schedule_places.get(queue, [])
        first = 0 if wanted.after is None else bisect_right(places, wanted.after)
        last = bisect_right(places, wanted.now, key=itemgetter(0))
        lines.append(places[first : min(last, first + wanted.limit + 1)])
        if last < len(places):
            upcoming = places[last][0] if upcoming is None else min(upcoming, places[last][0])
    found = list(islice(merge(*lines), wanted.limit + 1))
    cursor = None
    if len(found) > wanted.limit:
        found.pop()
        cursor = encode_due(*found[-1])
    return SchedulePage(tuple(store.schedules[name] for _, name in found), cursor, upcoming)
