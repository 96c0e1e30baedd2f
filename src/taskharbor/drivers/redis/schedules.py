"""Schedules: rows in the hash slot of their queue, so that a row changes in the script that stores its jobs.

lua/lib/schedules_read.lua describes the keys. A name is unique in the store: the index, in a hash slot of its own, says
which queue has its row. On one server one script reaches all of it. On a Cluster a change that leaves the row in its
queue is one script, too; how a row comes, goes and moves there is in cluster_schedules.py.

A listing first finds names or places, and then reads the rows. A row that has changed in between is shown as it is now,
or left out if it does not belong to the page any more. What does not fit together, because another program wrote there
or a client died, is left out and mended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from datetime import datetime
from heapq import heapify, heappop, heapreplace
from typing import Any, NamedTuple

from taskharbor.drivers.cursor import encode_due, encode_schedule
from taskharbor.drivers.queries import DueQuery, ScheduleQuery
from taskharbor.drivers.redis import schedule_index
from taskharbor.drivers.redis.moments import LAST_US, MOMENT_DIGITS, digits_of
from taskharbor.drivers.redis.records import name_of, stored
from taskharbor.drivers.redis.router import sliced
from taskharbor.drivers.redis.schedule_index import HOME, INDEX, PackedChange, ScheduleEntry, is_name, storable_name
from taskharbor.drivers.redis.script_args import (
    ChangeSchedulesArgs,
    DueSchedulesArgs,
    ListSchedulesArgs,
    MendSchedulesArgs,
    ReadSchedulesArgs,
)
from taskharbor.drivers.redis.scripts import binary
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.model.job import EPOCH
from taskharbor.model.safe_repr import shown
from taskharbor.model.schedule import ScheduleChange, SchedulePage, StoredSchedule
from taskharbor.model.times import from_us, to_ms, to_us

NEVER = b"-" * MOMENT_DIGITS
ELSEWHERE = 2  # what change_schedules.lua returns on a Cluster for a row that the queue does not have
MAX_CHANGES = 100  # in one script
MAX_JOBS = 1_000  # in one script
MAX_CHANGE_BYTES = 4_000_000  # of rows and payloads in one script, unless one change has more
MAX_PARALLEL_MOVES = 16  # of one call, on a Cluster
MAX_READ_ROWS = 500  # in one script
MAX_ASKED_QUEUES = 1_000  # in one script
MIN_PLACES = 16  # of each queue that are asked for at once
MAX_LOOKS = 3  # a look that mended something is repeated


class Place(NamedTuple):
    """Where a row is: its queue and name, and the place under which it was found among those that are due, or b""."""

    queue: str
    name: str
    at: bytes = b""


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
    router = store.router
    jobs = [job for change in part for job in change.jobs]
    known = (await router.admit(jobs)).elsewhere if jobs else {}  # on a Cluster: jobs of these ids in other queues
    packed = [_packed(change, now, known) for change in part]
    results: dict[int, bool] = {}

    async def change_some(home: str, places: Sequence[int]) -> None:
        """Those that one script reaches. Behind one that it does not find, and that brings jobs, it stops: the jobs of
        a queue are stored in the order of the changes."""
        left = list(places)
        while left:
            args = ChangeSchedulesArgs(now=now, home=home, changes=[packed[place] for place in left])
            codes = await store.run(args, durable=True, timed=True)
            done = {place: code == 1 for place, code in zip(left, codes, strict=False) if code != ELSEWHERE}
            results.update(done)
            last, left = left[len(codes) - 1], left[len(codes) :]
            await router.confirm_schedules(
                [(home, packed[place].name) for place, is_changed in done.items() if is_changed]
            )
            if left and last not in results:
                results[last] = await router.change_schedule(packed[last], now)

    # On a Cluster a script looks for a row in the queue that it shall have; there is none for a row that shall go.
    queues = [change.to[0] if change.to else "" for change in packed]
    here = [place for place in range(len(packed)) if queues[place] or not router.divides]
    homes = router.by_home([queues[place] for place in here])
    await store.endpoint.gather([change_some(home, [here[at] for at in positions]) for home, positions in homes])
    for some in sliced([place for place in range(len(packed)) if place not in results], MAX_PARALLEL_MOVES):
        moved = await store.endpoint.gather([router.change_schedule(packed[place], now) for place in some])
        results |= dict(zip(some, moved, strict=True))
    return [results[place] for place in range(len(packed))]


def _packed(change: ScheduleChange, now: int, known: Any) -> PackedChange:
    to = change.to
    row: Any = False
    if to is not None:
        moment = NEVER if to.next_at is None else digits_of(to.next_at)
        row = (to.queue, to.revision, binary(b"%b%b\n%b" % (moment, to.revision.encode(), to.body)))
    jobs = [stored(job, now) for job in change.jobs if job.id not in known]
    return PackedChange(change.name, change.expect if change.expect is not None else False, row, jobs)


# Rows


def _row(name: str, queue: str, value: bytes) -> StoredSchedule | None:
    """A row from its value; None if another program wrote it."""
    head, line_feed, body = value.partition(b"\n")
    moment, revision = head[:MOMENT_DIGITS], name_of(head[MOMENT_DIGITS:])
    if not line_feed or revision is None or not is_name(revision):
        return None
    next_at = _moment_of(moment)
    if next_at is None and moment != NEVER:
        return None
    return StoredSchedule(name=name, queue=queue, revision=revision, next_at=next_at, body=body)


def _moment_of(digits: bytes) -> datetime | None:
    if len(digits) != MOMENT_DIGITS or not digits.isdigit() or int(digits) > LAST_US:
        return None
    return from_us(int(digits))


async def _read(store: RedisStore, places: Sequence[Place]) -> list[StoredSchedule | None]:
    """The rows in these places, as they are now. What is wrong about their order is mended."""
    found: dict[int, StoredSchedule | None] = {}

    async def read_some(home: str, positions: Sequence[int]) -> None:
        left = list(positions)
        while left:
            some = left[:MAX_READ_ROWS]
            values, wrong = await store.run(
                ReadSchedulesArgs(home=home, items=_items([places[position] for position in some]))
            )
            for position, value in zip(some, values, strict=False):
                place = places[position]
                found[position] = None if value is None else _row(place.name, place.queue, value)
            left = left[len(values) :]
            if wrong:
                await mend(store, [places[some[number - 1]] for number in wrong])

    parts = store.router.by_home([place.queue for place in places])
    await store.endpoint.gather([read_some(home, positions) for home, positions in parts])
    return [found[position] for position in range(len(places))]


def _items(places: Sequence[Place]) -> list[Any]:
    return [part for place in places for part in (place.queue, place.name, binary(place.at))]


async def mend(store: RedisStore, places: Sequence[Place]) -> None:
    """Let the order of these rows, and on one server the index, fit the rows that there are."""
    for home, positions in store.router.by_home([place.queue for place in places]):
        for some in sliced([places[position] for position in positions], MAX_READ_ROWS):
            await store.run(MendSchedulesArgs(home=home, items=_items(some)))


# By name


async def list_schedules(store: RedisStore, wanted: ScheduleQuery) -> SchedulePage:
    """A page of schedules by name."""
    line, found = _NameLine(store, wanted), list[StoredSchedule]()
    while len(found) <= wanted.limit and not line.is_over:
        rows = await line.following(wanted.limit + 1 - len(found))
        found += sorted(rows, key=lambda row: row.name)
    if len(found) <= wanted.limit:
        return SchedulePage(tuple(found))
    return SchedulePage(tuple(found[: wanted.limit]), encode_schedule(found[wanted.limit - 1].name))


class _NameLine:
    """The schedules that a query asks for, in the order of their names, some at a time."""

    def __init__(self, store: RedisStore, wanted: ScheduleQuery) -> None:
        self._store = store
        self._queue = wanted.queue
        self._names = wanted.names and [name for name in wanted.names if wanted.after is None or name > wanted.after]
        self._start = b"-"
        if wanted.after is not None:
            after = wanted.after.encode()
            self._start = b"(" + after if wanted.queue is not None else b"[" + after + b"\x0b"
        self.is_over = False

    async def following(self, count: int) -> list[StoredSchedule]:
        """The next rows, about `count`, not yet in order."""
        if self._names is not None:
            some, self._names = self._names[:count], self._names[count:]
            self.is_over = not self._names
            return await self._indexed(await self._entries(some))
        if self._queue is not None:
            return await self._of_queue(self._queue, count)
        found, _ = await self._page(None, count)
        self._pass(found, count)
        entries = [ScheduleEntry.read(data) for data in found]
        strange = [data for data, entry in zip(found, entries, strict=True) if entry is None]
        if strange:
            await self._store.endpoint.write("ZREM", INDEX, *strange, key=INDEX)
        return await self._indexed([entry for entry in entries if entry is not None])

    async def _page(self, queue: str | None, count: int) -> tuple[list[bytes], list[bytes]]:
        """The next names of a queue, or entries of the index; and rows that are stuck on their way to the queue."""
        args = ListSchedulesArgs(
            home=HOME if queue is None else self._store.router.home_of(queue),
            names=False,
            queue=False if queue is None else queue,
            start=binary(self._start),
            count=count,
            slow_ms=schedule_index.SLOW_MS,
        )
        found, stuck = await self._store.run(args)
        return found, stuck

    def _pass(self, found: Sequence[bytes], count: int) -> None:
        self.is_over = len(found) < count
        if found:
            self._start = b"(" + found[-1]

    async def _entries(self, names: Sequence[str]) -> list[ScheduleEntry]:
        args = ListSchedulesArgs(home=HOME, names=names, queue=False, start="", count=0, slow_ms=0)
        found, _ = await self._store.run(args)
        return [entry for data in found if data is not None and (entry := ScheduleEntry.read(data)) is not None]

    async def _indexed(self, entries: Sequence[ScheduleEntry]) -> list[StoredSchedule]:
        """The rows that the index names. One that is not there was moved just now, is on its way, or is gone."""
        rows = await _read(self._store, [Place(entry.queue, entry.name) for entry in entries])
        missing = [entry for entry, row in zip(entries, rows, strict=True) if row is None]
        if missing:
            await self._store.router.settle_schedules(missing)
            again = await self._entries([entry.name for entry in missing])
            rows += await _read(self._store, [Place(entry.queue, entry.name) for entry in again])
        return [row for row in rows if row is not None and self._queue in (None, row.queue)]

    async def _of_queue(self, queue: str, count: int) -> list[StoredSchedule]:
        found, stuck = await self._page(queue, count)
        if stuck and await self._store.router.rescue_schedules(queue, stuck):
            found, _ = await self._page(queue, count)
        self._pass(found, count)
        names = [storable_name(data) for data in found]
        strange = [data for data, name in zip(found, names, strict=True) if name is None]
        if strange:
            key = f"{{{queue}}}:th:schedules:names"
            await self._store.endpoint.write("ZREM", key, *strange, key=key)
        places = [Place(queue, name) for name in names if name is not None]
        rows = await _read(self._store, places)
        missing = [place for place, row in zip(places, rows, strict=True) if row is None]
        if missing:
            await mend(self._store, missing)
        there = [row for row in rows if row is not None]
        await self._store.router.confirm_schedules([(queue, row.name) for row in there])
        return there


# Due ones


async def list_due_schedules(store: RedisStore, wanted: DueQuery) -> SchedulePage:
    """A page of due schedules, and when the next one will be."""
    for _ in range(MAX_LOOKS):
        line = _DueLine(store, wanted)
        if await line.look():
            break
    found: list[StoredSchedule] = []
    while len(found) <= wanted.limit:
        places = await line.following(wanted.limit + 1 - len(found))
        if not places:
            break
        rows = await _read(store, places)
        # A row that has another moment now was fired since it was found.
        found += [
            row
            for place, row in zip(places, rows, strict=True)
            if row is not None and row.next_at is not None and digits_of(row.next_at) == place.at[:MOMENT_DIGITS]
        ]
    if len(found) <= wanted.limit:
        return SchedulePage(tuple(found), None, line.upcoming)
    last = found[wanted.limit - 1]
    assert last.next_at is not None  # it is due
    return SchedulePage(tuple(found[: wanted.limit]), encode_due(last.next_at, last.name), line.upcoming)


class _QueueLine:
    """Places of one queue that were read and not yet taken."""

    __slots__ = ("is_over", "places", "queue")

    def __init__(self, queue: str, places: Sequence[bytes], is_over: bool) -> None:
        self.queue = queue
        self.places = deque(places)
        self.is_over = is_over

    def __repr__(self) -> str:
        return shown(self, "queue", "is_over")

    def __lt__(self, other: _QueueLine) -> bool:
        return self.places[0] < other.places[0]


class _DueLine:
    """The places that are due, of all queues in one order. Each queue is read some places at a time."""

    def __init__(self, store: RedisStore, wanted: DueQuery) -> None:
        self._store = store
        self._wanted = wanted
        self._before = b"%0*d" % (MOMENT_DIGITS, to_us(wanted.now) + 1)
        self._lines: list[_QueueLine] = []  # a heap
        self.upcoming: datetime | None = None

    async def look(self) -> bool:
        """Read the first places of every queue; False if something was mended, so that another look may find more."""
        queues, limit = self._wanted.queues, self._wanted.limit
        count = min(limit + 1, max(MIN_PLACES, 2 * (limit + 1) // len(queues)))
        after = self._wanted.after
        start = None if after is None else digits_of(max(after[0], EPOCH)) + after[1].encode()
        parts = [
            (home, some)
            for home, positions in self._store.router.by_home(queues)
            for some in sliced([queues[position] for position in positions], MAX_ASKED_QUEUES)
        ]
        replies = await self._store.endpoint.gather([self._ask(home, some, start, count) for home, some in parts])
        strange: list[tuple[str, bytes]] = []
        any_rescued = False
        for (_, some), (following, found, stuck) in zip(parts, replies, strict=True):
            for number, places in found:
                self._lines.append(_QueueLine(some[number - 1], places, len(places) < count))
            if stuck and await self._store.router.rescue_schedules(some[0], stuck):
                any_rescued = True
            for number, place in following:
                at = _moment_of(place[:MOMENT_DIGITS])
                if at is None:
                    strange.append((some[number - 1], place))
                elif self.upcoming is None or at < self.upcoming:
                    self.upcoming = at
        heapify(self._lines)
        await self._drop(strange)
        return not strange and not any_rescued

    async def _ask(self, home: str, queues: Sequence[str], start: bytes | None, count: int) -> Any:
        args = DueSchedulesArgs(
            home=home,
            queues=queues,
            after=False if start is None else binary(start),
            before=binary(self._before),
            count=count,
            slow_ms=schedule_index.SLOW_MS,
        )
        return await self._store.run(args)

    async def following(self, count: int) -> list[Place]:
        """The next places, `count` at most; none: there are no more."""
        found: list[Place] = []
        strange: list[tuple[str, bytes]] = []
        while len(found) < count and self._lines:
            line = self._lines[0]
            at = line.places.popleft()
            name = storable_name(at[MOMENT_DIGITS:])
            if name is None or _moment_of(at[:MOMENT_DIGITS]) is None:
                strange.append((line.queue, at))
            else:
                found.append(Place(line.queue, name, at))
            if not line.places and not line.is_over:
                await self._refill(line, at, count)
            if line.places:
                heapreplace(self._lines, line)
            else:
                heappop(self._lines)
        await self._drop(strange)
        return found

    async def _refill(self, line: _QueueLine, after: bytes, count: int) -> None:
        home = self._store.router.home_of(line.queue)
        _, found, _ = await self._ask(home, [line.queue], after, count)
        places = found[0][1] if found else []
        line.places.extend(places)
        line.is_over = len(places) < count

    async def _drop(self, strange: Sequence[tuple[str, bytes]]) -> None:
        """Remove places that cannot be read: another program wrote them."""
        for queue, at in strange:
            key = f"{{{queue}}}:th:schedules:due"
            await self._store.endpoint.write("ZREM", key, at, key=key)
