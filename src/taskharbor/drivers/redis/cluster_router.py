"""A Cluster, where a script reaches the keys of one queue and no others.

A call over several queues is atomic for each of them, and may be sent again. What one job does to another in a
different hash slot is a message in the outbox of its queue, written in the same transaction. The client that wrote it
delivers it at once; every other client checks for such messages from time to time, so that none stays when a client
dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

from taskharbor.drivers.redis.cluster_endpoint import ClusterEndpoint
from taskharbor.drivers.redis.cluster_registry import ClusterFlows, ClusterLocations, bucket
from taskharbor.drivers.redis.cluster_rest import RestingQueues
from taskharbor.drivers.redis.endpoint import FULL
from taskharbor.drivers.redis.outbox import Outbox
from taskharbor.drivers.redis.records import name_of
from taskharbor.drivers.redis.resp import monotonic
from taskharbor.drivers.redis.router import (
    MAX_SOUGHT_KEYS,
    QUEUES,
    STRAYS,
    TENDED,
    TENDED_KEYS,
    Admission,
    CancelIn,
    Flows,
    IdAndQueue,
    QueueGrants,
    ReserveSome,
    Router,
    Where,
    sliced,
)
from taskharbor.drivers.redis.scripts import ScriptCall
from taskharbor.model.errors import BackendUnavailable, DriverError
from taskharbor.model.ids import new_tokens
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued

BUSY = "{th}:busy"  # queues in which messages are posted, or that have jobs which others may finish
MAX_KNOWN_VISITS = 4  # queues of all known ones that are visited in a round
OPTIONAL_CALL_S = 1.0  # a call that can be done without is given up after this time
AWAY_S = 5.0  # for which a node that did not answer is not asked what can be done without
LISTED_S = {BUSY: 60.0, QUEUES: 600.0}  # after which a client lists a queue again
DROPPED_AFTER_S = {BUSY: 300, QUEUES: 3600}  # after which a queue that was not listed again may leave
MAX_PARALLEL_QUEUES = 32
T = TypeVar("T")


def by_queue(items: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    """Things by their queue, in the order in which they come."""
    found: dict[str, list[T]] = {}
    for queue, item in items:
        found.setdefault(queue, []).append(item)
    return found


class ClusterRouter(Router):
    """A Cluster."""

    divides = True

    def __init__(self, endpoint: ClusterEndpoint) -> None:
        super().__init__(endpoint)
        self._cluster = endpoint
        self.resting = RestingQueues(endpoint)
        self.outbox = Outbox(self)
        self.flows = ClusterFlows(self)
        self.locations = ClusterLocations(self)
        self._listed: dict[tuple[str, str], float] = {}  # list and queue → when this client added the queue to the list
        self._away: dict[str, float] = {}  # queue or key whose node did not answer → until when it is not asked again
        self._walked: dict[str, int] = {}  # list → how far it was walked
        self._unused: dict[str, set[str]] = {BUSY: set(), QUEUES: set()}  # list → queues not added again for long
        self._turns: dict[str, int] = {}  # queue → when it was last served by this client
        self._turn = 0
        self._known: list[str] = []  # queues, as this client read them last

    # Dividing a call

    def home_of(self, queue: str) -> str:
        return queue

    def by_home(self, queues: Sequence[str]) -> Iterable[tuple[str, Sequence[int]]]:
        return by_queue((queue, position) for position, queue in enumerate(queues)).items()

    def shared_home(self, queues: Sequence[str]) -> str | None:
        return queues[0] if len(set(queues)) == 1 else None

    def parts(self, queues: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
        return ((queue, [queue]) for queue in queues)

    async def each(self, calls: Sequence[tuple[str, Callable[[], Awaitable[T]]]]) -> list[T | BackendUnavailable]:
        awake = set(self.resting.awake(queue for queue, _ in calls))
        away = {queue: reason for queue, _ in calls if queue not in awake and (reason := self.away(queue))}
        asked = [(queue, call) for queue, call in calls if queue not in away]
        replies = iter(await self.endpoint.each([call() for _, call in asked]))
        found = [away[queue] if queue in away else next(replies) for queue, _ in calls]
        for (queue, _), reply in zip(calls, found, strict=True):
            if isinstance(reply, BackendUnavailable):
                self.resting.failed(queue, reply)
        return found

    def away(self, home: str) -> BackendUnavailable | None:
        return self.resting.reason(home)

    async def close(self) -> None:
        await self.resting.close()

    async def place(self, where: Where, *, strictly: bool = True) -> list[tuple[str | None, list[IdAndQueue]]]:
        located = await self.locate(where, strictly=strictly)
        parts: list[tuple[str | None, list[IdAndQueue]]] = []
        for id, _ in where:
            queue = located.get(id)
            if not parts or parts[-1][0] != queue:
                parts.append((queue, []))
            parts[-1][1].append((id, queue or False))
        return parts

    async def known_queues(self, *, partly: bool = False) -> list[str]:
        try:
            self._known = await super().known_queues()
        except BackendUnavailable:
            if not partly or not (self._known or self._listed):
                raise
            self.endpoint.left_out += 1
            return sorted({*self._known, *(queue for _, queue in self._listed)})
        return self._known

    async def find(self, ids: Sequence[str], queues: Sequence[str] | None = None) -> dict[str, str]:
        found: dict[str, str] = {}
        for names in sliced(queues if queues is not None else await self.known_queues(), MAX_PARALLEL_QUEUES):
            for part in sliced([id for id in ids if id not in found], MAX_SOUGHT_KEYS):
                found = await self.check_queues(dict.fromkeys(names, part)) | found
        return found

    # Keys that belong to no queue

    async def register(self, operation: str, key: str, values: Sequence[str]) -> Any:
        """One operation of cluster_registry.lua."""
        home = key[1 : key.rindex("}")]
        return await self.endpoint.run(
            ScriptCall("cluster_registry", home=home, operation=operation, at=key, values=values)
        )

    async def optional(self, what: str, call: Callable[[], Awaitable[T]]) -> T | None:
        """A call that can be done without: None if its node does not answer soon, or did not a moment ago."""
        if self._away.get(what, 0.0) > monotonic():
            return None
        try:
            async with asyncio.timeout(OPTIONAL_CALL_S):
                result = await call()
        except (BackendUnavailable, TimeoutError) as error:
            if str(error) == FULL:
                raise  # it is there, and takes no new jobs
            self._away[what] = monotonic() + AWAY_S
            return None
        self._away.pop(what, None)
        return result

    async def use_queues(self, queues: Iterable[str]) -> None:
        await self._list(QUEUES, queues)

    async def name_queues(self, queues: Sequence[str]) -> None:
        await self.optional("what others named", partial(super().name_queues, queues))

    async def expect_messages(self, queues: Iterable[str]) -> None:
        await self._list(BUSY, queues)

    async def _list(self, list_key: str, queues: Iterable[str]) -> None:
        """Add queues to a list; again after a while, see `_forget`. If the node is away, the next call does it."""
        long_ago = (now := monotonic()) - LISTED_S[list_key]
        new = [queue for queue in dict.fromkeys(queues) if self._listed.get((list_key, queue), long_ago) <= long_ago]
        if new and await self.optional(list_key, partial(self.register, "list", list_key, new)) is not None:
            self._listed |= {(list_key, queue): now for queue in new}

    # Locations of ids

    async def claim(self, pairs: Iterable[tuple[str, str]], operation: str = "claim") -> dict[str, str]:
        """Store the queues of ids; returns the ids of jobs that are in another queue already, with that queue.
        `operation`: "spawn" for jobs of an outcome, which a full server does not refuse."""
        wanted = dict(pairs)
        parts: dict[str, list[str]] = {}
        for id, queue in wanted.items():
            parts.setdefault(bucket(id), []).extend((id, queue))
        replies = await self.endpoint.gather(
            [self.optional(key, partial(self.register, operation, key, values)) for key, values in parts.items()]
        )
        elsewhere: dict[str, str] = {}
        unnoted: list[tuple[str, str]] = []
        for values, found in zip(parts.values(), replies, strict=True):
            if found is None:  # the node that stores these locations is away
                unnoted += [(wanted[id], id) for id in values[::2]]
                continue
            for id, location in zip(values[::2], found, strict=True):
                if location is not None and location.decode() != wanted[id]:
                    elsewhere[id] = location.decode()
        for queue, ids in by_queue(unnoted).items():  # stored when the node is back, see `visited`
            await self.expect_messages([queue])
            await self.endpoint.write("SADD", f"{{{queue}}}:th:unnoted", *ids, key=f"{{{queue}}}")
        there = await self.check_queues(by_queue((queue, id) for id, queue in elsewhere.items()), aliases=False)
        for id in elsewhere:
            if id not in there:  # the client that claimed it died before it stored the job
                await self.register("note", bucket(id), (id, wanted[id]))
        return there

    async def check_queues(
        self, asked: Mapping[str, Sequence[str]], *, aliases: bool = True, partly: bool = False
    ) -> dict[str, str]:
        """Which of the ids are really in the queues given, or known there under another id. `partly`: queues that
        cannot be reached are left out, unless that is all of them."""
        found: dict[str, str] = {}
        calls = [
            (queue, partial(self.endpoint.run, ScriptCall("check_locations", home=queue, ids=ids)))
            for queue, ids in asked.items()
        ]
        for (queue, ids), replies in zip(asked.items(), await self.each(calls), strict=True):
            if isinstance(replies, BackendUnavailable):
                if partly:
                    continue
                raise replies
            found |= {id: queue for id, reply in zip(ids, replies, strict=True) if reply == 1 or (reply and aliases)}
        return found

    async def locate(self, where: Where, *, strictly: bool = True) -> dict[str, str]:
        """The queues of ids: as stored, else as given. `strictly`: an id whose location cannot be read is looked for in
        every queue, and must be in one."""
        stored = await self._locations(dict.fromkeys(id for id, _ in where))
        there = await self.check_queues(by_queue((queue.decode(), id) for id, queue in stored.items() if queue))
        given = [(queue, id) for id, queue in where if queue is not None and id not in there]
        there |= await self.check_queues(by_queue(given))
        unread = [id for id, _ in where if id not in stored and id not in there] if strictly else []
        if unread:
            for names in sliced(await self.known_queues(partly=True), MAX_PARALLEL_QUEUES):
                there |= await self.check_queues(dict.fromkeys(names, unread), partly=True)
            if not there.keys() >= set(unread):
                raise BackendUnavailable("Redis did not answer: the node that knows the queue of a job is away")
        return there

    async def _locations(self, ids: Iterable[str]) -> dict[str, bytes | None]:
        """The stored queue of each id, or None; ids whose location cannot be read are left out."""
        parts = by_queue((bucket(id), id) for id in ids)

        async def read(key: str, some: list[str]) -> dict[str, bytes | None]:
            call = partial(self.endpoint.run, ScriptCall("read_locations", home=key[1:-1], at=key, ids=some))
            found = await self.optional(key, call)
            return {} if found is None else dict(zip(some, found, strict=True))

        stored: dict[str, bytes | None] = {}
        for found in await self.endpoint.gather([read(key, some) for key, some in parts.items()]):
            stored |= found
        return stored

    # Around storing jobs

    async def admit(self, jobs: Sequence[JobRecord]) -> Admission:
        await self.use_queues(job.queue for job in jobs)
        first: dict[str, JobRecord] = {}
        for job in jobs:
            first.setdefault(job.id, job)
        elsewhere = await self.claim((job.id, job.queue) for job in first.values())
        await self.expect_messages(job.queue for job in first.values() if job.flow_id is not None)
        flows = await self.flows.enter(first.values())
        parts = by_queue((job.queue, job) for id, job in first.items() if id not in elsewhere)
        return Admission(list(parts.items()), {id: Enqueued(id, True) for id in elsewhere}, flows)

    async def admit_planned(self, jobs: Sequence[JobRecord], needed: Iterable[str], *, spawned: bool = False) -> Flows:
        if spawned:
            await self.use_queues(job.queue for job in jobs)
        await self.expect_messages([*(job.queue for job in jobs), *needed])
        await self.claim(((job.id, job.queue) for job in jobs), "spawn" if spawned else "claim")
        return await self.flows.enter(jobs)

    async def confirm(self, jobs: Iterable[JobRecord], flows: Flows, now: int) -> None:
        if flows:
            await self.flows.confirm(jobs, flows, now)

    async def settled_results(self, ids_by_queue: Mapping[str, Sequence[str]]) -> dict[str, str]:
        others: dict[str, str] = {}
        for queue, ids in ids_by_queue.items():
            found, _ = await self.endpoint.run(
                ScriptCall("read_for_plan", home=queue, jobs=[(id, queue) for id in ids])
            )
            for id, reply in zip(ids, found, strict=True):
                if not reply:
                    raise BackendUnavailable("Redis has the call, but has not stored all of its jobs; send it again")
                _, state, heir, _, _ = reply
                if state == b"alias":
                    others[id] = heir.decode(errors="replace")
                    await self.register("gone", bucket(id), (id, queue))
        return others

    async def deliver(self, queues: Iterable[str]) -> None:
        await self.outbox.deliver(queues)

    # Reserving

    async def reserve(
        self, queues: Sequence[str], limit: int, tokens: Sequence[str], reserve_some: ReserveSome
    ) -> list[QueueGrants]:
        """Each queue has its share of what is left; the one first that was served longest ago. The queues of a node are
        asked one after the other, the nodes at once. A queue that cannot be asked is left out, unless all cannot."""
        order = sorted(self.resting.awake(queues), key=lambda queue: self._turns.get(queue, 0))
        found: list[QueueGrants] = []
        left = list(tokens)
        while left and order:
            try:
                granted = await self._reserve_in(order, left, reserve_some)
            except DriverError:
                if not any(grants.jobs for grants in found):
                    raise
                break  # what was granted must run; the next call says it again
            found += [grants for grants, _ in granted]
            order = [grants.queue for grants, is_full in granted if is_full]
        return found

    async def _reserve_in(
        self, order: Sequence[str], left: list[str], reserve_some: ReserveSome
    ) -> list[tuple[QueueGrants, bool]]:
        """Ask each of these queues once; returns what was granted, and whether that was its whole share."""
        turns: dict[object, asyncio.Lock] = {}
        refused: list[DriverError] = []
        returned, unasked, under_way = asyncio.Event(), len(order), 0

        async def ask(queue: str) -> tuple[QueueGrants, bool] | None:
            nonlocal unasked, under_way
            async with turns.setdefault(self._cluster.address_of(f"{{{queue}}}"), asyncio.Lock()):
                while not left and under_way:
                    returned.clear()
                    await returned.wait()
                share, unasked = -(-len(left) // unasked), unasked - 1
                if not share:
                    return None
                own, left[:share] = left[:share], []
                under_way += 1
                try:
                    (grants,) = await reserve_some(queue, [queue], share, own)
                except BackendUnavailable:
                    left.extend(new_tokens(share))  # the old ones may be in use
                    raise
                except DriverError as error:  # what others grant must run
                    left.extend(own)
                    refused.append(error)
                    return None
                finally:
                    under_way -= 1
                    returned.set()
                used = len(grants.jobs)
                left.extend(own[used:])
                if used:
                    self._turn += 1
                    self._turns[queue] = self._turn
                return grants, used == share

        replies = await self.each([(queue, partial(ask, queue)) for queue in order])
        granted = [reply for reply in replies if reply is not None and not isinstance(reply, BackendUnavailable)]
        if refused and not any(grants.jobs for grants, _ in granted):
            raise refused[0]
        return granted

    # Flows

    async def flow_parts(self, flow: str) -> list[tuple[str, list[str] | Literal[False]]]:
        return [(queue, [queue]) for queue in await self.flows.queues(flow)]

    async def cancel_flow(self, flow: str, cancel_in: CancelIn) -> None:
        await self.flows.cancel(flow, cancel_in)

    async def flow_is_open(self, flow: str) -> bool:
        return await self.flows.is_open(flow)

    # Housekeeping

    async def to_visit(self, queues: Sequence[str]) -> list[str]:
        """Also those that may be forgotten. One that cannot be asked is visited: so it rests, and the log names it."""

        async def ask(queue: str) -> Any:
            keys = [f"{{{queue}}}:{name}" for name in (*TENDED_KEYS, "th:outbox", "th:alias", "th:unnoted")]
            return await self.endpoint.ask("EXISTS", *keys, key=keys[0])

        replies = await self.endpoint.each([ask(queue) for queue in queues]) if queues else []
        unused = set().union(*self._unused.values())
        return [queue for queue, reply in zip(queues, replies, strict=True) if reply or queue in unused]

    async def queues_of_others(self, pace_ms: int) -> list[str]:
        """Queues in which messages were expected lately, and a few of all others: those may be forgotten."""
        if not await self.takes_turn(TENDED, pace_ms):
            return []
        now = int((await self.endpoint.ask("TIME", key=QUEUES))[0])
        busy, known = await self._walk(BUSY, STRAYS, now), await self._walk(QUEUES, MAX_KNOWN_VISITS, now)
        return list(dict.fromkeys([*busy, *known]))

    async def _walk(self, list_key: str, count: int, now: int) -> list[str]:
        first = self._walked.get(list_key, 0)
        found = await self.endpoint.ask("ZRANGE", list_key, first, first + count - 1, "WITHSCORES", key=list_key)
        self._walked[list_key] = first + count if len(found) == 2 * count else 0
        listed = {name: float(at) for data, at in zip(found[::2], found[1::2], strict=True) if (name := name_of(data))}
        long_ago = now - DROPPED_AFTER_S[list_key]
        self._unused[list_key] = {name for name, at in listed.items() if at <= long_ago}
        return list(listed)

    async def visited(self, queue: str, posted: int, unnoted: Sequence[bytes], idle: bool) -> None:
        if posted:
            await self.outbox.deliver([queue])
        if unnoted:
            await self._store_locations(queue, [id.decode() for id in unnoted])
        if idle:
            await self._forget(queue)

    async def _store_locations(self, queue: str, ids: Sequence[str]) -> None:
        """Locations that could not be stored with their jobs, because a node was away."""
        for id in await self.check_queues({queue: ids}, aliases=False):
            await self.register("claim", bucket(id), (id, queue))
        await self.endpoint.ask("SREM", f"{{{queue}}}:th:unnoted", *ids, key=f"{{{queue}}}")

    async def restore_locations(self, queue: str, ids: Sequence[str]) -> None:
        lost = [id for id, stored in (await self._locations(ids)).items() if stored is None]
        if lost:
            await self._store_locations(queue, lost)

    async def restore_flows(self, queue: str, flows: Sequence[str], now: int) -> None:
        for flow in flows:
            if queue not in await self.flows.queues(flow) and await self.flows.stored(flow, [queue], now):
                await self.deliver([queue])

    async def all_arrived(self) -> bool:
        queues = await self.known_queues()
        last: dict[str, bytes] = {}  # queue with messages → the number of the last one
        for names in sliced(queues, MAX_PARALLEL_QUEUES):
            asked = [self._outbox(queue, "ZRANGE", -1, -1, "WITHSCORES") for queue in names]
            last |= {
                queue: found[1] for queue, found in zip(names, await self.endpoint.gather(asked), strict=True) if found
            }
        await self.deliver(last)
        left = [await self._outbox(queue, "ZCOUNT", "-inf", number) for queue, number in last.items()]
        return not any(left)

    async def _outbox(self, queue: str, command: str, *values: Any) -> Any:
        key = f"{{{queue}}}:th:outbox"
        return await self.endpoint.ask(command, key, *values, key=key)

    async def _forget(self, queue: str) -> None:
        """A queue that needs no looking after leaves the busy ones; one that holds nothing is forgotten. Both only if
        no client has listed it for long. Each client lists its queues again before that, so none relies on an old
        entry."""
        if queue in self._unused[BUSY]:
            await self.register("drop", BUSY, (queue, str(DROPPED_AFTER_S[BUSY])))
        if queue in self._unused[QUEUES] and await self.endpoint.run(ScriptCall("forget_queue", home=queue)):
            await self.register("drop", QUEUES, (queue, str(DROPPED_AFTER_S[QUEUES])))

    async def check_locations(self) -> None:
        await self.locations.step()
