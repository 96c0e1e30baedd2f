"""Looking at jobs: pages in the order of ids over all queues, what foreign clients published, which queues there are.

Nothing here is on a worker's way. Our own jobs are walked along an index; those of foreign clients, which have none,
are found in the lanes. Queues that only foreign clients use are found by walking the keys, some thousand at a time.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import heapq
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from taskharbor.drivers.redis import records
from taskharbor.drivers.redis.commands import QUEUES, StandaloneCommands, sliced
from taskharbor.drivers.redis.endpoint import gathered
from taskharbor.drivers.redis.scripts import binary, load
from taskharbor.model.job import JobInfo, Page

CHUNK = 200
MANY_GROUPS = 1000  # so many lines of groups are measured by one script
MANY_SLICES = 20  # a queue in which a look for foreign ids takes more is looked at every few seconds only
SCAN = 1000
SMALL_STORE = 100_000  # keys; a store up to this size is walked whole at each look for queues
SCAN_EVERY = 10.0  # seconds between looks into a larger one


class PagesLost(Exception):
    """Somebody took ids out of the index of a queue."""


class JobReader:
    """One driver's way of reading."""

    def __init__(self, commands: StandaloneCommands) -> None:
        self._commands = commands
        self._found: set[str] = set()
        self._strangers: dict[str, tuple[float, Iterable[bytes]]] = {}  # queue → when, and foreign ids
        self._scanned = float("-inf")

    # Queues

    async def queues(self) -> list[str]:
        """Every name that is known, or found among the keys; some may be empty."""
        names = set(await self._commands.known_queues())
        names |= await self._discovered(names)
        return sorted(names)

    async def _discovered(self, known: set[str]) -> set[str]:
        endpoint = self._commands.endpoint
        size = await endpoint.size()
        if size > SMALL_STORE and asyncio.get_running_loop().time() - self._scanned < SCAN_EVERY:
            return self._found
        self._scanned = asyncio.get_running_loop().time()
        found: set[str] = set()
        async for keys in endpoint.scan("{*}:*", SCAN):
            for key in keys:
                name = records.name_of(key.partition(b"}:")[0][1:])
                if name and "{" not in name and not name.startswith(("th:", "cc:")) and name != "th":
                    found.add(name)
        self._found = found
        fresh = sorted(found - known)
        for first in range(0, len(fresh), CHUNK):
            pairs = [part for name in fresh[first : first + CHUNK] for part in (0, name)]
            await endpoint.write("ZADD", QUEUES, "NX", *pairs, key="{th}")
        return found

    async def counts(self, queues: Sequence[str], now: int) -> list[list[int]]:
        """For each queue how many jobs are in each state, and whether it is paused."""
        parts = await gathered([self._counts(home, part, now) for home, part in self._commands.parts(queues)])
        return [numbers for part in parts for numbers in part]

    async def _counts(self, home: str, queues: Sequence[str], now: int) -> list[list[int]]:
        answers: list[list[int]] = await self._commands.endpoint.run(load("counts"), home, (now, queues))
        for queue, numbers in zip(queues, answers, strict=True):
            if numbers.pop():
                numbers[0] += await self._waiting_in_groups(home, queue)
        return answers

    async def _waiting_in_groups(self, home: str, queue: str) -> int:
        """How many jobs wait in the lines of groups: of ready ones, and of full ones, which have active jobs."""
        run, script, groups = self._commands.endpoint.run, load("count_groups"), dict[bytes, None]()
        for lane in ("groups:ready", "active"):
            cursor = b""
            while cursor != b"0":
                found, cursor = await run(script, home, (queue, "named", lane, binary(cursor or b"0")))
                groups |= dict.fromkeys(found)
        number = 0
        for part in sliced(list(groups), MANY_GROUPS):
            number += await run(script, home, (queue, "waiting", [binary(gid) for gid in part]))
        return number

    # Jobs

    async def find(self, ids: Sequence[str], now: int) -> dict[str, JobInfo]:
        """Jobs by id; those of foreign clients are looked for in every queue."""
        where: list[tuple[str, str | None]] = [(id, None) for id in ids]
        answers = await self._commands.read(where)
        if None in answers:
            where = list((await self.seek([id for id, answer in zip(ids, answers, strict=True) if not answer])).items())
            answers += await self._commands.read(where)
        found = zip([*ids, *(id for id, _ in where)], answers, strict=False)
        return {id: info_of(answer, now) for id, answer in found if answer}

    async def seek(self, ids: Sequence[str]) -> dict[str, str]:
        """The queues of ids that nobody noted."""
        return await self._commands.seek(ids, await self.queues())

    async def page(
        self,
        now: int,
        queue: str | None,
        flow: str | None,
        cursor: str | None,
        limit: int,
        fits: Callable[[JobInfo], bool],
    ) -> Page:
        after = decode_cursor(cursor) if cursor is not None else ""
        items: list[JobInfo] = []
        async for found in self._walk(now, queue, flow, after):
            if not fits(found):
                continue
            if len(items) == limit:
                return Page(tuple(items), encode_cursor(items[-1].job.id))
            items.append(found)
        return Page(tuple(items))

    async def _walk(self, now: int, queue: str | None, flow: str | None, after: str) -> AsyncIterator[JobInfo]:
        if flow is not None:
            for found in sorted([info_of(each, now) for each in await self._commands.flow(flow)], key=_id):
                if found.job.id > after and (queue is None or found.job.queue == queue):
                    yield found
            return
        queues = [queue] if queue is not None else await self.queues()
        async for found in merged([self._of_queue(name, now, after) for name in queues]):
            yield found

    async def _of_queue(self, queue: str, now: int, after: str) -> AsyncIterator[JobInfo]:
        is_whole = True  # as far as is known
        while True:
            foreign = {id: id.decode(errors="replace") for id in await self._foreign(queue, is_whole)}
            own = self._own(queue, now, after, is_whole)
            ids = sorted((id for id in foreign if foreign[id] > after), key=foreign.__getitem__)
            others = self._others(queue, now, ids)
            try:
                async for found in merged([own, others]):
                    after = found.job.id
                    yield found
                return
            except PagesLost:
                is_whole = False

    async def _foreign(self, queue: str, is_whole: bool) -> Iterable[bytes]:
        """The ids that foreign clients published, and those of ours that the index has lost. If there may be any, all
        lanes are walked, a slice at a time; what was found in large ones holds for some seconds."""
        clock, script, run = asyncio.get_running_loop().time, load("foreign_ids"), self._commands.endpoint.run
        known = self._strangers.get(queue)
        if known is not None and clock() - known[0] < SCAN_EVERY:
            return known[1]
        if is_whole and not await run(script, queue, (queue, "any")):
            return ()
        found: dict[bytes, None] = {}
        groups: dict[bytes, None] = {}
        slices = 0
        for lane in ("delayed", "active", "groups:ready"):
            cursor = b"0"
            while True:
                ids, met, cursor = await run(script, queue, (queue, "sorted", lane, binary(cursor)))
                found |= dict.fromkeys(ids)
                groups |= dict.fromkeys(met)
                slices += 1
                if cursor == b"0":
                    break
        names = [b"wait", b"failed", b"completed", *(b"g:" + gid + b":wait" for gid in groups)]
        for some in sliced(names, CHUNK):
            lists, number, passed = [binary(name) for name in some], 1, 0
            while number:
                ids, number, passed = await run(script, queue, (queue, "lists", lists, number, passed))
                found |= dict.fromkeys(ids)
                slices += 1
        self._strangers.pop(queue, None)
        if slices > MANY_SLICES:
            self._strangers[queue] = (clock(), found)
        return found

    async def _own(self, queue: str, now: int, last: str, unless_lost: bool) -> AsyncIterator[JobInfo]:
        after: bytes | None = last.encode()
        while after is not None:
            args = (queue, binary(after), CHUNK)
            found, after, lost = await self._commands.endpoint.run(load("list_page"), queue, args)
            if lost and unless_lost:
                raise PagesLost
            for each in found:
                yield info_of(each, now)

    async def _others(self, queue: str, now: int, ids: list[bytes]) -> AsyncIterator[JobInfo]:
        for first in range(0, len(ids), CHUNK):
            asked = [(binary(id), queue) for id in ids[first : first + CHUNK]]
            for each in await self._commands.endpoint.run(
                load("read_jobs"), queue, (self._commands.endpoint.cluster, asked)
            ):
                if each:
                    yield info_of(each, now)


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


def info_of(answer: Any, now: int) -> JobInfo:
    """A job from what `whole_record` answers."""
    id, queue, open, values = answer
    return records.info(id.decode(errors="replace"), queue.decode(), open, values, now)


def _id(found: JobInfo) -> str:
    return found.job.id


def encode_cursor(id: str) -> str:
    """Opaque, and checked: a cursor that lost a character must not quietly begin somewhere else."""
    data = id.encode()
    return base64.urlsafe_b64encode(b"1" + zlib.crc32(data).to_bytes(4, "big") + data).decode()


def decode_cursor(cursor: str) -> str:
    try:
        data = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        id = data[5:].decode()
    except (AttributeError, UnicodeError, binascii.Error):
        raise ValueError("cursor: expected one that list answered, got a damaged one") from None
    if encode_cursor(id) != cursor:
        raise ValueError("cursor: expected one that list answered, got a damaged one")
    return id
