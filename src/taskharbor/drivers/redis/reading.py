"""Reading jobs: by id, in pages over all queues, counts by state, which queues there are. No worker needs this.

Jobs that this driver stored are walked along an index. Those of foreign clients are in no index: they are found in the
lists and sets of a queue. Queues that only foreign clients use are found by walking the keys, some thousand at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from taskharbor.drivers.cursor import encode_cursor
from taskharbor.drivers.graph import flow_info
from taskharbor.drivers.listing import JobQuery
from taskharbor.drivers.redis import records
from taskharbor.drivers.redis.endpoint import monotonic
from taskharbor.drivers.redis.flows import MAX_READ, read_flow
from taskharbor.drivers.redis.router import QUEUES, Where, sliced
from taskharbor.drivers.redis.script_args import (
    CountGroupsArgs,
    CountsArgs,
    ForeignIdsArgs,
    ListPageArgs,
    ReadJobsArgs,
)
from taskharbor.drivers.redis.scripts import binary
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.drivers.refusals import no_flow
from taskharbor.model.job import FlowInfo, JobInfo, JobRecord, Page

PAGE_SIZE = 200  # records in one script
MAX_COUNTED_GROUPS = 1000  # in one script
MAX_SLICES = 20  # a queue whose search for foreign ids takes more scripts is searched every few seconds only
SCAN_COUNT = 1000
SMALL_STORE_KEYS = 100_000  # a store up to this size is walked whole whenever queues are asked for
SCAN_EVERY_S = 10.0  # between two walks of a larger one
STATES = ("ready", "scheduled", "inflight", "blocked", "done", "dlq", "cancelled")  # as counts.lua returns them


class PagesLost(Exception):
    """Another program took ids out of the index of a queue."""


class JobReader:
    """One driver's way of reading."""

    def __init__(self, store: RedisStore) -> None:
        self.store = store
        self._found: set[str] = set()
        self._foreign_ids: dict[str, tuple[float, Iterable[bytes]]] = {}  # queue → when it was searched, and the ids
        self._scanned = float("-inf")

    # Queues

    async def queues(self) -> list[str]:
        """Every name that is known, or found among the keys; some may be empty."""
        names = set(await self.store.router.known_queues())
        names |= await self._discover(names)
        return sorted(names)

    async def _discover(self, known: set[str]) -> set[str]:
        endpoint = self.store.endpoint
        size = await endpoint.size()
        if size > SMALL_STORE_KEYS and monotonic() - self._scanned < SCAN_EVERY_S:
            return self._found
        self._scanned = monotonic()
        found: set[str] = set()
        async for keys in endpoint.scan("{*}:*", SCAN_COUNT):
            for key in keys:
                name = records.name_of(key.partition(b"}:")[0][1:])
                if name and "{" not in name and not name.startswith(("th:", "cc:")) and name != "th":
                    found.add(name)
        self._found = found
        for some in sliced(sorted(found - known), PAGE_SIZE):
            pairs = [part for name in some for part in (0, name)]
            await endpoint.write("ZADD", QUEUES, "NX", *pairs, key="{th}")
        return found

    async def counts(self, now: int) -> dict[str, dict[str, int]]:
        """How many jobs each queue has in each state."""
        counted: dict[str, dict[str, int]] = {}
        for name, numbers in await self._counts(await self.queues(), now):
            by_state = {state: number for state, number in zip(STATES, numbers, strict=False) if number}
            if by_state:
                counted[name] = by_state
        return counted

    async def used_queues(self) -> list[str]:
        """The queues that have a job or are paused."""
        return [name for name, numbers in await self._counts(await self.queues(), 0) if any(numbers)]

    async def _counts(self, queues: Sequence[str], now: int) -> list[tuple[str, list[int]]]:
        """For each queue how many jobs are in each state, and whether it is paused."""
        calls = [self._count_part(home, part, now) for home, part in self.store.router.parts(queues)]
        return [counted for part in await self.store.endpoint.gather(calls) for counted in part]

    async def _count_part(self, home: str, queues: Sequence[str], now: int) -> list[tuple[str, list[int]]]:
        replies: list[list[int]] = await self.store.run(CountsArgs(now=now, home=home, queues=queues))
        for queue, numbers in zip(queues, replies, strict=True):
            if numbers.pop():
                numbers[0] += await self._waiting_in_groups(home, queue)
        return list(zip(queues, replies, strict=True))

    async def _waiting_in_groups(self, home: str, queue: str) -> int:
        """How many jobs wait in groups: in ready ones, and in full ones, which have active jobs."""
        run, groups = self.store.run, dict[bytes, None]()
        for source in ("groups:ready", "active"):
            cursor = b""
            while cursor != b"0":
                args = CountGroupsArgs(
                    home=home, queue=queue, step="named", source=source, cursor=binary(cursor or b"0")
                )
                found, cursor = await run(args)
                groups |= dict.fromkeys(found)
        number = 0
        for part in sliced(list(groups), MAX_COUNTED_GROUPS):
            ids = [binary(gid) for gid in part]
            number += await run(CountGroupsArgs(home=home, queue=queue, step="waiting", groups=ids))
        return number

    # Jobs by id

    async def read(self, where: Where) -> list[Any]:
        """For each id its record as th.whole_record returns it, or None."""
        found: dict[Any, Any] = {}
        for home, jobs in await self.store.router.place(where):
            if home is None:
                continue
            for part in sliced(jobs, MAX_READ):
                replies = await self.store.run(ReadJobsArgs(home=home, jobs=part))
                found |= {id: reply for (id, _), reply in zip(part, replies, strict=True)}
        return [found.get(id) for id, _ in where]

    async def find(self, ids: Sequence[str], now: int) -> dict[str, JobInfo]:
        """Jobs by id; those of foreign clients are looked for in every queue."""
        replies = await self.read([(id, None) for id in ids])
        found = {id: info_of(reply, now) for id, reply in zip(ids, replies, strict=True) if reply}
        missing = [id for id in ids if id not in found]
        if missing:
            where = list((await self.find_queues(missing)).items())
            replies = await self.read(where)
            found |= {id: info_of(reply, now) for (id, _), reply in zip(where, replies, strict=True) if reply}
        return found

    async def find_queues(self, ids: Sequence[str]) -> dict[str, str]:
        """The queues of ids without a stored location."""
        return await self.store.router.find(ids, await self.queues())

    async def results(self, ids: Sequence[str]) -> dict[str, bytes | None]:
        """The result of each job, or of the last one that it was handed over to."""
        found: dict[str, JobRecord | None] = {}
        missing = list(dict.fromkeys(ids))
        while missing:
            for id, reply in zip(missing, await self.read([(id, None) for id in missing]), strict=True):
                found[id] = info_of(reply, 0).job if reply else None
            heirs = (job.handed_to for job in found.values() if job is not None)
            missing = [id for id in dict.fromkeys(heirs) if id is not None and id not in found]
        return {id: _last_result(found, id) for id in ids}

    async def flow(self, flow_id: str, now: int) -> FlowInfo:
        nodes = await self._flow_jobs(flow_id, now)
        if not nodes:
            raise no_flow(flow_id)
        return flow_info(flow_id, tuple(nodes))

    async def _flow_jobs(self, flow_id: str, now: int) -> list[JobInfo]:
        return sorted([info_of(each, now) for each in await read_flow(self.store, flow_id)], key=lambda one: one.job.id)

    # Pages

    async def page(self, wanted: JobQuery, now: int) -> Page:
        """The next page of a listing, in the order of ids."""
        items: list[JobInfo] = []
        async for found in self._walk(wanted, now):
            if not _fits(wanted, found):
                continue
            if len(items) == wanted.limit:
                return Page(tuple(items), encode_cursor(items[-1].job.id))
            items.append(found)
        return Page(tuple(items))

    async def _walk(self, wanted: JobQuery, now: int) -> AsyncIterator[JobInfo]:
        after = wanted.after or ""
        if wanted.flow_id is not None:
            for found in await self._flow_jobs(wanted.flow_id, now):
                if found.job.id > after and (wanted.queue is None or found.job.queue == wanted.queue):
                    yield found
            return
        queues = [wanted.queue] if wanted.queue is not None else await self.queues()
        async for found in merged([self._jobs_of_queue(name, now, after) for name in queues]):
            yield found

    async def _jobs_of_queue(self, queue: str, now: int, after: str) -> AsyncIterator[JobInfo]:
        is_whole = True  # the index, as far as is known
        while True:
            foreign = {id: id.decode(errors="replace") for id in await self._foreign(queue, is_whole)}
            own = self._own(queue, now, after, is_whole)
            ids = sorted((id for id in foreign if foreign[id] > after), key=foreign.__getitem__)
            try:
                async for found in merged([own, self._others(queue, now, ids)]):
                    after = found.job.id
                    yield found
                return
            except PagesLost:
                is_whole = False

    async def _foreign(self, queue: str, is_whole: bool) -> Iterable[bytes]:
        """The ids that foreign clients published, and those of ours that the index has lost. If there may be any, all
        lists and sets are walked in slices; what was found in large ones is used for some seconds."""
        known = self._foreign_ids.get(queue)
        if known is not None and monotonic() - known[0] < SCAN_EVERY_S:
            return known[1]
        home = self.store.router.home_of(queue)
        if is_whole and not await self.store.run(ForeignIdsArgs(home=home, queue=queue, step="any")):
            return ()
        found, slices = await self._search_foreign(home, queue)
        self._foreign_ids.pop(queue, None)
        if slices > MAX_SLICES:
            self._foreign_ids[queue] = (monotonic(), found)
        return found

    async def _search_foreign(self, home: str, queue: str) -> tuple[Iterable[bytes], int]:
        """Ids that are not in the index, and in how many slices they were found."""
        run, slices = self.store.run, 0
        found: dict[bytes, None] = {}
        groups: dict[bytes, None] = {}
        for source in ("delayed", "active", "groups:ready"):
            cursor = b""
            while cursor != b"0":
                args = ForeignIdsArgs(
                    home=home, queue=queue, step="sorted", source=source, cursor=binary(cursor or b"0")
                )
                ids, met, cursor = await run(args)
                found |= dict.fromkeys(ids)
                groups |= dict.fromkeys(met)
                slices += 1
        names = [b"wait", b"failed", b"completed", *(b"g:" + gid + b":wait" for gid in groups)]
        for some in sliced(names, PAGE_SIZE):
            lists, number, skip = [binary(name) for name in some], 1, 0
            while number:
                args = ForeignIdsArgs(home=home, queue=queue, step="lists", lists=lists, list_number=number, skip=skip)
                ids, number, skip = await run(args)
                found |= dict.fromkeys(ids)
                slices += 1
        return found, slices

    async def _own(self, queue: str, now: int, last: str, unless_lost: bool) -> AsyncIterator[JobInfo]:
        """Jobs that this driver stored, along the index. `unless_lost`: PagesLost if a part of it is gone."""
        home, after = self.store.router.home_of(queue), last.encode()
        while after is not None:
            args = ListPageArgs(home=home, queue=queue, after=binary(after), count=PAGE_SIZE)
            found, after, lost = await self.store.run(args)
            if lost and unless_lost:
                raise PagesLost
            for each in found:
                yield info_of(each, now)

    async def _others(self, queue: str, now: int, ids: list[bytes]) -> AsyncIterator[JobInfo]:
        for some in sliced(ids, PAGE_SIZE):
            args = ReadJobsArgs(home=self.store.router.home_of(queue), jobs=[(binary(id), queue) for id in some])
            for each in await self.store.run(args):
                if each:
                    yield info_of(each, now)


