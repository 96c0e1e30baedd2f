"""Pages of jobs: `list`.

Jobs that this driver stored are walked along the indexes of their queues, those of foreign clients along the lists and
sets that hold them. For a state that few jobs are in, the list or set of that state is read instead: a million done
jobs beside it cost nothing. One call looks at no more than MAX_SCANNED_JOBS records. A record in another state than the
wanted one is not sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from taskharbor.drivers.base import MAX_SCANNED_JOBS
from taskharbor.drivers.cursor import encode_cursor
from taskharbor.drivers.queries import JobQuery
from taskharbor.drivers.redis.flows import flow_ids
from taskharbor.drivers.redis.id_walk import IdWalk, JobPlace, WalkSource, found_ids, in_order
from taskharbor.drivers.redis.records import info_of
from taskharbor.drivers.redis.resp import monotonic
from taskharbor.drivers.redis.router import MAX_VISITED_QUEUES, sliced
from taskharbor.drivers.redis.scripts import ScriptCall, binary
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.model.job import JobInfo, Page, State

if TYPE_CHECKING:
    from taskharbor.drivers.redis.reading import JobReader

PAGE_SIZE = 200  # ids of one queue, or records, in one script
MAX_LISTED_IDS = 2_000  # in one script
MAX_STATE_IDS = 50_000  # of the jobs in one state, read by one call
FEW_JOBS = 1000  # that are all looked at, whatever their state: so a record of an unknown state is found, too
LANES = {
    State.DLQ: "failed",
    State.CANCELLED: "th:cancelled",
    State.BLOCKED: "th:blocked",
    State.INFLIGHT: "active",
    State.SCHEDULED: "delayed",
}  # state → the list or set that holds its jobs
OPEN = frozenset({"wait", "delayed", "active"})  # in a record; which of three states that is depends on the moment
STORED = {
    State.DLQ: frozenset({"failed"}),
    State.CANCELLED: frozenset({"cancelled"}),
    State.BLOCKED: frozenset({"blocked"}),
    State.DONE: frozenset({"completed"}),
}  # state → what its records hold; those of the others hold one of OPEN


def _unlike(state: State | None) -> list[str]:
    """What the records of jobs hold that are certainly in another state."""
    held = STORED.get(state, OPEN) if state is not None else OPEN.union(*STORED.values())
    return sorted(OPEN.union(*STORED.values()) - held)


class JobPages:
    """One call of `list`."""

    def __init__(self, reader: JobReader, wanted: JobQuery, now: int) -> None:
        self._reader = reader
        self._store = reader.store
        self._wanted = wanted
        self._now = now
        self._skip = _unlike(wanted.state)
        self._filters_more = any(
            given is not None
            for given in (
                wanted.type,
                wanted.group,
                wanted.error_class,
                wanted.error_name,
                wanted.fingerprint,
                wanted.since,
                wanted.until,
            )
        )
        self._filters = wanted.state is not None or self._filters_more  # many of the ids that are found may not fit
        self._position = wanted.after  # the last id that was looked at
        self._checked: set[str] = set()  # queues of which it is known whether they may hold ids outside their index
        self._searched: set[str] = set()  # those that were searched for such ids

    async def page(self) -> Page:
        """The page. It ends with a cursor unless everything behind it was looked at."""
        walk, items, scanned = await self._walk(), list[JobInfo](), 0
        while scanned < MAX_SCANNED_JOBS:
            missing, misfits = self._wanted.limit + 1 - len(items), scanned - len(items)
            count = PAGE_SIZE if self._filters else min(PAGE_SIZE, missing + misfits)
            batch = await walk.take(min(count, MAX_SCANNED_JOBS - scanned))
            scanned += len(batch)
            for one, reply in zip(batch, await self._read(batch), strict=True):
                self._position = one.text
                if not reply:
                    continue
                found = info_of(reply, self._now)
                if not self._wanted.fits(found.job, found.state):
                    continue
                if len(items) == self._wanted.limit:
                    return Page(tuple(items), encode_cursor(items[-1].job.id))
                items.append(found)
            if len(batch) == 0 or walk.is_over or len(items) == self._wanted.limit:
                break
        if walk.is_over or self._position is None:
            return Page(tuple(items))
        return Page(tuple(items), encode_cursor(self._position))

    async def _read(self, batch: Sequence[JobPlace]) -> list[Any]:
        """For each id its record as th.whole_record returns it, or None, also for one that is in another state."""

        def args(home: str, some: list[JobPlace]) -> ScriptCall:
            jobs = [(binary(one.data), one.queue) for one in some]
            return ScriptCall("read_jobs", home=home, jobs=jobs, brief=not self._wanted.payloads, skip=self._skip)

        return await self._store.run_for_each(batch, [one.queue for one in batch], PAGE_SIZE, args)

    # Where the ids come from

    async def _walk(self) -> IdWalk:
        wanted, known, queues = self._wanted, list[JobPlace](), list[str]()
        if wanted.flow_id is not None:
            known = await flow_ids(self._store, wanted.flow_id)
            known = [one for one in known if wanted.queue in (None, one.queue)]
        else:
            queues = [wanted.queue] if wanted.queue is not None else await self._reader.queues()
            lane = LANES.get(wanted.state) if wanted.state is not None else None
            if lane is not None:
                known, queues = await self._in_state(lane, queues)
        after = (wanted.after or "").encode()
        others = WalkSource("", None, in_order(known, wanted.after, newest=wanted.newest))
        self._walked = IdWalk(
            [others, *(WalkSource(queue, after) for queue in queues)],
            self._fetch,
            newest=wanted.newest,
            most=MAX_SCANNED_JOBS,
            count=PAGE_SIZE if self._filters else wanted.limit + 1,
            page=PAGE_SIZE,
        )
        return self._walked

    async def _in_state(self, lane: str, queues: Sequence[str]) -> tuple[list[JobPlace], list[str]]:
        """The ids that a list or set of some queues holds, and the queues that have to be walked instead: all if they
        have few jobs, else the largest ones if more than MAX_STATE_IDS jobs are in this state. Very many queues are not
        asked how many jobs they have."""
        are_few = len(queues) <= FEW_JOBS
        counted = await self._ask_lanes(lane, queues, 0, indexed=are_few)
        indexed = [count for _, count, _ in counted.values()]
        if are_few and min(indexed, default=0) >= 0 and sum(indexed) <= FEW_JOBS:
            return [], list(queues)
        sizes = {queue: size for queue, (size, _, _) in counted.items() if size}
        most, chosen = MAX_STATE_IDS, list[str]()
        for queue in sorted(sizes, key=sizes.__getitem__):
            most -= sizes[queue]
            if most < 0:
                break
            chosen.append(queue)
        found = await self._ask_lanes(lane, chosen, MAX_STATE_IDS)
        known = [one for queue, (_, _, ids) in found.items() for one in found_ids(queue, ids)]
        listed = {queue for queue, (size, _, ids) in found.items() if len(ids) == size}
        walked = [queue for queue in sizes if queue not in listed]
        if not walked:
            self._filters = self._filters_more
        return known, walked

    async def _ask_lanes(self, lane: str, queues: Sequence[str], most: int, *, indexed: bool = False) -> dict[str, Any]:
        """What list_state.lua returns for each queue."""

        def args(home: str, some: list[str]) -> ScriptCall:
            return ScriptCall("list_state", home=home, queues=some, name=lane, most=most, indexed=indexed)

        replies = await self._store.run_for_each(queues, queues, MAX_VISITED_QUEUES, args)
        return dict(zip(queues, replies, strict=True))

    async def _fetch(self, sources: Sequence[WalkSource], count: int) -> None:
        """Ids of our own jobs. Where a queue may hold others too, these are found once, and become a source."""

        def args(home: str, some: list[WalkSource]) -> ScriptCall:
            return ScriptCall(
                "list_ids",
                home=home,
                queues=[source.queue for source in some],
                afters=[binary(source.after or b"") for source in some],
                newest=self._wanted.newest,
                count=count,
                check_others=any(source.queue not in self._checked for source in some),
            )

        queues = [source.queue for source in sources]
        size = max(1, min(MAX_VISITED_QUEUES, MAX_LISTED_IDS // count))
        replies = await self._store.run_for_each(sources, queues, size, args)
        for source, (ids, after, lost, has_others) in zip(sources, replies, strict=True):
            source.ids, source.after = found_ids(source.queue, ids)[::-1], after
            if lost or (has_others and source.queue not in self._checked):
                await self._add_others(source.queue)
        self._checked.update(queues)

    async def _add_others(self, queue: str) -> None:
        """The ids that the index of a queue does not have, once."""
        if queue in self._searched:
            return
        self._searched.add(queue)
        ids = await foreign_ids(self._store, queue, self._reader.cache.foreign_ids)
        others = in_order(found_ids(queue, ids), self._position, newest=self._wanted.newest)
        self._walked.add(WalkSource(queue, None, others))


# Ids that are in the lists and sets of a queue, but not in its index: foreign clients published them, or the index has
# lost them. All lists and sets are walked in slices; what was found in large ones is used for some seconds.


MAX_SLICES = 20  # a queue whose search takes more scripts is searched every few seconds only
MAX_LISTS = 200  # in one script
SCAN_EVERY_S = 10.0  # between two searches of such a queue

ForeignIds = dict[str, tuple[float, Sequence[bytes]]]  # queue → when it was searched, and the ids


async def foreign_ids(store: RedisStore, queue: str, known: ForeignIds) -> Sequence[bytes]:
    """The ids of one queue. `known`: what was found lately."""
    last = known.get(queue)
    if last is not None and monotonic() - last[0] < SCAN_EVERY_S:
        return last[1]
    found, slices = await _search(store, queue)
    known.pop(queue, None)
    if slices > MAX_SLICES:
        known[queue] = (monotonic(), found)
    return found


async def _search(store: RedisStore, queue: str) -> tuple[Sequence[bytes], int]:
    """The ids, and in how many slices they were found."""
    run, home, slices = store.run, store.router.home_of(queue), 0
    found: dict[bytes, None] = {}
    groups: dict[bytes, None] = {}
    for source in ("delayed", "active", "groups:ready"):
        cursor = b""
        while cursor != b"0":
            args = ScriptCall(
                "foreign_ids", home=home, queue=queue, step="sorted", source=source, cursor=binary(cursor or b"0")
            )
            ids, met, cursor = await run(args)
            found |= dict.fromkeys(ids)
            groups |= dict.fromkeys(met)
            slices += 1
    names = [b"wait", b"failed", b"completed", *(b"g:" + gid + b":wait" for gid in groups)]
    for some in sliced(names, MAX_LISTS):
        lists, number, skip = [binary(name) for name in some], 1, 0
        while number:
            args = ScriptCall(
                "foreign_ids", home=home, queue=queue, step="lists", lists=lists, list_number=number, skip=skip
            )
            ids, number, skip = await run(args)
            found |= dict.fromkeys(ids)
            slices += 1
    return list(found), slices
