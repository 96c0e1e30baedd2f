"""Planning a call with dependencies: what the shared planning asks of Redis, and what the scripts need of a plan.

The plan is made from what one script read, and carried out by another, which refuses if anything it was made from has
changed since: then it is made again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from taskharbor.drivers.planning import (
    Facts,
    JobFacts,
    Lookup,
    Plan,
    check_handover,
    plan_heir,
    plan_jobs,
    run_plan_async,
)
from taskharbor.drivers.redis.records import edges_of, stored
from taskharbor.drivers.redis.router import sliced
from taskharbor.drivers.redis.scripts import ScriptCall
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.model.errors import BackendUnavailable, DriverError
from taskharbor.model.job import JobRecord

MAX_PLANS = 50  # how often a plan that was overtaken is made again
MAX_LOOKED_UP = 2000  # ids or keys in one script
MAX_LOOKUPS = 5  # how often a call waits for jobs that others were handed over to


class PlannedJobs:
    """A plan as the scripts take it."""

    def __init__(self, plan: Plan, heir: str | None = None, acked: str | None = None) -> None:
        self.plan = plan
        self.fresh = list(plan.fresh.values())
        self.heir = heir
        self._acked = acked  # the job whose ack stores them: done when they are

    def needed(self) -> list[tuple[str, str, bool]]:
        """Jobs outside the call that must stay what they are: queue, id, and whether its heir is gone."""
        ids = [one for job in self.fresh for one in job.depends_on]
        if self.heir is not None:
            ids.append(self.heir)
        outside = {id: self.plan.stored[id] for id in ids if id not in self.plan.fresh}
        return [(known.queue, id, known.handed_to is not None) for id, known in outside.items()]

    def arrays(self, now: int, *, cluster: bool) -> list[Any]:
        """The new jobs as 80_store.lua takes them."""
        if not cluster:
            return [stored(job, now, self._edges(job)) for job in self.fresh]
        return [stored(job, now, self._edges(job), self._modes(job)) for job in self.fresh]

    def queue_of(self, id: str) -> str:
        fresh = self.plan.fresh.get(id)
        return fresh.queue if fresh is not None else self.plan.stored[id].queue

    def _edges(self, job: JobRecord) -> str | bool:
        """The dependencies as a record keeps them."""
        if not job.depends_on:
            return False
        return "\n".join(f"{one}\t{self.queue_of(one)}" for one in job.depends_on)

    def _modes(self, job: JobRecord) -> dict[str, str] | bool:
        """What is known of the dependencies that are not in the call; see `receive.link` in 60_flows.lua."""
        outside = [one for one in job.depends_on if one not in self.plan.fresh]
        done = {one for one in outside if one == self._acked or self.plan.stored[one].done}
        return {one: "done" if one in done else "there" for one in outside} or False


async def plan_call(store: RedisStore, jobs: Sequence[JobRecord]) -> PlannedJobs:
    """The plan of an enqueue; InvalidJob if it cannot be stored."""
    return PlannedJobs(await run_plan_async(plan_jobs(jobs), partial(_look_up, store)))


async def plan_spawn(
    store: RedisStore, jobs: Sequence[JobRecord], *, acked: tuple[str, str] | None, handover: str | None
) -> PlannedJobs:
    """The plan of what an outcome spawns. `acked`: queue and id of the job that is done with it."""
    look_up = partial(_look_up, store)
    plan = await run_plan_async(plan_jobs(jobs), look_up)
    heir = None
    if acked is not None and handover is not None:
        heir = await run_plan_async(plan_heir(plan, jobs, acked[1], handover), look_up)
        dependents = await _dependents(store, *acked)
        if dependents:
            await run_plan_async(check_handover(plan, heir, dependents), look_up)
    return PlannedJobs(plan, heir, acked[1] if acked is not None else None)


def overtaken() -> DriverError:
    return DriverError(
        f"the jobs that this call depends on changed {MAX_PLANS} times while it was planned; send it again"
    )


async def _dependents(store: RedisStore, queue: str, id: str) -> set[str]:
    found = await store.endpoint.ask("HKEYS", f"{{{queue}}}:th:after:{id}", key=f"{{{queue}}}")
    return {one.decode(errors="replace") for one in found if one}


async def _look_up(store: RedisStore, lookup: Lookup) -> Facts:
    ids = dict(lookup.ids)
    if lookup.thorough:  # foreign clients publish jobs without storing their location
        ids |= await store.router.find(list(ids))
    keys = await _taken_keys(store, list(lookup.keys))
    for _ in range(MAX_LOOKUPS):
        known = await known_jobs(store, ids)
        waiting = {one.queue for one in known.values() if one.is_moving}
        if not waiting:
            return Facts(known, keys)
        await store.router.deliver(waiting)  # until then an heir that is on its way looks like one that is gone
    raise BackendUnavailable("Redis has not stored the jobs that others were handed over to; send the call again")


async def known_jobs(store: RedisStore, where: Mapping[str, str | None]) -> dict[str, JobFacts]:
    """What is stored of ids, each looked for in the queue given if no location is stored."""
    known: dict[str, JobFacts] = {}
    for home, items in await store.router.place(list(where.items()), strictly=False):
        if home is None:
            continue
        for part in sliced(items, MAX_LOOKED_UP):
            jobs, _ = await store.run(ScriptCall("read_for_plan", home=home, jobs=part))
            known |= {str(id): _known_job(one) for (id, _), one in zip(part, jobs, strict=True) if one}
    return known


async def _taken_keys(store: RedisStore, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    taken: dict[tuple[str, str], str] = {}
    for home, positions in store.router.by_home([queue for queue, _ in keys]):
        for part in sliced([keys[position] for position in positions], MAX_LOOKED_UP):
            _, ids = await store.run(ScriptCall("read_for_plan", home=home, keys=part))
            taken |= {key: id.decode() for key, id in zip(part, ids, strict=True) if id}
    return taken


def _known_job(reply: Sequence[Any]) -> JobFacts:
    queue, state, heir, heir_queue, edges = reply
    return JobFacts(
        state in (b"completed", b"under way"),
        heir.decode(errors="replace") or None,
        tuple(id for id, _ in edges_of(edges)),
        queue.decode(),
        heir_queue.decode(errors="replace") or None,
        state == b"alias",
        state == b"under way",
    )
