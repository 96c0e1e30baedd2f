"""The calls of the contract on one server: each is one script, whatever queues it touches.

cluster.py has the same for a Cluster, where a script reaches one queue only. Times are milliseconds here, jobs were
checked, and errors are raised or answered as the contract says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from taskharbor.drivers.contract import CANCELLED_REASON, FLOW_CANCELLED_REASON, within_lease
from taskharbor.drivers.redis import enqueue
from taskharbor.drivers.redis.endpoint import LOST, Endpoint, passed_since
from taskharbor.drivers.redis.enqueue import EnqueuePlan, KnownJob
from taskharbor.drivers.redis.records import name_of, plain, stored, whole
from taskharbor.drivers.redis.scripts import binary, load
from taskharbor.drivers.redis.settle import PlannedSpawn, check, question, spelled
from taskharbor.drivers.redis.settle import plain as plain_acks
from taskharbor.model.errors import BackendUnavailable, DriverError, InvalidJob
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued, Lease
from taskharbor.model.outcome import Ack, Fail, Outcome
from taskharbor.model.safe_repr import shown

TENDED = "{th}:tended"  # there while one worker looks after the queues of others
STRAYS = 64  # of those are visited in a round
WATCHED_SLICE = 200  # watched jobs are looked at by one script
WATCHED = "{th}:watched"  # queues with jobs on which others depend, or that belong to a run
QUEUES = "{th}:queues"
LOOK = 2000  # so many ids are looked up by one script
SEEK = 2000  # so many keys, of ids in queues, are looked for by one
VISITED = 50  # so many queues are visited by one
MOVED = 100  # so many jobs are moved by one
READ = 200  # so many records are read by one
T = TypeVar("T")
Where = Sequence[tuple[str, str | None]]  # ids, each with its queue if that is known and nobody noted it
HOME = "th"  # what the anchor is called where a script belongs to no queue
PLANS = 50  # how often a plan that was overtaken is made again
STALE = 5
SLOW_FOR = 20  # calls
DUE_FOR = 3  # calls of enqueue, after one that others had to be lined up for
MANY_QUEUES = 250  # are looked at by one script of a reserve, at most


class QueueGrants(NamedTuple):
    """What a reserve found in one queue: the number of its last arrival if nothing is left; id, token and values of
    each job; the end of their leases in ms."""

    queue: str
    arrival: bytes | None
    jobs: list[Any]
    end: int

    def __repr__(self) -> str:
        return shown(self, "queue", "end")


class StandaloneCommands:
    """One server."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._reserves = 0
        self._strays: bytes = b"0"  # how far the queues of others were walked
        self._slow: dict[str, int] = {}  # verb → for how many calls its quick script is left alone

    # Enqueue

    async def enqueue(self, jobs: Sequence[JobRecord], now: int) -> list[Enqueued]:
        if await self._put(jobs, jobs[0].queue, now, False):
            return [Enqueued(job.id, False) for job in jobs]
        if any(job.depends_on for job in jobs):
            return await self._enqueue_edges(jobs, now)
        script = load("enqueue")
        flat = [stored(job, now) for job in jobs]
        args = (now, False, "", False, flat, (), False)
        answers = await self.endpoint.run(script, jobs[0].queue, args, durable=True, timed=True)
        return [answered(job, answer) for job, answer in zip(jobs, answers, strict=True)]

    async def _put(self, jobs: Sequence[JobRecord], queue: str, now: int, cluster: bool) -> bool:
        """Store plain jobs that nobody knows, which nearly all are; False: that is not what these are."""
        flat = plain(jobs, now) if self._quick("enqueue") else None
        if flat is None:
            return False
        ids = flat[::7]
        args = (now, cluster, queue, flat, False if ids == (ordered := sorted(ids)) else ordered)
        answer: bytes = await self.endpoint.run(load("enqueue_plain"), queue, args, durable=True, timed=True)
        if answer == b"DUE":
            self._slow["enqueue"] = DUE_FOR
        return answer == b"OK"

    async def _enqueue_edges(self, jobs: Sequence[JobRecord], now: int) -> list[Enqueued]:
        for _ in range(PLANS):
            plan = await enqueue.make(jobs, self)
            flat = [stored(job, now, plan.text(id)) for id, job in plan.fresh.items()]
            needed = [(queue, id, gone) for (queue, id), gone in plan.needed.items()]
            args = (now, False, "", True, flat, needed, False)
            if await self.endpoint.run(load("enqueue"), jobs[0].queue, args, durable=True, timed=True) == b"OK":
                return plan.answers
        raise overtaken()

    async def look(
        self, where: Mapping[str, str | None], keys: Iterable[tuple[str, str]]
    ) -> tuple[dict[str, KnownJob], dict[tuple[str, str], str]]:
        """What is known of jobs and keys, for planning."""
        known: dict[str, KnownJob] = {}
        held: dict[tuple[str, str], str] = {}
        for part in sliced([(id, queue or False) for id, queue in where.items()], LOOK):
            jobs, _ = await self.endpoint.run(load("read_for_plan"), HOME, (False, part, ()))
            known |= {id: enqueue.known_of(answer) for (id, _), answer in zip(part, jobs, strict=True) if answer}
        for some in sliced(list(keys), LOOK):
            _, found = await self.endpoint.run(load("read_for_plan"), HOME, (False, (), some))
            held |= {key: id.decode() for key, id in zip(some, found, strict=True) if id}
        return known, held

    async def known_queues(self) -> list[str]:
        """The names that somebody noted."""
        names: dict[str, None] = {}
        cursor = b"0"
        while True:
            cursor, found = await self.endpoint.ask("ZSCAN", QUEUES, cursor, "COUNT", 1000, key=QUEUES)
            names |= {name: None for data in found[::2] if (name := name_of(data)) is not None}
            if cursor == b"0":
                return sorted(names)

    async def seek(self, ids: Sequence[str], queues: Sequence[str] | None = None) -> dict[str, str]:
        """The queues of ids that nobody noted, because a foreign client published them: by looking into all of these,
        or all that are known, some thousand keys at a time."""
        found: dict[str, str] = {}
        for names in sliced(queues if queues is not None else await self.known_queues(), SEEK // 4):
            for part in sliced([id for id in ids if id not in found], SEEK // len(names)):
                numbers = await self.endpoint.run(load("find_in_queues"), HOME, (names, part))
                found |= {id: names[number - 1] for id, number in zip(part, numbers, strict=True) if number}
        return found

    # Leases

    async def reserve(
        self, queues: Sequence[str], now: int, lease: int, limit: int, worker: str, tokens: Sequence[str]
    ) -> list[QueueGrants]:
        """What was granted in each queue. Of very many queues one script asks some; each call begins with others."""
        parts, found, used = list(sliced(queues, MANY_QUEUES)), list[QueueGrants](), 0
        first = self._reserves % len(parts)
        self._reserves += 1
        for part in parts[first:] + parts[:first]:
            args = (now, False, "", part, lease, limit - used, worker, tokens[used:])
            found += await self._reserve(part[0], args)
            used = sum(len(grants.jobs) for grants in found)
            if used == limit:
                break
        return found

    async def _reserve(self, queue: str, args: tuple[Any, ...]) -> list[QueueGrants]:
        """One reserve. If its reply is lost, what it granted is asked for by its tokens, and leased from now on: the
        time for which nobody answered is not taken from the lease."""
        now, lease = args[0], args[4]
        within = within_lease(timedelta(milliseconds=lease))
        began = asyncio.get_running_loop().time()
        try:
            if len(args[3]) == 1 and self._quick("reserve"):
                answer = await self.endpoint.run(load("reserve_plain"), queue, args, repeat=False, within=within)
                if answer != b"SLOW":
                    seq, jobs = answer
                    granted = [(values[-1], token, values) for values, token in zip(jobs, args[7], strict=False)]
                    return [QueueGrants(queue, seq, granted, now + lease)]
                self._slow["reserve"] = SLOW_FOR
            answer = await self.endpoint.run(load("reserve"), queue, (*args, False), repeat=False, within=within)
        except BackendUnavailable as error:
            if not isinstance(error.__cause__, LOST):
                raise
            now += passed_since(began)
            again = (now, *args[1:], args[0])
            answer = await self.endpoint.run(load("reserve"), queue, again, repeat=False, within=within)
        return [
            QueueGrants(name.decode(), seq, [(id, token.decode(), values) for id, token, values in jobs], now + lease)
            for name, seq, jobs in answer
        ]

    async def extend(self, leases: Sequence[Lease], now: int, span: int) -> list[int]:
        """For each lease its new end, or minus a refusal."""
        given = [(lease.queue, lease.job_id, lease.token) for lease in leases]
        return await self._extend(HOME, (now, False, "", span, given))

    async def _extend(self, queue: str, args: tuple[Any, ...]) -> list[int]:
        within = within_lease(timedelta(milliseconds=args[3]))
        answer: list[int] = await self.endpoint.run(load("extend"), queue, args, within=within, timed=True)
        return answer

    async def release(self, worker: str, now: int, keep: Sequence[str]) -> int:
        """Give back what a worker holds, in the order of arrival: found and moved in slices, whatever others hold."""
        leases: list[Any] = []
        for home, queues in self.parts(await self.known_queues()):
            leases += await self._held(home, queues, worker, now, keep)
        leases.sort(key=lambda lease: int(lease[2]))
        number = 0
        for home, mine in self.homes(leases):
            for some in sliced(mine, MOVED):
                given = [(queue, binary(id)) for queue, id, _ in some]
                args = (now, self.endpoint.cluster, home, worker, keep, given)
                number += await self.endpoint.run(load("release"), home or HOME, args)
        return number

    async def _held(self, home: str, queues: Sequence[str], worker: str, now: int, keep: Sequence[str]) -> list[Any]:
        """What a worker holds in these queues: queue, id, place in the order of arrival."""
        found: list[Any] = []
        number, cursor = 1, "0"
        while number:
            args = (now, queues, worker, keep, number, cursor)
            some, number, left = await self.endpoint.run(load("list_leases"), home, args)
            found += [(queue.decode(), id, seq) for queue, id, seq in some]
            cursor = left.decode()
        return found

    def homes(self, leases: list[Any]) -> Iterator[tuple[str, list[Any]]]:
        """Leases by where a script reaches them."""
        return iter([("", leases)] if leases else [])

    # What others left behind: see housekeeping.py

    async def tend(self, queues: Sequence[str], now: int) -> None:
        """Look after these queues, and all of others, at once."""
        others = [name.decode() for name in await self.endpoint.ask("SMEMBERS", WATCHED, key=WATCHED)]
        for queue in dict.fromkeys([*queues, *others]):
            while await self.visit(queue, now, 0):
                pass

    async def worth_a_visit(self, queues: Sequence[str]) -> list[str]:
        """Which of these queues have something to look after."""
        keys = [f"{{{queue}}}:{name}" for queue in queues for name in ("completed", "th:watched")]
        if not keys or not await self.endpoint.ask("EXISTS", *keys):
            return []
        return list(queues)

    async def strays(self, pace: int) -> list[str]:
        """Queues that have something to look after, whoever serves them; none if another worker looks after them."""
        if not await self.endpoint.write("SET", TENDED, "1", "NX", "PX", pace, key=TENDED):
            return []
        self._strays, found = await self.endpoint.ask("SSCAN", WATCHED, self._strays, "COUNT", STRAYS, key=WATCHED)
        return [name.decode() for name in found]

    async def visit(self, queue: str, now: int, pace: int) -> bool:
        """Look after a queue, unless somebody did in the last `pace` ms; answers whether there is more to do now."""
        found = await self.endpoint.run(load("housekeep"), queue, (now, False, "", queue, pace, WATCHED_SLICE))
        return found is not None and bool(found[0])

    # Outcomes

    async def settle(self, outcomes: Sequence[Outcome], now: int) -> list[int | InvalidJob]:
        """For each outcome 0, a refusal, or why it is invalid. Those with a spawn are planned one by one."""
        applied = await self._ack(outcomes, now)
        answers: list[int | InvalidJob] = [0] * applied
        if applied:
            outcomes = outcomes[applied:]
        run: list[Any] = []
        for outcome in outcomes:
            invalid = check(outcome, self.endpoint.options.max_payload)
            if invalid is not None:
                answers += await self._settle([*run, question(outcome)], now)
                run = []
                if answers[-1] == STALE:
                    answers[-1] = invalid
            elif isinstance(outcome, Ack | Fail) and (outcome.spawn or getattr(outcome, "handover", None) is not None):
                answers += await self._settle(run, now)
                run = []
                answers.append(await self._settle_planned(outcome, now))
            else:
                run.append(spelled(outcome))
        answers += await self._settle(run, now)
        return answers

    async def _ack(self, outcomes: Sequence[Outcome], now: int) -> int:
        """Acks of plain jobs, which nearly all outcomes are, have a script of their own. Answers how many of the
        outcomes, from the first on, it has applied."""
        flat = plain_acks(outcomes) if self._quick("settle") else None
        if not flat or (home := self.one_home(flat[::4])) is None:
            return 0
        applied: int = await self.endpoint.run(
            load("ack_plain"), flat[0], (now, self.endpoint.cluster, home, flat), durable=True
        )
        if applied < len(outcomes):
            self._slow["settle"] = SLOW_FOR
        return applied

    def one_home(self, queues: Sequence[str]) -> str | None:
        """Where one script reaches all of these queues; None: nowhere."""
        return ""

    async def _settle(self, outcomes: list[Any], now: int) -> list[int]:
        if not outcomes:
            return []
        return await self._apply(outcomes, outcomes[0][0], now, False, "")

    async def _apply(self, outcomes: list[Any], queue: str, now: int, cluster: bool, home: str) -> list[int]:
        answer: list[int] = await self.endpoint.run(load("settle"), queue, (now, cluster, home, outcomes), durable=True)
        return answer

    def _quick(self, verb: str) -> bool:
        """Whether the quick script of a verb is worth trying: not for a while after it could not do it all."""
        left = self._slow.get(verb, 0)
        if left:
            self._slow[verb] = left - 1
        return not left

    async def _settle_planned(self, outcome: Ack | Fail, now: int) -> int | InvalidJob:
        for _ in range(PLANS):
            try:
                spawn = await self.planned(outcome, now)
            except enqueue.Overtaken:
                continue
            except InvalidJob as invalid:
                # Refusals for the lease come before those for what is in it.
                (refused,) = await self._settle([question(outcome)], now)
                return invalid if refused == STALE else refused
            (answer,) = await self._settle([spelled(outcome, spawn)], now)
            if answer != STALE:
                await self.spawned(outcome.spawn, spawn, now)
                return answer
        raise overtaken()

    async def spawned(self, jobs: Sequence[JobRecord], spawn: PlannedSpawn, now: int) -> None:
        """An outcome with this spawn was applied, or refused."""

    async def planned(self, outcome: Ack | Fail, now: int) -> PlannedSpawn:
        """The spawn of an outcome, planned; InvalidJob if it cannot be stored."""
        plan = await enqueue.make(outcome.spawn, self)
        lease, heir = outcome.lease, None
        if isinstance(outcome, Ack):
            plan.acked = lease.job_id
        if isinstance(outcome, Ack) and outcome.handover is not None:
            heir = await enqueue.heir_of(plan, self, outcome.spawn, lease.job_id, outcome.handover)
            dependents = await self.dependents(lease.queue, lease.job_id)
            if dependents:
                await enqueue.refuse_cycle_by_handover(plan, self, heir, dependents)
        return await self.filled(plan, now, heir)

    async def filled(self, plan: EnqueuePlan, now: int, heir: str | None) -> PlannedSpawn:
        flat = [stored(job, now, plan.text(id)) for id, job in plan.fresh.items()]
        needed = [(queue, id, gone) for (queue, id), gone in plan.needed.items()]
        return PlannedSpawn(flat, needed, False, heir or False, plan.queue_of(heir) if heir else "")

    async def dependents(self, queue: str, id: str) -> set[str]:
        found = await self.endpoint.ask("HKEYS", f"{{{queue}}}:th:after:{id}", key=f"{{{queue}}}")
        return {one.decode(errors="replace") for one in found if one}

    # Admin

    async def requeue(self, where: Where, now: int, run_at: int | None, reset: bool) -> list[Any]:
        at = run_at if run_at is not None else False
        return await self._admin("requeue", where, now, at, reset, "")

    async def cancel(self, where: Where, now: int) -> list[Any]:
        return await self._admin("cancel", where, now, False, False, CANCELLED_REASON)

    async def delete(self, where: Where) -> list[Any]:
        return await self._admin("delete", where, await self.clock(), False, False, "")

    async def clock(self) -> int:
        """The server's time in ms, for what no caller gives a time for and nothing depends on: bookkeeping."""
        seconds, micros = await self.endpoint.ask("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def _admin(self, operation: str, where: Where, now: int, *rest: Any) -> list[Any]:
        """For each 0, 1 if there is no such job, or what it is instead."""
        return await self._in_slices(HOME, "", operation, [(id, queue or False) for id, queue in where], now, *rest)

    async def _in_slices(
        self, queue: str, home: str, operation: str, items: Sequence[Any], now: int, *rest: Any
    ) -> list[Any]:
        answers: list[Any] = []
        while len(answers) < len(items):
            some = items[len(answers) : len(answers) + MOVED]
            args = (now, self.endpoint.cluster, home, operation, some, *rest)
            answers += await self.endpoint.run(load("admin"), queue, args, repeat=False)
        return answers

    async def cancel_flow(self, flow: str, now: int) -> int:
        return (await self.cancel_run(flow, HOME, "", None, "", now))[0]

    async def cancel_run(
        self, flow: str, queue: str, home: str, queues: Sequence[Any] | None, generation: str, now: int
    ) -> tuple[int, bool]:
        """Flag a run, and cancel what is not terminal, in slices. Answers how many, and whether it has any."""
        number, index, cursor = 0, 1, b"0"
        while True:
            where = [one if isinstance(one, str) else binary(one) for one in queues] if queues is not None else False
            args = (
                now,
                self.endpoint.cluster,
                home,
                flow,
                where,
                FLOW_CANCELLED_REASON,
                generation,
                index,
                binary(cursor),
            )
            answer = await self.endpoint.run(load("cancel_flow"), queue, args, repeat=False)
            cancelled, found, queues, index, cursor = answer
            number += cancelled
            if not index:
                return number, bool(found)

    # What prune and the sweep need

    def parts(self, queues: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
        """Queues that one script may visit, and where it runs."""
        return ((HOME, list(part)) for part in sliced(queues, VISITED))

    async def look_at_notes(self) -> None:
        """Look for ids that were noted and never stored; where one script does both there are none."""

    async def is_open(self, flow: str) -> bool:
        """Whether a run goes on, where a script cannot know it."""
        raise AssertionError("on one server a script knows")

    async def delivered(self, queues: Iterable[str]) -> None:
        """Deliver what scripts on these queues left for others."""

    async def pause(self, queue: str, on: bool) -> None:
        await self.endpoint.run(load("pause"), queue, (0, False, "", queue, on))

    async def arrivals(self, queues: Sequence[str]) -> dict[str, int]:
        """The number of the last arrival in each queue."""
        found = await self.endpoint.ask("MGET", *(f"{{{queue}}}:th:seq" for queue in queues)) if queues else []
        return {queue: whole(number) for queue, number in zip(queues, found, strict=True)}

    # Reading

    async def read(self, where: Where) -> list[Any]:
        """For each id its record, or None."""
        answers: list[Any] = []
        for part in sliced([(id, queue or False) for id, queue in where], READ):
            answers += await self.endpoint.run(load("read_jobs"), HOME, (False, part))
        return answers

    async def flow(self, flow: str) -> list[Any]:
        """The records of a run."""
        return await self._read_run(flow, HOME, False)

    async def _read_run(self, flow: str, home: str, queues: Sequence[str] | bool) -> list[Any]:
        """A large run is read in slices, until none of its jobs is new: so what a job spawned that was read as done is
        read as well."""
        found: dict[tuple[bytes, bytes], Any] = {}
        while True:
            is_large, answers = await self.endpoint.run(load("read_flow"), home, (flow, queues))
            if not is_large:
                return list(answers)
            new = [(queue, id) for queue, id in answers if (queue, id) not in found]
            if not new:
                return [record for record in found.values() if record]
            for part in sliced(new, READ):
                asked = [(binary(id), binary(queue)) for queue, id in part]
                records = await self.endpoint.run(load("read_jobs"), home, (self.endpoint.cluster, asked))
                found |= dict(zip(part, records, strict=True))


def sliced(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Some of them at a time.

    >>> list(sliced("abcde", 2))
    ['ab', 'cd', 'e']
    """
    return (items[first : first + size] for first in range(0, len(items), size))


def answered(job: JobRecord, answer: Any) -> Enqueued:
    """What enqueue.lua answers of a job."""
    if answer == 0:
        return Enqueued(job.id, False)
    return Enqueued(job.id if answer == 1 else answer.decode(), True)


def overtaken() -> DriverError:
    return DriverError(f"the jobs that this call depends on changed {PLANS} times while it was planned; send it again")
