"""Enqueue: plain jobs with one short script, any others with the general one, and dependencies after a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from taskharbor.drivers.redis.plan import MAX_PLANS, PlannedJobs, overtaken, plan_call
from taskharbor.drivers.redis.records import plain_jobs, stored
from taskharbor.drivers.redis.router import Flows
from taskharbor.drivers.redis.scripts import ScriptCall
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued

DUE_CALLS = 3  # for how many enqueues the plain script is not tried, after one that met due jobs


async def enqueue(store: RedisStore, jobs: Sequence[JobRecord], now: int) -> list[Enqueued]:
    """Store jobs that were checked, at least one."""
    # On one server the plain script does it all. On a Cluster the router has to store the locations of the ids first.
    if not store.router.divides and await _enqueue_plain(store, "", jobs, now):
        return [Enqueued(job.id, False) for job in jobs]
    if any(job.depends_on for job in jobs):
        return await _enqueue_planned(store, jobs, now)
    parts, elsewhere, flows = await store.router.admit(jobs)
    results = dict(elsewhere)
    for home, part in parts:
        if store.router.divides and await _enqueue_plain(store, home, part, now):
            results |= {job.id: Enqueued(job.id, False) for job in part}
            continue
        done = await _enqueue_any(store, home, part, now, flows)
        if part is jobs:  # one server: `done` is in the order of the call, ids that come twice included
            return done
        results |= {job.id: result for job, result in zip(part, done, strict=True)}
    await store.router.confirm(jobs, flows, now)
    return _in_order(jobs, results)


async def _enqueue_any(
    store: RedisStore, home: str, jobs: Sequence[JobRecord], now: int, flows: Flows
) -> list[Enqueued]:
    """Store jobs of any kind that one script reaches."""
    args = ScriptCall(
        "enqueue", now=now, home=home, planned=False, jobs=[stored(job, now) for job in jobs], flows=flows or False
    )
    replies = await store.run(args, durable=True, timed=True)
    return [_result(job, reply) for job, reply in zip(jobs, replies, strict=True)]


async def _enqueue_plain(store: RedisStore, home: str, jobs: Sequence[JobRecord], now: int) -> bool:
    """Store jobs if all are plain and new, as nearly all are; else False, and nothing is stored.

    An id that is known ("SLOW") says nothing about the next call. Due jobs ("DUE") do: the general script moves them a
    slice at a time, so the next calls do not try this one.
    """
    flat = plain_jobs(jobs, now) if store.try_plain("enqueue") else None
    if flat is None:
        return False
    sorted_ids: list[str] | Literal[False] = False
    if len(jobs) > 1 and (ids := flat[::7]) != (in_order := sorted(ids)):
        sorted_ids = in_order
    args = ScriptCall("enqueue_plain", now=now, home=home, queue=jobs[0].queue, jobs=flat, sorted_ids=sorted_ids)
    reply: bytes = await store.endpoint.run(args, durable=True, timed=True)
    if reply == b"DUE":
        store.skip_plain("enqueue", DUE_CALLS)
    return reply == b"OK"


async def _enqueue_planned(store: RedisStore, jobs: Sequence[JobRecord], now: int) -> list[Enqueued]:
    """One script stores all jobs, or none. On a Cluster it stores those of the first queue, and messages that bring the
    others."""
    router, entered = store.router, Flows()
    await router.use_queues([job.queue for job in jobs])
    for _ in range(MAX_PLANS):
        planned = await plan_call(store, jobs)
        if not planned.fresh:
            return planned.plan.results
        needed = planned.needed()
        flows = await router.admit_planned(planned.fresh, [queue for queue, _, _ in needed])
        entered = flows | entered
        home = router.home_of(planned.fresh[0].queue)
        args = ScriptCall(
            "enqueue",
            now=now,
            home=home,
            planned=True,
            jobs=planned.arrays(now, cluster=store.endpoint.cluster),
            needed=[one for one in needed if router.home_of(one[0]) == home],
            flows=flows or False,
        )
        if await store.run(args, durable=True, timed=True) == b"OK":
            await router.deliver([home])
            results = await _planned_results(store, planned, home)
            await router.confirm(jobs, entered, now)
            return results
    raise overtaken()


async def _planned_results(store: RedisStore, planned: PlannedJobs, home: str) -> list[Enqueued]:
    """Where a job came by message, another one may have taken its key since the call was planned."""
    keyed: dict[str, list[str]] = {}
    for job in planned.fresh:
        if job.idempotency_key is not None and store.router.home_of(job.queue) != home:
            keyed.setdefault(job.queue, []).append(job.id)
    others = await store.router.settled_results(keyed) if keyed else {}
    return [Enqueued(others[one.id], True) if one.id in others else one for one in planned.plan.results]


def _in_order(jobs: Sequence[JobRecord], results: Mapping[str, Enqueued]) -> list[Enqueued]:
    """The result of each job; one that comes a second time in a call is a duplicate of the first."""
    seen: set[str] = set()
    found = []
    for job in jobs:
        result = results[job.id]
        found.append(Enqueued(result.id, True) if job.id in seen else result)
        seen.add(job.id)
    return found


def _result(job: JobRecord, reply: Any) -> Enqueued:
    """What enqueue.lua returns for a job."""
    if reply == 0:
        return Enqueued(job.id, False)
    return Enqueued(job.id if reply == 1 else reply.decode(), True)
