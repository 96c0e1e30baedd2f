"""The calls of the contract on a Cluster, where a script reaches the keys of one queue and no others.

A call over several queues is atomic for each of them, and may be sent again. What one job does to another in a
different slot is a message in the outbox of its queue, written in the same transaction; whoever wrote it delivers it at
once, and every other client looks for such messages from time to time, so that none stays when a client dies.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from taskharbor.drivers.redis import enqueue
from taskharbor.drivers.redis.cluster_flows import ClusterFlows, FlowEntry
from taskharbor.drivers.redis.cluster_locations import BUCKETS, ClusterLocations
from taskharbor.drivers.redis.commands import (
    LOOK,
    PLANS,
    QUEUES,
    READ,
    SEEK,
    STRAYS,
    TENDED,
    WATCHED_SLICE,
    QueueGrants,
    StandaloneCommands,
    Where,
    answered,
    overtaken,
    sliced,
)
from taskharbor.drivers.redis.endpoint import FULL, Endpoint, gathered
from taskharbor.drivers.redis.enqueue import EnqueuePlan, KnownJob
from taskharbor.drivers.redis.outbox import Outbox
from taskharbor.drivers.redis.records import name_of, stored, whole
from taskharbor.drivers.redis.scripts import load
from taskharbor.drivers.redis.settle import PlannedSpawn
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued, Lease

BUSY = "{th}:busy"  # queues in which messages are posted, or that have jobs which others may finish
A_FEW = 4  # of all queues that are known are visited in a round
SOON = 1.0  # seconds for what can be done without
AWAY_FOR = 5.0  # seconds
NOTED_FOR = {BUSY: 60.0, QUEUES: 600.0}  # seconds after which a client notes a queue again
FORGOTTEN_AFTER = {BUSY: 300, QUEUES: 3600}  # seconds after which a queue that nobody noted may leave
T = TypeVar("T")
AT_ONCE = 32  # queues that are asked side by side
LOOKS = 5  # how often a call looks again for jobs that others were handed over to


def bucket(id: str) -> str:
    """The key that notes the queue of an id."""
    return f"{{th:ids:{zlib.crc32(id.encode()) % BUCKETS}}}"


def by_queue(items: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    """Things by their queue, in the order in which they come."""
    found: dict[str, list[Any]] = {}
    for queue, item in items:
        found.setdefault(queue, []).append(item)
    return found


class ClusterCommands(StandaloneCommands):
    """A Cluster."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.outbox = Outbox(self)
        self.runs = ClusterFlows(self)
        self.notes = ClusterLocations(self)
        self._noted: dict[tuple[str, str], float] = {}  # what was noted of a queue → when
        self._away: dict[str, float] = {}  # queue or key whose node did not answer → for how long it is not asked again
        self._walked: dict[str, int] = {}  # how far the queues of others were walked
        self._unused: dict[str, set[str]] = {BUSY: set(), QUEUES: set()}  # of those, which nobody has noted for long
        self._turns: dict[str, int] = {}  # queue → when it was last served by this client
        self._turn = 0

    # Keys that belong to no queue

    async def register(self, operation: str, key: str, rest: Sequence[str]) -> Any:
        return await self.endpoint.run(load("cluster_registry"), key[1 : key.rindex("}")], (operation, key, rest))

    async def patiently(self, what: str, call: Callable[[], Awaitable[T]]) -> T | None:
        """A call that others can do without: None if its node does not answer soon, or did not a moment ago."""
        time = asyncio.get_running_loop().time
        if self._away.get(what, 0.0) > time():
            return None
        try:
            async with asyncio.timeout(SOON):
                answer = await call()
        except (BackendUnavailable, TimeoutError) as error:
            if str(error) == FULL:
                raise  # it is there, and takes no new jobs
            self._away[what] = time() + AWAY_FOR
            return None
        self._away.pop(what, None)
        return answer

    async def note_queues(self, queues: Iterable[str], list_of: str = QUEUES) -> None:
        """Among the known ones, or another list; again after a while, see `forget`. What cannot be noted now is noted
        by the next call."""
        time = asyncio.get_running_loop().time()
        long_ago = time - NOTED_FOR[list_of]
        new = [queue for queue in dict.fromkeys(queues) if self._noted.get((list_of, queue), long_ago) <= long_ago]
        if new and await self.patiently(list_of, partial(self.register, "list", list_of, new)) is not None:
            self._noted |= {(list_of, queue): time for queue in new}

    async def expect(self, queues: Iterable[str]) -> None:
        """Messages may be posted in these queues, or jobs that others may finish: whoever looks after the queues of
        others is told, before it happens."""
        await self.note_queues(queues, BUSY)

    async def claim(self, pairs: Iterable[tuple[str, str]], how: str = "claim") -> dict[str, str]:
        """Note the queues of ids; answers the ids that are stored in another queue already. `how`: "spawn" for jobs of
        an outcome, which a full server does not refuse."""
        parts: dict[str, list[str]] = {}
        wanted = dict(pairs)
        for id, queue in wanted.items():
            parts.setdefault(bucket(id), []).extend((id, queue))
        noted: dict[str, str] = {}
        replies = await gathered(
            [self.patiently(key, partial(self.register, how, key, rest)) for key, rest in parts.items()]
        )
        unnoted: dict[str, list[str]] = {}
        for rest, found in zip(parts.values(), replies, strict=True):
            if found is None:
                for id in rest[::2]:
                    unnoted.setdefault(wanted[id], []).append(id)
                continue
            for id, queue in zip(rest[::2], found, strict=True):
                if queue is not None and queue.decode() != wanted[id]:
                    noted[id] = queue.decode()
        for queue, ids in unnoted.items():  # their node is away: they are noted when it is back, see `visit`
            await self.expect([queue])
            await self.endpoint.write("SADD", f"{{{queue}}}:th:unnoted", *ids, key=f"{{{queue}}}")
        there = await self.where(by_queue((queue, id) for id, queue in noted.items()), aliases=False)
        gone = [id for id in noted if id not in there]
        if gone:  # whoever noted them is gone
            for id in gone:
                await self.register("note", bucket(id), (id, wanted[id]))
        return there

    async def where(self, asked: Mapping[str, Sequence[str]], *, aliases: bool = True) -> dict[str, str]:
        """Which of the ids are really in the queues given, or known there under another id."""
        found: dict[str, str] = {}
        script = load("check_locations")
        replies = await gathered([self.endpoint.run(script, queue, (queue, ids)) for queue, ids in asked.items()])
        for (queue, ids), answers in zip(asked.items(), replies, strict=True):
            found |= {id: queue for id, answer in zip(ids, answers, strict=True) if answer == 1 or (answer and aliases)}
        return found

    async def locate(self, where: Where, *, strictly: bool = True) -> dict[str, str]:
        """The queues of ids: as noted, else as given. `strictly`: not without a node that notes some of them."""
        asked = list(dict.fromkeys(id for id, _ in where))
        parts: dict[str, list[str]] = {}
        for id in asked:
            parts.setdefault(bucket(id), []).append(id)

        async def noted_in(key: str, part: list[str]) -> list[bytes | None]:
            ask = partial(self.endpoint.run, load("read_locations"), key[1:-1], (key, part))
            return await ask() if strictly else await self.patiently(key, ask) or [None] * len(part)

        replies = await gathered([noted_in(key, part) for key, part in parts.items()])
        noted = [
            (queue.decode(), id)
            for part, found in zip(parts.values(), replies, strict=True)
            for id, queue in zip(part, found, strict=True)
            if queue is not None
        ]
        there = await self.where(by_queue(noted))
        hinted = [(queue, id) for id, queue in where if queue is not None and id not in there]
        return await self.where(by_queue(hinted)) | there

    async def seek(self, ids: Sequence[str], queues: Sequence[str] | None = None) -> dict[str, str]:
        found: dict[str, str] = {}
        for names in sliced(queues if queues is not None else await self.known_queues(), AT_ONCE):
            for part in sliced([id for id in ids if id not in found], SEEK):
                found = await self.where(dict.fromkeys(names, part)) | found
        return found

    # Enqueue

    async def enqueue(self, jobs: Sequence[JobRecord], now: int) -> list[Enqueued]:
        await self.note_queues(job.queue for job in jobs)
        if any(job.depends_on for job in jobs):
            return await self._enqueue_edges(jobs, now)
        first: dict[str, JobRecord] = {}
        for job in jobs:
            first.setdefault(job.id, job)
        elsewhere = await self.claim((job.id, job.queue) for job in first.values())
        await self.expect(job.queue for job in first.values() if job.flow_id is not None)
        flows = await self.runs.enter(first.values())
        answers: dict[str, Enqueued] = {id: Enqueued(id, True) for id in elsewhere}
        for queue, part in by_queue((job.queue, job) for id, job in first.items() if id not in elsewhere).items():
            if await self._put(part, queue, now, True):
                answers |= {job.id: Enqueued(job.id, False) for job in part}
                continue
            flat = [stored(job, now) for job in part]
            args = (now, True, queue, False, flat, (), flows or False)
            found = await self.endpoint.run(load("enqueue"), queue, args, durable=True, timed=True)
            answers |= {job.id: answered(job, answer) for job, answer in zip(part, found, strict=True)}
        if flows:
            await self.runs.confirm(first.values(), flows, now)
        seen: set[str] = set()
        result = []
        for job in jobs:
            answer = answers[job.id]
            result.append(Enqueued(answer.id, True) if job.id in seen else answer)
            seen.add(job.id)
        return result

    async def _enqueue_edges(self, jobs: Sequence[JobRecord], now: int) -> list[Enqueued]:
        """One script stores the jobs of the first queue, and messages that bring the others: all of them, or none."""
        entered: dict[str, FlowEntry] = {}
        for _ in range(PLANS):
            plan = await enqueue.make(jobs, self)
            fresh = list(plan.fresh.values())
            if not fresh:
                return plan.answers
            await self.expect([*(job.queue for job in fresh), *(queue for queue, _ in plan.needed)])
            await self.claim((job.id, job.queue) for job in fresh)
            flows = await self.runs.enter(fresh)
            entered = flows | entered
            home = fresh[0].queue
            needed = [(where, id, gone) for (where, id), gone in plan.needed.items() if where == home]
            args = (now, True, home, True, self.flat(plan, now), needed, flows or False)
            if await self.endpoint.run(load("enqueue"), home, args, durable=True, timed=True) == b"OK":
                await self.outbox.deliver([home])
                answers = await self._answers(plan, home)
                if entered:
                    await self.runs.confirm(jobs, entered, now)
                return answers
        raise overtaken()

    def flat(self, plan: EnqueuePlan, now: int) -> list[Any]:
        return [[*stored(job, now, plan.text(id)), plan.modes(id)] for id, job in plan.fresh.items()]

    async def _answers(self, plan: EnqueuePlan, home: str) -> list[Enqueued]:
        """What a call answers. Where a job came by message, its key may have been taken since the call was planned."""
        keyed = by_queue(
            (job.queue, id) for id, job in plan.fresh.items() if job.idempotency_key is not None and job.queue != home
        )
        others: dict[str, str] = {}
        for queue, ids in keyed.items():
            found, _ = await self.endpoint.run(load("read_for_plan"), queue, (True, [(id, queue) for id in ids], ()))
            for id, answer in zip(ids, found, strict=True):
                if not answer:
                    raise BackendUnavailable("Redis has the call, but has not stored all of its jobs; send it again")
                known = enqueue.known_of(answer)
                if known.alias:
                    others[id] = known.heir
                    await self.register("gone", bucket(id), (id, queue))
        return [Enqueued(others[one.id], True) if one.id in others else one for one in plan.answers]

    async def look(
        self, where: Mapping[str, str | None], keys: Iterable[tuple[str, str]]
    ) -> tuple[dict[str, KnownJob], dict[tuple[str, str], str]]:
        names = list(keys)
        for _ in range(LOOKS):
            known, held = await self._look(where, names)
            waiting = {one.queue for one in known.values() if one.under_way}
            if not waiting:
                return known, held
            await self.outbox.deliver(waiting)  # else nobody could tell a job that is to come from one that is gone
        raise BackendUnavailable("Redis has not stored the jobs that others were handed over to; send the call again")

    async def _look(
        self, where: Mapping[str, str | None], keys: Iterable[tuple[str, str]]
    ) -> tuple[dict[str, KnownJob], dict[tuple[str, str], str]]:
        located = await self.locate(list(where.items()), strictly=False)
        jobs = by_queue((queue, id) for id, queue in located.items())
        keyed = by_queue((key[0], key) for key in keys)
        known: dict[str, KnownJob] = {}
        held: dict[tuple[str, str], str] = {}
        for queue in dict.fromkeys([*jobs, *keyed]):
            for mine in sliced(jobs.get(queue, []), LOOK):
                found, _ = await self.endpoint.run(
                    load("read_for_plan"), queue, (True, [(id, queue) for id in mine], ())
                )
                known |= {id: enqueue.known_of(answer) for id, answer in zip(mine, found, strict=True) if answer}
            for names in sliced(keyed.get(queue, []), LOOK):
                _, taken = await self.endpoint.run(load("read_for_plan"), queue, (True, (), names))
                held |= {key: id.decode() for key, id in zip(names, taken, strict=True) if id}
        return known, held

    # Leases

    async def reserve(
        self, queues: Sequence[str], now: int, lease: int, limit: int, worker: str, tokens: Sequence[str]
    ) -> list[QueueGrants]:
        await self.note_queues(queues)
        order = sorted(queues, key=lambda queue: self._turns.get(queue, 0))
        found: list[QueueGrants] = []
        left, used = limit, 0
        while left and order:
            further = []
            for index, queue in enumerate(order):
                share = -(-left // (len(order) - index))
                if not share:
                    break
                args = (now, True, queue, [queue], lease, share, worker, tokens[used : used + share])
                (grants,) = await self._reserve(queue, args)
                found.append(grants)
                jobs = grants.jobs
                left, used = left - len(jobs), used + len(jobs)
                if jobs:
                    self._turn += 1
                    self._turns[queue] = self._turn
                if len(jobs) == share:
                    further.append(queue)
            order = further
        return found

    async def extend(self, leases: Sequence[Lease], now: int, span: int) -> list[int]:
        ends: dict[int, int] = {}
        for queue, numbers in by_queue((lease.queue, number) for number, lease in enumerate(leases)).items():
            given = [(queue, leases[number].job_id, leases[number].token) for number in numbers]
            found = await self._extend(queue, (now, True, queue, span, given))
            ends |= dict(zip(numbers, found, strict=True))
        return [ends[number] for number in range(len(leases))]

    def homes(self, leases: list[Any]) -> Iterator[tuple[str, list[Any]]]:
        return iter(by_queue((lease[0], lease) for lease in leases).items())

    # What others left behind: see housekeeping.py

    async def tend(self, queues: Sequence[str], now: int) -> None:
        for queue in dict.fromkeys([*queues, *await self.known_queues()]):
            while await self.visit(queue, now, 0):
                pass

    async def worth_a_visit(self, queues: Sequence[str]) -> list[str]:
        return list(queues)

    async def strays(self, pace: int) -> list[str]:
        """Those in which something was expected lately, and a few of all others: their names may be forgotten."""
        if not await self.endpoint.write("SET", TENDED, "1", "NX", "PX", pace, key=TENDED):
            return []
        busy, known = await self._walk(BUSY, STRAYS), await self._walk(QUEUES, A_FEW)
        return list(dict.fromkeys([*busy, *known]))

    async def _walk(self, list_of: str, count: int) -> list[str]:
        first = self._walked.get(list_of, 0)
        found = await self.endpoint.ask("ZRANGE", list_of, first, first + count - 1, "WITHSCORES", key=list_of)
        self._walked[list_of] = first + count if len(found) == 2 * count else 0
        seconds, _ = await self.endpoint.ask("TIME", key=list_of)
        noted = {name: float(at) for data, at in zip(found[::2], found[1::2], strict=True) if (name := name_of(data))}
        self._unused[list_of] = {name for name, at in noted.items() if at <= int(seconds) - FORGOTTEN_AFTER[list_of]}
        return list(noted)

    async def visit(self, queue: str, now: int, pace: int) -> bool:
        found = await self.endpoint.run(load("housekeep"), queue, (now, True, queue, queue, pace, WATCHED_SLICE))
        if found is None:
            return False
        more, posted, unnoted, idle = found
        if posted:
            await self.outbox.deliver([queue])
        if unnoted:
            await self._note_again(queue, [id.decode() for id in unnoted])
        if idle and pace:
            await self._forget(queue)
        return bool(more)

    async def _note_again(self, queue: str, ids: Sequence[str]) -> None:
        """Ids that could not be noted when they were stored."""
        there = await self.where({queue: ids}, aliases=False)
        for id in there:
            await self.register("claim", bucket(id), (id, queue))
        await self.endpoint.ask("SREM", f"{{{queue}}}:th:unnoted", *ids, key=f"{{{queue}}}")

    async def _forget(self, queue: str) -> None:
        """A queue with nothing to look after leaves the busy ones; one that holds nothing is forgotten. Both only if it
        is long since anybody noted it: no client then believes that it stands there."""
        if queue in self._unused[BUSY]:
            await self.register("drop", BUSY, (queue, str(FORGOTTEN_AFTER[BUSY])))
        if queue in self._unused[QUEUES] and await self.endpoint.run(load("forget_queue"), queue, (True, queue)):
            await self.register("drop", QUEUES, (queue, str(FORGOTTEN_AFTER[QUEUES])))

    # Outcomes

    def one_home(self, queues: Sequence[str]) -> str | None:
        return queues[0] if len(set(queues)) == 1 else None

    async def _settle(self, outcomes: list[Any], now: int) -> list[int]:
        answers: dict[int, int] = {}
        parts = by_queue((outcome[0], number) for number, outcome in enumerate(outcomes))
        await self.expect(parts)
        for queue, numbers in parts.items():
            found = await self._apply([outcomes[number] for number in numbers], queue, now, True, queue)
            answers |= dict(zip(numbers, found, strict=True))
        await self.outbox.deliver(parts)
        return [answers[number] for number in range(len(outcomes))]

    async def filled(self, plan: EnqueuePlan, now: int, heir: str | None) -> PlannedSpawn:
        fresh = list(plan.fresh.values())
        await self.note_queues(job.queue for job in fresh)
        await self.expect(job.queue for job in fresh)
        await self.claim(((job.id, job.queue) for job in fresh), "spawn")
        flows = await self.runs.enter(fresh)
        planned = await super().filled(plan, now, heir)
        return planned._replace(jobs=self.flat(plan, now), flows=flows or False)

    async def spawned(self, jobs: Sequence[JobRecord], spawn: PlannedSpawn, now: int) -> None:
        if spawn.flows:
            await self.runs.confirm(jobs, spawn.flows, now)

    # Admin

    async def _admin(self, operation: str, where: Where, now: int, *rest: Any) -> list[Any]:
        located, ids = await self.locate(where), [id for id, _ in where]
        answers: list[Any] = []
        position = 0
        while position < len(ids):
            queue = located.get(ids[position])
            end = position + 1
            while end < len(ids) and located.get(ids[end]) == queue:
                end += 1
            part = ids[position:end]
            position = end
            if queue is None:
                answers += [1] * len(part)
                continue
            items = [(id, queue) for id in part]
            answers += await self._in_slices(queue, queue, operation, items, now, *rest)
            await self.outbox.deliver([queue])
        return answers

    async def cancel_flow(self, flow: str, now: int) -> int:
        return await self.runs.cancel(flow, now)

    def parts(self, queues: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
        return ((queue, [queue]) for queue in queues)

    async def look_at_notes(self) -> None:
        await self.notes.step()

    async def is_open(self, flow: str) -> bool:
        return await self.runs.is_open(flow)

    async def delivered(self, queues: Iterable[str]) -> None:
        await self.outbox.deliver(queues)

    async def pause(self, queue: str, on: bool) -> None:
        await self.note_queues([queue])
        await self.endpoint.run(load("pause"), queue, (0, True, queue, queue, on))

    async def arrivals(self, queues: Sequence[str]) -> dict[str, int]:
        calls = [self.endpoint.ask("MGET", f"{{{queue}}}:th:seq", key=f"{{{queue}}}") for queue in queues]
        return {queue: whole(number) for queue, (number,) in zip(queues, await gathered(calls), strict=True)}

    # Reading

    async def read(self, where: Where) -> list[Any]:
        located = await self.locate(where)
        found: dict[str, Any] = {}
        for queue, mine in by_queue((queue, id) for id, queue in located.items()).items():
            for part in sliced(mine, READ):
                answers = await self.endpoint.run(load("read_jobs"), queue, (True, [(id, queue) for id in part]))
                found |= dict(zip(part, answers, strict=True))
        return [found.get(id) for id, _ in where]

    async def flow(self, flow: str) -> list[Any]:
        found: list[Any] = []
        for queue in await self.runs.queues(flow):
            found += await self._read_run(flow, queue, [queue])
        return found
