"""The plan of an enqueue: which jobs of a call are new, and what their dependencies are called in the store.

    plan_jobs      ids and idempotency keys that are known, dependencies followed over handovers, cycles refused
    plan_heir      the job that takes the place of an acked one (`Ack.handover`)
    check_handover no cycle comes of that

Planning may refuse a call and writes nothing. The driver then stores what was planned, which cannot fail: so a call
stores all or none.

Nothing here does I/O. Each function is a generator: it yields a `Lookup`, receives the `Facts`, and returns its
result. A store that can be read at once runs it with `run`, one that must be awaited with `run_async`; a driver whose
calls are themselves generators translates each `Lookup` into its own statements. A store that other clients change
between the lookup and the write has to notice that on writing, and plan again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from msgspec.structs import replace

from taskharbor.drivers.graph import refuse_cycle
from taskharbor.drivers.refusals import not_spawned, own_heir, unknown_dependency
from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued
from taskharbor.model.outcome import Ack
from taskharbor.model.safe_repr import shown

T = TypeVar("T")


class StoredJob(Protocol):
    """What a plan needs to know of a stored job. A driver may use a class of its own that has more."""

    @property
    def done(self) -> bool:
        """Whether it is done: it waits for nothing, and nothing waits for it."""

    @property
    def handed_to(self) -> str | None:
        """The id of the job that took its place."""

    @property
    def handed_to_queue(self) -> str | None:
        """The queue of that job, if the store cannot find a job by its id alone."""

    @property
    def depends_on(self) -> Sequence[str]:
        """The ids that it depends on, as they are stored."""

    @property
    def is_alias(self) -> bool:
        """Whether this is not a job, but an id that was once enqueued and is known under `handed_to`."""


J = TypeVar("J", bound=StoredJob)


class JobFacts(NamedTuple):
    """A `StoredJob` for drivers that need nothing more."""

    done: bool
    handed_to: str | None = None
    depends_on: Sequence[str] = ()
    handed_to_queue: str | None = None
    is_alias: bool = False


class Lookup(NamedTuple):
    """What a plan asks of the store next."""

    ids: Mapping[str, str | None]  # id → the queue that it is in if it is stored; None: any queue
    keys: Collection[tuple[str, str]] = ()  # (queue, idempotency key)

    def __repr__(self) -> str:
        return shown(self, "ids")

    thorough: bool = False  # the ids should exist: search also where a plain lookup does not


class Facts(NamedTuple, Generic[J]):
    """What the store found. What it does not have is left out."""

    jobs: dict[str, J]
    keys: Mapping[tuple[str, str], str]  # (queue, idempotency key) → the id of the job that has it

    def __repr__(self) -> str:
        return shown(self, "jobs")


Planning: TypeAlias = Generator[Lookup, Facts[J], T]


class PlanOutdated(Exception):
    """The store changed while a plan was made: make it again."""


class Plan(Generic[J]):
    """What a call will store, and what it will return."""

    __slots__ = ("aliases", "fresh", "results", "stored")

    def __init__(self) -> None:
        self.results: list[Enqueued] = []
        self.fresh: dict[str, JobRecord] = {}  # new jobs by id, in the order of the call, with resolved dependencies
        self.aliases: dict[str, str] = {}  # the id of a job that is known by its key → the known id
        self.stored: dict[str, J] = {}  # the jobs that were looked up

    def dependencies_of(self, id: str) -> Sequence[str]:
        """What a job waits for; nothing, if it is done or unknown."""
        if id in self.fresh:
            return self.fresh[id].depends_on
        stored = self.stored.get(id)
        return stored.depends_on if stored is not None and not stored.done else ()


def plan_jobs(jobs: Sequence[JobRecord]) -> Planning[J, Plan[J]]:
    """The plan of a call whose jobs were checked one by one; InvalidJob if they cannot be stored together."""
    plan = Plan[J]()
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
    plan.stored, keyed = yield Lookup(ids, keys)
    taken = dict(keyed)
    for job in jobs:
        known = _known_as(plan, taken, job)
        if known is None:
            plan.fresh[job.id] = job
            if job.idempotency_key is not None:
                taken[job.queue, job.idempotency_key] = job.id
        plan.results.append(Enqueued(known or job.id, known is not None))
    if has_edges:
        yield from _resolve_dependencies(plan)
        refuse_cycle({id: job.depends_on for id, job in plan.fresh.items()})
    return plan


def _known_as(plan: Plan[Any], taken: Mapping[tuple[str, str], str], job: JobRecord) -> str | None:
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


def _resolve_dependencies(plan: Plan[J]) -> Planning[J, None]:
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


def _stored_dependency(plan: Plan[J], id: str, dependency: str) -> Planning[J, str]:
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


def _last_in_place(plan: Plan[J], id: str) -> Planning[J, str]:
    """The job that has the place of a stored one now, over however many handovers, as far as its heirs still exist."""
    while (heir := plan.stored[id].handed_to) is not None:
        if heir not in plan.stored:
            facts = yield Lookup({heir: plan.stored[id].handed_to_queue})
            plan.stored.update(facts.jobs)
        if heir not in plan.stored:
            break
        id = heir
    return id


def plan_heir(plan: Plan[J], spawn: Sequence[JobRecord], acked: str, handover: str) -> Planning[J, str]:
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


def check_handover(plan: Plan[J], heir: str, dependents: Collection[str]) -> Planning[J, None]:
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


def run(planning: Planning[J, T], look_up: Callable[[Lookup], Facts[J]]) -> T:
    """Run a generator of this module on a store that can be read at once."""
    try:
        lookup = next(planning)
        while True:
            lookup = planning.send(look_up(lookup))
    except StopIteration as ended:
        result: T = ended.value
        return result


def heir_of(plan: Plan[J], ack: Ack, dependents: Collection[str], look_up: Callable[[Lookup], Facts[J]]) -> str | None:
    """The stored id of the job that takes over from an acked one, or InvalidJob; None without a handover."""
    if ack.handover is None:
        return None
    heir = run(plan_heir(plan, ack.spawn, ack.lease.job_id, ack.handover), look_up)
    if dependents:
        run(check_handover(plan, heir, dependents), look_up)
    return heir


async def run_async(planning: Planning[J, T], look_up: Callable[[Lookup], Awaitable[Facts[J]]]) -> T:
    """Run a generator of this module on a store that must be awaited."""
    try:
        lookup = next(planning)
        while True:
            lookup = planning.send(await look_up(lookup))
    except StopIteration as ended:
        result: T = ended.value
        return result
