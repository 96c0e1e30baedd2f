"""Reading jobs: by id, counts by state, which queues there are and their heads, what comes next. Only `upcoming` is for
workers.

Queues that only foreign clients use are found by walking the keys, some thousand at a time. Pages of jobs are in
job_pages.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

from taskharbor.drivers.heads import in_turn, looks_for_each
from taskharbor.drivers.redis import records
from taskharbor.drivers.redis.endpoint import ScanPosition
from taskharbor.drivers.redis.flows import MAX_READ, read_flow
from taskharbor.drivers.redis.job_pages import SCAN_EVERY_S, ForeignIds
from taskharbor.drivers.redis.records import moment_of, text_of
from taskharbor.drivers.redis.resp import monotonic
from taskharbor.drivers.redis.router import MAX_VISITED_QUEUES, Where, sliced
from taskharbor.drivers.redis.scripts import ScriptCall, binary
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.drivers.redis.wait import CLAIM_MS
from taskharbor.drivers.refusals import no_flow
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.job import FlowInfo, JobInfo, QueueHead, State, flow_info

MAX_NAMED_QUEUES = 200  # that are made known by one command
MAX_COUNTED_GROUPS = 1000  # in one script
MAX_ASKED_QUEUES = 1000  # for what comes next, in one script
SCAN_COUNT = 1000
SMALL_STORE_KEYS = 100_000  # a store up to this size is walked whole whenever queues are asked for
MAX_WALK_STEPS = 100  # of SCAN_COUNT keys in one call, if the store is larger
STATES = ("ready", "scheduled", "inflight", "blocked", "done", "dlq", "cancelled")  # as counts.lua returns them


class ReaderCache:
    """What was found by long walks, for the calls of some seconds."""

    def __init__(self) -> None:
        self.queues: set[str] = set()  # that the last whole walk of the keys found
        self.found: set[str] = set()  # that the present walk has found
        self.walked_to: ScanPosition | None = None
        self.rests_until = float("-inf")
        self.foreign_ids: ForeignIds = {}


class JobReader:
    """One driver's way of reading. `cache`: shared by those that read the same store."""

    def __init__(self, store: RedisStore, cache: ReaderCache | None = None) -> None:
        self.store = store
        self.cache = ReaderCache() if cache is None else cache

    # Queues

    async def queues(self) -> list[str]:
        """Every name that is known, or found among the keys of the nodes that answer; some may be empty."""
        names = set(await self.store.router.known_queues(partly=True))
        names |= await self._discover(names)
        return sorted(names)

    async def _discover(self, known: set[str]) -> set[str]:
        """Names among the keys, which is how queues of foreign clients become known.

        A large store is walked on by MAX_WALK_STEPS in each call, so that no call takes longer with more jobs. After a
        whole walk it rests, the longer the larger the store.
        """
        endpoint, cache = self.store.endpoint, self.cache
        size = await endpoint.size()
        is_small = size <= SMALL_STORE_KEYS
        if not is_small and cache.walked_to is None and monotonic() < cache.rests_until:
            return cache.queues
        position, found = (None, set[str]()) if is_small else (cache.walked_to, cache.found)
        tags = set[bytes]()
        for _ in itertools.count() if is_small else range(MAX_WALK_STEPS):
            position, keys = await endpoint.scan_step(position, "{*}:*", SCAN_COUNT)
            found |= _queues_of(keys, tags)
            if position is None:
                break
        for some in sliced(sorted(found - known), MAX_NAMED_QUEUES):
            await self.store.router.name_queues(some)
        if position is not None:
            cache.walked_to, cache.found = position, found
            return cache.queues | found
        cache.walked_to, cache.found, cache.queues = None, set(), found
        cache.rests_until = monotonic() + SCAN_EVERY_S * max(1, size / SMALL_STORE_KEYS)
        return found

    async def counts(self, now: int, cap: int | None = None) -> dict[str, dict[str, int]]:
        """How many jobs each queue has in each state; with a cap, that many stand for more."""
        counted: dict[str, dict[str, int]] = {}
        for name, numbers in await self._counts(await self.queues(), now, cap):
            shown = numbers if cap is None else [min(number, cap) for number in numbers]
            by_state = {state: number for state, number in zip(STATES, shown, strict=False) if number}
            if by_state:
                counted[name] = by_state
        return counted

    async def used_queues(self) -> list[str]:
        """The queues that have a job or are paused."""

        def args(home: str, some: list[str]) -> ScriptCall:
            return ScriptCall("used_queues", home=home, queues=some)

        queues = await self.queues()
        replies = await self.store.run_for_each(queues, queues, MAX_VISITED_QUEUES, args, partly=True)
        found = dict(zip(queues, replies, strict=True))
        grouped = await self._counts([queue for queue, used in found.items() if used == -1], 0, 1)
        has_jobs = {queue for queue, numbers in grouped if any(numbers)}
        return [queue for queue, used in found.items() if used == 1 or queue in has_jobs]

    async def _counts(self, queues: Sequence[str], now: int, cap: int | None = None) -> list[tuple[str, list[int]]]:
        """For each queue that can be reached how many jobs are in each state, and whether it is paused. Most are the
        size of a key; with a cap the waiting jobs of groups are counted only that far."""

        def args(home: str, some: list[str]) -> ScriptCall:
            return ScriptCall("counts", now=now, home=home, queues=some)

        replies = await self.store.run_for_each(queues, queues, MAX_VISITED_QUEUES, args, partly=True)
        found = [one for one in zip(queues, replies, strict=True) if not isinstance(one[1], BackendUnavailable)]
        for queue, numbers in found:
            if numbers.pop() and (cap is None or numbers[0] < cap):
                numbers[0] += await self._waiting_in_groups(queue, None if cap is None else cap - numbers[0])
        return found

    async def _waiting_in_groups(self, queue: str, cap: int | None) -> int:
        """How many jobs wait in groups: in ready ones, and in full ones, which have active jobs. With a cap it stops
        there."""
        run, seen, number, home = self.store.run, dict[bytes, None](), 0, self.store.router.home_of(queue)
        for source in ("groups:ready", "active"):
            cursor = b""
            while cursor != b"0":
                args = ScriptCall(
                    "count_groups", home=home, queue=queue, step="named", source=source, cursor=binary(cursor or b"0")
                )
                found, cursor = await run(args)
                new = [gid for gid in dict.fromkeys(found) if gid not in seen]
                seen |= dict.fromkeys(new)
                for part in sliced(new, MAX_COUNTED_GROUPS):
                    ids = [binary(gid) for gid in part]
                    number += await run(ScriptCall("count_groups", home=home, queue=queue, step="waiting", groups=ids))
                if cap is not None and number >= cap:
                    return number
        return number

    async def upcoming(self, queues: Sequence[str], now: int) -> int | None:
        """When the next scheduled job falls due or the next lease ends, in ms; None if none will."""
        router = self.store.router
        calls = [
            (home, partial(self.store.run, ScriptCall("upcoming", now=now, home=home, queues=some)))
            for home, positions in router.by_home(queues)
            for some in sliced([queues[position] for position in positions], MAX_ASKED_QUEUES)
        ]
        replies = await router.each(calls)
        return min((int(at) for at in replies if at is not None and not isinstance(at, Exception)), default=None)

    # Jobs by id

    async def read(self, where: Where) -> list[Any]:
        """For each id its record as th.whole_record returns it, or None."""
        found: dict[Any, Any] = {}
        for home, jobs in await self.store.router.place(where):
            if home is None:
                continue
            for part in sliced(jobs, MAX_READ):
                replies = await self.store.run(ScriptCall("read_jobs", home=home, jobs=part))
                found |= {id: reply for (id, _), reply in zip(part, replies, strict=True)}
        return [found.get(id) for id, _ in where]

    async def find(self, ids: Sequence[str], now: int) -> dict[str, JobInfo]:
        """Jobs by id. One without a stored location (a foreign client published it, or the location was lost) is
        looked for in the queue that a job depending on it names, and then in every queue."""
        found = await self._read_found([(id, None) for id in ids], now)
        if missing := [id for id in ids if id not in found]:
            found |= await self._read_found(self.store.edges.of(missing), now)
        if missing := [id for id in missing if id not in found]:
            found |= await self._read_found(list((await self.find_queues(missing)).items()), now)
        return found

    async def _read_found(self, where: Where, now: int) -> dict[str, JobInfo]:
        """Those that are there."""
        replies = await self.read(where)
        for reply in filter(None, replies):
            self.store.edges.note(reply[3][records.EDGES])
        return {id: records.info_of(reply, now) for (id, _), reply in zip(where, replies, strict=True) if reply}

    async def find_queues(self, ids: Sequence[str]) -> dict[str, str]:
        """The queues of ids without a stored location. If one is in none of them and not all nodes could be searched,
        nobody knows whether it is gone."""
        left_out = self.store.endpoint.left_out
        found = await self.store.router.find(ids, await self.queues())
        if self.store.endpoint.left_out != left_out and not found.keys() >= set(ids):
            raise BackendUnavailable("Redis did not answer: a node that may have the job is away")
        return found

    async def results(self, ids: Sequence[str]) -> dict[str, bytes | None]:
        """The result of each job that is done, or of the last one that it was handed over to."""
        found: dict[str, JobInfo] = {}
        asked: set[str] = set()
        wanted = list(dict.fromkeys(ids))
        while wanted:
            asked.update(wanted)
            new = await self.find(wanted, 0)
            found |= new
            heirs = dict.fromkeys(info.job.handed_to for info in new.values())
            wanted = [id for id in heirs if id is not None and id not in asked]
        last = {id: _last_in_place(found, id) for id in ids if id in found}
        return {
            id: info.job.result
            for id, info in last.items()
            if info.state is State.DONE and info.job.handed_to is None  # else the job in its place is gone
        }

    async def flow(self, flow_id: str, now: int) -> FlowInfo:
        nodes = [records.info_of(each, now) for each in await read_flow(self.store, flow_id)]
        if not nodes:
            raise no_flow(flow_id)
        return flow_info(flow_id, tuple(sorted(nodes, key=lambda one: one.job.id)))