async def arrivals(store: RedisStore, queues: Sequence[str]) -> dict[str, int]:
    """The number of the last arrival in each queue."""
    parts = [[queues[position] for position in positions] for _, positions in store.router.by_home(queues)]
    calls = [
        store.endpoint.ask("MGET", *(f"{{{queue}}}:th:seq" for queue in part), key=f"{{{part[0]}}}") for part in parts
    ]
    numbers = zip(parts, await store.endpoint.gather(calls), strict=True)
    return {queue: records.whole(number) for part, found in numbers for queue, number in zip(part, found, strict=True)}


async def merged(sources: Sequence[AsyncIterator[JobInfo]]) -> AsyncIterator[JobInfo]:
    """Several walks in the order of ids as one."""
    heads: list[tuple[str, int, JobInfo]] = []
    for number, source in enumerate(sources):
        async for found in source:
            heads.append((found.job.id, number, found))
            break
    heapq.heapify(heads)
    while heads:
        _, number, found = heapq.heappop(heads)
        yield found
        async for further in sources[number]:
            heapq.heappush(heads, (further.job.id, number, further))
            break


def info_of(reply: Any, now: int) -> JobInfo:
    """A job from what th.whole_record returns."""
    id, queue, open, values = reply
    return records.info(id.decode(errors="replace"), queue.decode(), open, values, now)


def _fits(wanted: JobQuery, found: JobInfo) -> bool:
    return (
        (wanted.type is None or found.job.type == wanted.type)
        and (wanted.group is None or found.job.group == wanted.group)
        and (wanted.state is None or found.state is wanted.state)
    )


def _last_result(found: dict[str, JobRecord | None], id: str) -> bytes | None:
    job = found.get(id)
    while job is not None and job.handed_to is not None and (heir := found.get(job.handed_to)) is not None:
        job = heir
    return job.result if job is not None else None
