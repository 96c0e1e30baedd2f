"""Schedules: rows that lie in one hash slot, so that one script compares a row, changes it and keeps its places right.

lua/lib/schedules_read.lua describes the keys. On one server the script that changes a row also stores its jobs. On a
Cluster a job lies in the hash slot of its queue. There the same script writes a message that brings the jobs, and the
client delivers it at once; if the client dies, a worker does (outbox.py). So a row and its jobs are decided together.
A message that comes twice stores its jobs once.

A listing first finds names or places, and then reads the rows. A row that has changed in between is shown as it is now,
or left out if it does not belong to the page any more. A listing leaves out and mends what another program damaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from taskharbor.drivers.cursor import encode_due, encode_schedule
from taskharbor.drivers.queries import DueQuery, ScheduleQuery
from taskharbor.drivers.redis.records import LAST_US, MOMENT_DIGITS, digits_of, name_of, stored
from taskharbor.drivers.redis.router import sliced
from taskharbor.drivers.redis.scripts import ScriptCall, binary
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.model.bounds import check_name
from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import EPOCH
from taskharbor.model.schedule import ScheduleChange, SchedulePage, StoredSchedule
from taskharbor.model.times import from_us, to_ms, to_us

HOME = "th:schedules"
NEVER = b"-" * MOMENT_DIGITS
MAX_CHANGES = 100  # in one script
MAX_JOBS = 1_000  # in one script
MAX_CHANGE_BYTES = 4_000_000  # of rows and payloads in one script, unless one change has more
MAX_READ_ROWS = 500  # in one script
MAX_ASKED_QUEUES = 1_000  # in one script
MAX_PLACES = 4_000  # that are asked for at once, of all queues together
MIN_PLACES = 16  # of each queue


class ListedName(NamedTuple):
    """The name of a schedule, and the sorted set in which it was found, with its member there. The name is None if no
    schedule can be called so: another program wrote the member."""

    name: str | None
    at: str = ""
    member: bytes = b""


# Changes


async def change_schedules(store: RedisStore, changes: Sequence[ScheduleChange], now: datetime) -> list[bool]:
    """Apply changes that were checked, in their order."""
    results: list[bool] = []
    for part in _parts(changes):
        results += await _change_part(store, part, to_ms(now))
    return results


def _parts(changes: Sequence[ScheduleChange]) -> Iterator[list[ScheduleChange]]:
    """Changes that may share a script. Each name once: repeated after a lost reply, a change must not meet the row of
    the one that follows it. Each job once: on a Cluster two queues must not take the same one at the same moment."""
    part: list[ScheduleChange] = []
    taken: set[tuple[str, str]] = set()  # names of schedules and ids of jobs
    jobs = size = 0
    for change in changes:
        own = {("schedule", change.name), *(("job", job.id) for job in change.jobs)}
        bytes_more = sum([len(job.payload) for job in change.jobs]) + (len(change.to.body) if change.to else 0)
        full = jobs + len(change.jobs) > MAX_JOBS or size + bytes_more > MAX_CHANGE_BYTES or len(part) == MAX_CHANGES
        if part and (full or own & taken):
            yield part
            part, taken, jobs, size = [], set(), 0, 0
        part.append(change)
        taken |= own
        jobs, size = jobs + len(change.jobs), size + bytes_more
    if part:
        yield part


async def _change_part(store: RedisStore, part: Sequence[ScheduleChange], now: int) -> list[bool]:
    router, jobs = store.router, [job for change in part for job in change.jobs]
    known = (await router.admit(jobs)).elsewhere if jobs else {}  # on a Cluster: jobs of these ids in other queues
    if jobs:
        await router.expect_messages([HOME])
    args = ScriptCall("change_schedules", now=now, home=HOME, changes=[_packed(change, now, known) for change in part])
    codes = await store.run(args, durable=True, timed=True)
    if jobs:
        await router.deliver([HOME])
    return [code == 1 for code in codes]


def _packed(change: ScheduleChange, now: int, known: Mapping[str, Any]) -> tuple[Any, ...]:
    """A change as change_schedules.lua takes it."""
    to, row = change.to, None
    if to is not None:
        moment = NEVER if to.next_at is None else digits_of(to.next_at)
        value = b"%b%b\n%b\n%b" % (moment, to.revision.encode(), to.queue.encode(), to.body)
        row = (to.queue, to.revision, binary(value))
    jobs = [stored(job, now) for job in change.jobs if job.id not in known]
    return change.name, change.expect or False, row or False, jobs


# Rows


def read_row(name: str, value: bytes) -> StoredSchedule | None:
    """A row from its value; None if another program wrote it.

    >>> read_row("nightly", b"-" * 18 + b"r1\\nreports\\n{}").queue
    'reports'
    """
    parts = value[MOMENT_DIGITS:].split(b"\n", 2)
    if len(parts) != 3:
        return None
    revision, queue = _name(parts[0]), _name(parts[1])
    next_at = _moment_of(value)
    if revision is None or queue is None or (next_at is None and value[:MOMENT_DIGITS] != NEVER):
        return None
    return StoredSchedule(name=name, queue=queue, revision=revision, next_at=next_at, body=parts[2])


def _moment_of(place: bytes) -> datetime | None:
    """The moment with which a place or a row begins; None if there is none."""
    digits = place[:MOMENT_DIGITS]
    if len(digits) != MOMENT_DIGITS or not digits.isdigit() or int(digits) > LAST_US:
        return None
    return from_us(int(digits))


def _name(data: bytes) -> str | None:
    """A name; None for anything that no schedule, queue or revision can be called."""
    text = name_of(data)
    try:
        check_name(text, "name")
    except InvalidJob:
        return None
    return text


async def _read(store: RedisStore, entries: Sequence[ListedName]) -> list[StoredSchedule]:
    """The rows of these entries that there are, as they are now. What is wrong about their order is mended."""
    wrong = [entry for entry in entries if entry.name is None]
    left = [entry for entry in entries if entry.name is not None]
    found: list[StoredSchedule | None] = []
    while left:
        some = left[:MAX_READ_ROWS]
        values, numbers = await store.run(ScriptCall("read_schedules", home=HOME, items=_items(some)))
        found += [
            read_row(str(entry.name), value) for entry, value in zip(some, values, strict=False) if value is not None
        ]
        wrong += [some[number - 1] for number in numbers]
        left = left[len(values) :]
    await _mend(store, wrong)
    return [row for row in found if row is not None]


def _items(entries: Iterable[ListedName]) -> list[Any]:
    return [part for name, at, member in entries for part in (name or "", at, binary(member))]


async def _mend(store: RedisStore, entries: Sequence[ListedName]) -> None:
    """Let the sorted sets fit the rows that there are."""
    for some in sliced(entries, MAX_READ_ROWS):
        await store.run(ScriptCall("mend_schedules", home=HOME, items=_items(some)))


async def sweep_schedules(store: RedisStore) -> None:
    """Let the sorted sets have every row that there is."""
    cursor = b"0"
    while True:
        cursor = await store.run(ScriptCall("sweep_schedules", home=HOME, cursor=binary(cursor), count=MAX_READ_ROWS))
        if cursor == b"0":
            return


# By name


async def list_schedules(store: RedisStore, wanted: ScheduleQuery) -> SchedulePage:
    """A page of schedules by name."""
    found, after, is_over = list[StoredSchedule](), wanted.after, False
    names = wanted.names and [name for name in wanted.names if after is None or name > after]
    at = "names" if wanted.queue is None else f"names:{wanted.queue}"
    start = b"-" if after is None else b"(" + after.encode()
    while len(found) <= wanted.limit and not is_over:
        count = wanted.limit + 1 - len(found)
        if names is not None:
            entries, names = [ListedName(name) for name in names[:count]], names[count:]
            is_over = not names
        else:
            members = await store.run(ScriptCall("list_schedules", home=HOME, at=at, start=binary(start), count=count))
            entries = [ListedName(_name(member), at, member) for member in members]
            is_over = len(members) < count
            start = b"(" + members[-1] if members else start
        found += [row for row in await _read(store, entries) if wanted.queue in (None, row.queue)]
    if len(found) <= wanted.limit:
        return SchedulePage(tuple(found))
    return SchedulePage(tuple(found[: wanted.limit]), encode_schedule(found[wanted.limit - 1].name))


# Due ones


class DueLook(NamedTuple):
    """What a look found: due entries in order, whether there may be more behind them, and the next moment that is not
    due."""

    entries: list[ListedName]
    is_cut: bool
    upcoming: datetime | None


async def list_due_schedules(store: RedisStore, wanted: DueQuery) -> SchedulePage:
    """A page of due schedules, and when the next one will be."""
    while (due := await _find_due(store, wanted)) is None:
        pass
    page = due.entries[: wanted.limit]
    rows = tuple(await _read(store, page))
    if not page or not (due.is_cut or len(due.entries) > len(page)):
        return SchedulePage(rows, None, due.upcoming)
    last_at, last_name = _moment_of(page[-1].member), page[-1].name
    assert last_at is not None  # _find_due checked both
    assert last_name is not None
    return SchedulePage(rows, encode_due(last_at, last_name), due.upcoming)


async def _find_due(store: RedisStore, wanted: DueQuery) -> DueLook | None:
    """Find the places that are due, of all queues in one order. None: some could not be read, as another program wrote
    them. They were removed, and another look finds what lies behind them."""
    count = min(wanted.limit + 1, max(MIN_PLACES, MAX_PLACES // len(wanted.queues)))
    after = wanted.after and digits_of(max(wanted.after[0], EPOCH)) + wanted.after[1].encode()
    before = b"%0*d" % (MOMENT_DIGITS, to_us(wanted.now) + 1)
    found, ahead, ends = list[ListedName](), list[ListedName](), list[bytes]()
    for queues in sliced(wanted.queues, MAX_ASKED_QUEUES):
        args = ScriptCall(
            "due_schedules",
            home=HOME,
            queues=queues,
            after=binary(after) if after else False,
            before=binary(before),
            count=count,
        )
        upcoming, lines = await store.run(args)
        ahead += [_place(queues[number - 1], place) for number, place in upcoming]
        for number, places in lines:
            found += [_place(queues[number - 1], place) for place in places]
            if len(places) == count:
                ends.append(places[-1])
    strange = [entry for entry in found + ahead if entry.name is None]
    if strange:
        await _mend(store, strange)
        return None
    end = min(ends, default=None)  # behind it a queue may have places that were not asked for
    entries = sorted([entry for entry in found if end is None or entry.member <= end], key=lambda entry: entry.member)
    moments = [at for entry in ahead if (at := _moment_of(entry.member)) is not None]
    return DueLook(entries, bool(ends), min(moments, default=None))


def _place(queue: str, place: bytes) -> ListedName:
    name = _name(place[MOMENT_DIGITS:])
    return ListedName(name if _moment_of(place) is not None else None, f"due:{queue}", place)