async def arrivals(store: RedisStore, queues: Sequence[str]) -> dict[str, int]:
    """The number of the last arrival in each queue that can be reached."""

    async def read(_: str, positions: Sequence[int]) -> Sequence[Any]:
        keys = [f"{{{queues[position]}}}:th:seq" for position in positions]
        numbers: Sequence[Any] = await store.endpoint.ask("MGET", *keys, key=keys[0])
        return numbers

    found = zip(queues, await store.each_home(queues, read), strict=True)
    return {queue: records.whole(number) for queue, number in found if not isinstance(number, BackendUnavailable)}


READY = ("wait", "th:prio", "groups:ready")
TIMED = ("delayed", "active")
MAX_LOOKED_QUEUES = 100  # in one command
MAX_PROBED_QUEUES = 4  # each by itself; for more, one script


async def claim(store: RedisStore, queue: str, name: str) -> bool:
    """Store a claim on a job that was announced, unless another driver has."""
    key = f"{{{queue}}}:th:woken:{name}"
    return bool(await store.endpoint.ask("SET", key, "1", "NX", "PX", CLAIM_MS, key=key))


async def holds_any(store: RedisStore, queues: Sequence[str], names: Sequence[str] = READY + TIMED) -> bool:
    """Whether any of these queues has one of these keys. Without any a reserve finds nothing."""

    async def ask(some: Sequence[str]) -> bool:
        keys = [f"{{{queue}}}:{name}" for queue in some for name in names]
        return bool(await store.endpoint.ask("EXISTS", *keys, key=keys[0]))

    calls = [
        (home, partial(ask, some))
        for home, positions in store.router.by_home(queues)
        for some in sliced([queues[position] for position in positions], MAX_LOOKED_QUEUES)
    ]
    return True in await store.router.each(calls)


