"""Planning a call with edges: which of its jobs are new, and what their dependencies are called in the store.

The plan is made from what a script read, and carried out by another, which refuses if anything it was made from has
changed since: then it is made again. So all that needs thought about a graph is here, and a script only stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from taskharbor.drivers.graph import no_heir, own_heir
from taskharbor.drivers.redis.records import edges_of
from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued


class KnownJob(NamedTuple):
    """What was read of a job."""

    queue: str
    done: bool
    heir: str
    heir_queue: str
    edges: tuple[tuple[str, str], ...]
    alias: bool = False  # no job, but an id that is known as its heir
    under_way: bool = False  # its heir is in a message that nobody has delivered yet


class Store(Protocol):
    """What a plan is made from."""

    async def look(
        self, where: Mapping[str, str | None], keys: Iterable[tuple[str, str]]
    ) -> tuple[dict[str, KnownJob], dict[tuple[str, str], str]]:
        """Jobs by id, and ids by (queue, key); what is unknown is left out. `where`: the queue in which an id is looked
        for if nobody noted where it is."""

    async def seek(self, ids: Sequence[str]) -> dict[str, str]:
        """The queues of ids that nobody noted, because a foreign client published them."""


class Overtaken(Exception):
    """What a plan was to be made from has changed meanwhile."""


class EnqueuePlan:
    """What a call will store, and what it will answer."""

    def __init__(self) -> None:
        self.answers: list[Enqueued] = []
        self.fresh: dict[str, JobRecord] = {}  # by id, in the order of the call
        self.aliases: dict[str, str] = {}  # the id of a job that is known by its key → the known id
        self.edges: dict[str, list[tuple[str, str]]] = {}  # of a fresh job: id and queue of each dependency
        self.needed: dict[tuple[str, str], bool] = {}  # (queue, id) of what must be there → whether its heir is gone
        self.known: dict[str, KnownJob] = {}
        self.acked: str | None = None  # the job whose ack stores them: done when they are

    def queue_of(self, id: str) -> str:
        return self.fresh[id].queue if id in self.fresh else self.known[id].queue

    def modes(self, id: str) -> dict[str, str] | bool:
        """What is known of the dependencies of a fresh job that are not in the call; see `receive.link`."""
        outside = [one for one, _ in self.edges.get(id, ()) if one not in self.fresh]
        done = {one for one in outside if one == self.acked or self.known[one].done}
        return {one: "done" if one in done else "there" for one in outside} or False

    def text(self, id: str) -> str | bool:
        """The edges of a fresh job as a record keeps them."""
        edges = self.edges.get(id)
        return "\n".join(f"{one}\t{queue}" for one, queue in edges) if edges else False


async def make(jobs: Sequence[JobRecord], store: Store) -> EnqueuePlan:
    """The plan of a call; InvalidJob if it cannot be stored. The jobs themselves were checked before."""
    plan = EnqueuePlan()
    wanted: dict[str, str | None] = {one: None for job in jobs for one in job.depends_on}
    wanted |= {job.id: job.queue for job in jobs}
    keys = {(job.queue, job.idempotency_key): None for job in jobs if job.idempotency_key is not None}
    plan.known, taken = await store.look(wanted, keys)
    for job in jobs:
        known = _known(plan, taken, job)
        if known is None:
            plan.fresh[job.id] = job
            if job.idempotency_key is not None:
                taken[job.queue, job.idempotency_key] = job.id
        plan.answers.append(Enqueued(known or job.id, known is not None))
    for id, job in plan.fresh.items():
        if job.depends_on:
            plan.edges[id] = [await _resolve(plan, store, id, one) for one in job.depends_on]
    refuse_cycle(plan)
    return plan


def _known(plan: EnqueuePlan, taken: dict[tuple[str, str], str], job: JobRecord) -> str | None:
    # The id decides before the key.
    if job.id in plan.fresh or (job.id in plan.known and not plan.known[job.id].alias):
        return job.id
    if job.id in plan.aliases:
        return plan.aliases[job.id]
    known = taken.get((job.queue, job.idempotency_key)) if job.idempotency_key is not None else None
    if known is not None:
        plan.aliases[job.id] = known
    return known


async def _resolve(plan: EnqueuePlan, store: Store, id: str, dependency: str) -> tuple[str, str]:
    """The id and queue under which a dependency is stored, or will be."""
    dependency = plan.aliases.get(dependency, dependency)
    if dependency in plan.fresh:
        return dependency, plan.fresh[dependency].queue
    if dependency not in plan.known:
        plan.known |= (await store.look({dependency: None, **await store.seek([dependency])}, []))[0]
    if dependency not in plan.known:
        raise InvalidJob(
            f"depends_on: {id} depends on {dependency}, which is not stored; enqueue it before or in the same call"
        )
    dependency = await _last_of(plan, store, dependency)
    if plan.known[dependency].alias:
        raise InvalidJob(f"depends_on: {id} depends on {dependency}, which is gone; enqueue it in the same call")
    return dependency, plan.known[dependency].queue


async def _last_of(plan: EnqueuePlan, store: Store, id: str) -> str:
    """The job that stands in the place of a known one, over however many handovers. The plan needs that to stay so."""
    last_gone = False
    while heir := plan.known[id].heir:
        if heir not in plan.known:
            plan.known |= (await store.look({heir: plan.known[id].heir_queue or None}, []))[0]
        if heir not in plan.known:
            last_gone = True  # it stops at the last one that exists
            break
        id = heir
    plan.needed[plan.known[id].queue, id] = last_gone
    return id


def refuse_cycle(plan: EnqueuePlan) -> None:
    """Take away what waits for nothing, again and again; what is left waits for itself."""
    waits: dict[str, int] = {}
    dependents: dict[str, list[str]] = {}
    for id in plan.fresh:
        inside = {one for one, _ in plan.edges.get(id, ()) if one in plan.fresh}
        waits[id] = len(inside)
        for one in inside:
            dependents.setdefault(one, []).append(id)
    free = [id for id, count in waits.items() if not count]
    for id in free:
        for dependent in dependents.get(id, ()):
            waits[dependent] -= 1
            if not waits[dependent]:
                free.append(dependent)
    if len(free) < len(plan.fresh):
        stuck = next(id for id, count in waits.items() if count)
        raise InvalidJob(f"depends_on: {stuck} waits for itself over its dependencies; leave one of the edges out")


async def heir_of(plan: EnqueuePlan, store: Store, spawn: Sequence[JobRecord], acked: str, handover: str) -> str:
    """The stored id of the job that takes over, or InvalidJob; Overtaken if it was deleted meanwhile."""
    spawned = {job.id: answer.id for job, answer in zip(spawn, plan.answers, strict=True)}
    heir = spawned.get(handover)
    if heir is None or heir == acked:
        raise no_heir(handover)
    if heir in plan.fresh:
        return heir
    if heir not in plan.known:
        plan.known |= (await store.look({heir: None}, []))[0]
    if heir not in plan.known:
        raise Overtaken
    heir = await _last_of(plan, store, heir)
    if heir == acked:
        raise own_heir(handover, acked)
    return heir


async def refuse_cycle_by_handover(plan: EnqueuePlan, store: Store, heir: str, dependents: set[str]) -> None:
    """InvalidJob if the job that takes over waits, over however many edges, for one of those that will wait for it."""
    seen, path = {heir}, [heir]
    while path:
        missing = [id for id in path if id not in plan.fresh and id not in plan.known]
        if missing:
            plan.known |= (await store.look(dict.fromkeys(missing), []))[0]
        further: list[str] = []
        for id in path:
            if id in dependents:
                raise InvalidJob(
                    f"handover: {heir} depends on {id}, which would depend on it; leave one of the edges out"
                )
            known = plan.known.get(id)
            edges = plan.edges.get(id, []) if id in plan.fresh else known.edges if known and not known.done else ()
            for one, _ in edges:
                if one not in seen:
                    seen.add(one)
                    further.append(one)
        path = further


def known_of(answer: Sequence[Any]) -> KnownJob:
    """From what read_for_plan.lua answers of a job."""
    queue, state, heir, heir_queue, edges = answer
    heir, heir_queue = heir.decode(errors="replace"), heir_queue.decode(errors="replace")
    done, alias, under_way = state in (b"completed", b"under way"), state == b"alias", state == b"under way"
    return KnownJob(queue.decode(), done, heir, heir_queue, tuple(edges_of(edges)), alias, under_way)
