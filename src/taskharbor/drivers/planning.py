"""The plan of an enqueue: which jobs of a call are new, and what their dependencies are called in the store.

    plan_jobs      ids and idempotency keys that are known, dependencies followed over handovers, cycles refused
    plan_heir      the job that takes the place of an acked one (`Ack.handover`)
    check_handover no cycle comes of that

Planning may refuse a call and writes nothing. The driver then stores what was planned, which cannot fail: so a call
stores all or none.

Nothing here does I/O. Each function is a generator: it yields a `Lookup`, receives the `Facts`, and returns its
result. A store that can be read at once runs it with `run_plan`, one that must be awaited with `run_plan_async`. A
driver whose calls are themselves generators translates each `Lookup` into its own statements. A store that other
clients change between the lookup and the write has to notice that on writing, and plan again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias, TypeVar

from msgspec.structs import replace

from taskharbor.drivers.refusals import not_spawned, own_heir, unknown_dependency
from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import EPOCH, JobRecord
from taskharbor.model.lease import Enqueued
from taskharbor.model.outcome import Ack
from taskharbor.model.safe_repr import shown

T = TypeVar("T")


class JobFacts(NamedTuple):
    """What a plan needs to know of a stored job.

    >>> JobFacts(done=True, handed_to="01J").depends_on
    ()
    """

    done: bool  # it waits for nothing, and nothing waits for it
    handed_to: str | None = None  # the id of the job that took its place
    depends_on: Sequence[str] = ()  # as they are stored
    queue: str = ""  # this and the following: for a store that cannot find a job by its id alone
    handed_to_queue: str | None = None  # the queue of the job that took its place
    is_alias: bool = False  # it is not a job, but an id that was once enqueued and is known under `handed_to`
    is_moving: bool = False  # the job that takes its place is on its way, and not stored yet

    def __repr__(self) -> str:
        return shown(self, "done", "queue")


class Lookup(NamedTuple):
    """What a plan asks of the store next.

    >>> Lookup({"01J": "mail"}, [("mail", "welcome ada")]).thorough
    False
    """

    ids: Mapping[str, str | None]  # id → the queue that it is in if it is stored; None: any queue
    keys: Collection[tuple[str, str]] = ()  # (queue, idempotency key)
    thorough: bool = False  # the ids should exist: search also where a plain lookup does not

    def __repr__(self) -> str:
        return shown(self, "ids")


class Facts(NamedTuple):
    """What the store found. What it does not have is left out.

    >>> Facts({"01J": JobFacts(done=False)}, {("mail", "welcome ada"): "01J"}).keys["mail", "welcome ada"]
    '01J'
    """

    jobs: Mapping[str, JobFacts]  # by id
    keys: Mapping[tuple[str, str], str]  # (queue, idempotency key) → the id of the job that has it

    def __repr__(self) -> str:
        return shown(self, "jobs")


Planning: TypeAlias = Generator[Lookup, Facts, T]


class PlanOutdated(Exception):
    """The store changed while a plan was made: make it again.

    >>> raise PlanOutdated
    Traceback (most recent call last):
    taskharbor.drivers.planning.PlanOutdated
    """


class Plan:
    """What a call will store, and what it will return.

    >>> plan = run_plan(plan_jobs([JobRecord(id="01J", type="ping")]), lambda lookup: Facts({}, {}))
    >>> list(plan.fresh), plan.results
    (['01J'], [Enqueued(id='01J', existed=False)])
    """

    __slots__ = ("aliases", "fresh", "results", "stored")

    def __init__(self) -> None:
        self.results: list[Enqueued] = []
        self.fresh: dict[str, JobRecord] = {}  # new jobs by id, in the order of the call, with resolved dependencies
        self.aliases: dict[str, str] = {}  # the id of a job that is known by its key → the known id
        self.stored: dict[str, JobFacts] = {}  # the jobs that were looked up

    def dependencies_of(self, id: str) -> Sequence[str]:
        """What a job waits for; nothing, if it is done or unknown."""
        if id in self.fresh:
            return self.fresh[id].depends_on
        stored = self.stored.get(id)
        return stored.depends_on if stored is not None and not stored.done else ()


def plan_jobs(jobs: Sequence[JobRecord]) -> Planning[Plan]:
    """The plan of a call whose jobs were checked one by one; InvalidJob if they cannot be stored together.

    >>> stored = {"01J": JobFacts(done=True)}
    >>> jobs = [JobRecord(id="01J", type="ping"), JobRecord(id="01K", type="ping", depends_on=("01J",))]
    >>> run_plan(plan_jobs(jobs), lambda lookup: Facts(stored, {})).results
    [Enqueued(id='01J', existed=True), Enqueued(id='01K', existed=False)]
    """
    plan = Plan()
    ids: dict[str, str | None] = {}
    keys: list[tuple[str, str]] = []
    has_edges = False
    for job in jobs:
        if job.depends_on:
            has_edges = True
            ids.update(dict.fromkeys(job.depends_on))
        if job.idempotency_key is not None:
            keys.append((job.queue, job.idempotency_key))
    for job in jobs:  # after the dependencies: here the queue is known
        ids[job.id] = job.queue
    facts = yield Lookup(ids, keys)
    plan.stored.update(facts.jobs)
    taken = dict(facts.keys)
    for job in jobs:
        known = _known_as(plan, taken, job)
        if known is None:
            plan.fresh[job.id] = job
            if job.idempotency_key is not None:
                taken[job.queue, job.idempotency_key] = job.id
        plan.results.append(Enqueued(known or job.id, known is not None))
    if has_edges:
        yield from _resolve_dependencies(plan)
        stuck = in_cycle({id: job.depends_on for id, job in plan.fresh.items()})
        if stuck is not None:
            raise InvalidJob(f"depends_on: {stuck} waits for itself over its dependencies; leave one of the edges out")
    return plan


def in_cycle(waits_for: Mapping[str, Iterable[str]]) -> str | None:
    """A job that waits for itself, over however many edges; None if there is none.

    Only edges between the jobs of a call count: what is stored already cannot wait for what is not. The jobs that wait
    for nothing are taken away, again and again; what is left waits for itself.

    >>> in_cycle({"a": ["b"], "b": ["a"], "c": ["a", "stored"]})
    'a'
    """
    waits: dict[str, int] = {}
    dependents: dict[str, list[str]] = {}
    for id, dependencies in waits_for.items():
        inside = {dependency for dependency in dependencies if dependency in waits_for}
        waits[id] = len(inside)
        for dependency in inside:
            dependents.setdefault(dependency, []).append(id)
    free = [id for id, count in waits.items() if not count]
    for id in free:
        for dependent in dependents.get(id, ()):
            waits[dependent] -= 1
            if not waits[dependent]:
                free.append(dependent)
    return next((id for id, count in waits.items() if count), None)


def _known_as(plan: Plan, taken: Mapping[tuple[str, str], str], job: JobRecord) -> str | None:
    """The id under which a job is known already. Its id decides before its key."""
    stored = plan.stored.get(job.id)
    if job.id in plan.fresh or (stored is not None and not stored.is_alias):
        return job.id
    known = plan.aliases.get(job.id)
    if known is None and job.idempotency_key is not None:
        known = taken.get((job.queue, job.idempotency_key))
        if known is not None:
            plan.aliases[job.id] = known
    return known


def _resolve_dependencies(plan: Plan) -> Planning[None]:
    """Replace the dependencies of new jobs by the ids under which they are stored, or will be."""
    for id, job in plan.fresh.items():
        if not job.depends_on:
            continue
        resolved = []
        for dependency in job.depends_on:
            dependency = plan.aliases.get(dependency, dependency)
            if dependency not in plan.fresh:
                dependency = yield from _stored_dependency(plan, id, dependency)
            resolved.append(dependency)
        depends_on = tuple(resolved)
        if depends_on != job.depends_on:
            plan.fresh[id] = replace(job, depends_on=depends_on)


def _stored_dependency(plan: Plan, id: str, dependency: str) -> Planning[str]:
    if dependency not in plan.stored:
        facts = yield Lookup({dependency: None}, thorough=True)
        plan.stored.update(facts.jobs)
    stored = plan.stored.get(dependency)
    if stored is None:
        raise unknown_dependency(id, dependency)
    if stored.handed_to is None:
        return dependency
    last = yield from _last_in_place(plan, dependency)
    if plan.stored[last].is_alias:
        raise InvalidJob(f"depends_on: {id} depends on {dependency}, which is gone; enqueue it in the same call")
    return last


def _last_in_place(plan: Plan, id: str) -> Planning[str]:
    """The job that has the place of a stored one now, over however many handovers, as far as its heirs still exist."""
    while (heir := plan.stored[id].handed_to) is not None:
        if heir not in plan.stored:
            facts = yield Lookup({heir: plan.stored[id].handed_to_queue})
            plan.stored.update(facts.jobs)
        if heir not in plan.stored:
            break
        id = heir
    return id


def plan_heir(plan: Plan, spawn: Sequence[JobRecord], acked: str, handover: str) -> Planning[str]:
    """The id under which the job that takes over from `acked` is stored; InvalidJob if it was not spawned."""
    spawned = {job.id: result.id for job, result in zip(spawn, plan.results, strict=True)}
    heir = spawned.get(handover)
    if heir is None or heir == acked:
        raise not_spawned(handover)
    if heir in plan.fresh:
        return heir
    if heir not in plan.stored:
        facts = yield Lookup({heir: None})
        plan.stored.update(facts.jobs)
    if heir not in plan.stored:
        raise PlanOutdated
    heir = yield from _last_in_place(plan, heir)
    if heir == acked:
        raise own_heir(handover, acked)
    return heir


def check_handover(plan: Plan, heir: str, dependents: Collection[str]) -> Planning[None]:
    """InvalidJob if `heir` waits, over however many edges, for one of the dependents that will wait for it."""
    seen, level = {heir}, [heir]
    while level:
        unknown = [id for id in level if id not in plan.fresh and id not in plan.stored]
        if unknown:
            facts = yield Lookup(dict.fromkeys(unknown))
            plan.stored.update(facts.jobs)
        following: dict[str, None] = {}
        for id in level:
            if id in dependents:
                raise InvalidJob(
                    f"handover: {heir} depends on {id}, which would depend on it; leave one of the edges out"
                )
            following.update(dict.fromkeys(plan.dependencies_of(id)))
        level = [id for id in following if id not in seen]
        seen.update(level)


def run_plan(planning: Planning[T], look_up: Callable[[Lookup], Facts]) -> T:
    """The result of a plan on a store that can be read at once; `look_up` reads what the plan asks for.

    >>> run_plan(plan_jobs([]), lambda lookup: Facts({}, {})).results
    []
    """
    try:
        lookup = next(planning)
        while True:
            lookup = planning.send(look_up(lookup))
    except StopIteration as ended:
        result: T = ended.value
        return result


def heir_of(plan: Plan, ack: Ack, dependents: Collection[str], look_up: Callable[[Lookup], Facts]) -> str | None:
    """The stored id of the job that takes over from an acked one, or InvalidJob; None without a handover.

    `plan` is that of `ack.spawn`, `dependents` are the ids of the jobs that depend on the acked one.

    >>> from taskharbor.drivers import Lease
    >>> heir = JobRecord(id="01K", type="ping")
    >>> ack = Ack(Lease("01J", "default", "token", heir.created_at), spawn=(heir,), handover="01K")
    >>> look_up = lambda lookup: Facts({}, {})
    >>> heir_of(run_plan(plan_jobs(ack.spawn), look_up), ack, {"01M"}, look_up)
    '01K'
    """
    if ack.handover is None:
        return None
    heir = run_plan(plan_heir(plan, ack.spawn, ack.lease.job_id, ack.handover), look_up)
    if dependents:
        run_plan(check_handover(plan, heir, dependents), look_up)
    return heir


async def run_plan_async(planning: Planning[T], look_up: Callable[[Lookup], Awaitable[Facts]]) -> T:
    """The same on a store that must be awaited.

    >>> import asyncio
    >>> async def look_up(lookup):
    ...     return Facts({}, {})
    >>> asyncio.run(run_plan_async(plan_jobs([]), look_up)).results
    []
    """
    try:
        lookup = next(planning)
        while True:
            lookup = planning.send(await look_up(lookup))
    except StopIteration as ended:
        result: T = ended.value
        return result


def as_new(job: JobRecord, now: datetime) -> JobRecord:
    """The record of an enqueue at `now` as it is stored: fields that only a store writes are at their start.

    >>> as_new(JobRecord(id="01J", type="ping", deliveries=7), EPOCH).deliveries
    0
    """
    return replace(
        job,
        deliveries=0,
        lost=0,
        handed_to=None,
        failed_at=None,
        finished_at=None,
        result=None,
        last_error="",
        reason="",
        began_at=None,
        ran_on="",
        trail=b"",
        error_class="",
        fingerprint="",
        note=b"",
        edits=0,
        has_memos=False,
        metadata=dict(job.metadata),  # the caller's dict stays the caller's
        created_at=now if job.created_at == EPOCH else job.created_at,
    )