async def next_work(reader: JobReader, queues: Sequence[str], now: int) -> float | None:
    """In how many seconds a reserve may find something: 0 or less for now; None if nothing is there. An empty store
    costs one command, however many queues."""
    store = reader.store
    if not await holds_any(store, queues):
        return None
    if await holds_any(store, queues, READY):
        return 0.0
    if len(queues) > MAX_PROBED_QUEUES:
        at = await reader.upcoming(queues, 0)
        return None if at is None else (at - now) / 1000
    keys = [(queue, f"{{{queue}}}:{name}") for queue in queues for name in TIMED]
    calls = [
        (store.router.home_of(queue), partial(store.endpoint.ask, "ZRANGE", key, 0, 0, "WITHSCORES", key=key))
        for queue, key in keys
    ]
    found = [reply for reply in await store.router.each(calls) if reply and not isinstance(reply, BackendUnavailable)]
    return min(((float(reply[1]) - now) / 1000 for reply in found), default=None)


def _last_in_place(found: dict[str, JobInfo], id: str) -> JobInfo:
    info, passed = found[id], {id}
    while (heir := info.job.handed_to) in found and heir not in passed:  # another program may have closed a circle
        info = found[heir]
        passed.add(heir)
    return info


def _queues_of(keys: Sequence[bytes], seen: set[bytes]) -> set[str]:
    """The names of queues in the names of keys, without those whose tags were seen before."""
    parts = [key.partition(b"}:") for key in keys]
    new = {tag for tag, _, name in parts if not _is_left(name)} - seen
    seen |= new
    names = {records.name_of(tag[1:]) for tag in new}
    return {name for name in names if name and "{" not in name and not name.startswith(("th:", "cc:")) and name != "th"}


def _is_left(name: bytes) -> bool:
    """Whether a key stays when its queue is forgotten: the limit of a group, and that there are groups."""
    return name == b"has_groups" or (name.startswith(b"g:") and name.endswith(b":limit"))


# The heads of queues


# Groups at their limit are found by their active jobs. So in a queue with more than MAX_LOOKS groups and active jobs it
# is not known since when the oldest waits.
MAX_LOOKS = 1000  # in one script, as no other call gets a turn meanwhile; the same again for what is next


async def heads(store: RedisStore, queues: Sequence[str], now: int, n: int) -> dict[str, QueueHead]:
    """The head of each of these queues, by name."""
    most = min(MAX_LOOKS, looks_for_each(queues))

    def args(home: str, some: list[str]) -> ScriptCall:
        return ScriptCall("heads", now=now, home=home, queues=some, wanted=n, looks=most)

    replies = await store.run_for_each(queues, queues, MAX_LOOKS // most, args)
    return {queue: _head(queue, reply, n) for queue, reply in zip(queues, replies, strict=True)}


def _head(queue: str, reply: list[Any], n: int) -> QueueHead:
    oldest, oldest_known, following = reply
    oldest_at = None if oldest is None else moment_of(int(oldest))
    if n == 0 or following is None:
        return QueueHead(queue, oldest_at, (), bool(oldest_known), n == 0)
    groups_next, ungrouped, groups = following
    names = in_turn(map(text_of, ungrouped), [list(map(text_of, ids)) for ids in groups], bool(groups_next), n)
    return QueueHead(queue, oldest_at, names, bool(oldest_known))
