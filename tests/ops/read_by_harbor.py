"""What metrics, figures and each call of `harbor` say of a store, compared with its records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from taskharbor.model.job import JobInfo, State
from taskharbor.observe.prometheus import QueueCollector
from taskharbor.store.figures import read_figures
from taskharbor.store.summary import SummaryKey
from tests.observe.scrape import only, read, value
from tests.ops.seen import VALUES, Seen, differs, in_state
from tests.ops.unarranged import ERRORS, HOUR, MINUTE, SCHEDULES

MANY = 10_000_000


async def metrics(seen: Seen) -> list[str]:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(QueueCollector(seen.driver, clock=seen.clock, timeout=seen.patience, max_queues=MANY))
    samples = await seen.ask("metrics: a scrape", asyncio.to_thread(read, registry))
    found: dict[str, dict[str, int]] = {}
    for (queue, state), number in only(samples, "taskharbor_queue_jobs").items():
        found.setdefault(queue, {})[state] = int(number)
    ages = {queue: age for (queue,), age in only(samples, "taskharbor_queue_oldest_ready_age_seconds").items()}
    waits = {queue: (seen.truth.now - at).total_seconds() for queue, at in seen.truth.oldest.items()}
    known = {queue: waits.get(queue, 0.0) for queue in ages}
    if found.keys() - ages.keys():
        seen.unknown["metrics: since when the oldest waits"] += 1
    up = value(samples, "taskharbor_store_up"), value(samples, "taskharbor_queue_figures_complete")
    if up == (1, 0):
        seen.unknown["metrics: what was not read in time"] += 1
        wanted = seen.truth.counts
        found |= {queue: wanted[queue] for queue in wanted if queue not in found}
    cap = int(value(samples, "taskharbor_queue_jobs_cap") or 0)
    return differs("up", up[0], 1) + seen.counted("metrics", found, cap) + differs("ages", ages, known)


async def figures(seen: Seen) -> list[str]:
    wrong = []
    for queue in seen.filled.names()[:12]:
        found = await read_figures(seen.driver, seen.truth.now, "1h", queue)
        assert found is not None
        rows = [row.counts for row in seen.filled.figures if row.queue == queue]
        wanted = tuple(sum(row[name] for row in rows) for name in ("done", "failed"))
        wrong += differs(f"figures of {queue!r:.30}", (found.total.done, found.total.failed), wanted)
    return wrong


async def queues(seen: Seen) -> list[str]:
    harbor, paused = seen.harbor, seen.filled.paused
    found = await seen.ask("harbor.queues()", harbor.aqueues())
    counts = await seen.ask("harbor.counts()", harbor.acounts())
    exact = await seen.ask("harbor.counts(cap=None)", harbor.acounts(cap=None))
    workers = await seen.ask("harbor.workers()", harbor.aworkers())
    some = {name: await seen.ask("harbor.is_paused()", harbor.ais_paused(name)) for name in list(counts)[:9]}
    return [
        *differs("names", [each.name for each in found], sorted({*seen.truth.counts, *paused})),
        *differs("paused", {each.name for each in found if each.paused}, paused),
        *seen.counted("harbor.queues()", {each.name: each.counts for each in found}, 100_000),
        *seen.waiting("harbor.queues()", [(q.name, q.oldest_ready_at, q.oldest_known) for q in found]),
        *seen.counted("harbor.counts()", counts, 100_000),
        *seen.counted("harbor.counts(cap=None)", exact),
        *differs("harbor.workers()", [each.worker for each in workers], seen.filled.alive),
        *differs("harbor.is_paused()", some, {name: name in paused for name in some}),
    ]


def moment_of(info: JobInfo) -> Any:
    """What `since` and `until` are compared with."""
    return info.job.finished_at or info.job.created_at


async def jobs(seen: Seen) -> list[str]:
    truth, jobs, queue, type = seen.truth, seen.harbor.jobs, seen.filled.names()[0], "app.tasks.kind_3"
    since = truth.now - 89 * MINUTE
    filters: list[tuple[dict[str, Any], Callable[[Any], bool]]] = [
        ({}, lambda info: True),
        ({"queue": queue}, lambda info: info.job.queue == queue),
        ({"type": type}, lambda info: info.job.type == type),
        ({"group": "customer 2"}, lambda info: info.job.group == "customer 2"),
        ({"flow": "flow-chain"}, lambda info: info.job.flow_id == "flow-chain"),
        ({"error": ERRORS[1]}, lambda info: info.job.error_class == ERRORS[1]),
        ({"error": "Error1"}, lambda info: info.job.error_class == ERRORS[1]),
        ({"fingerprint": "cause-2"}, lambda info: info.job.fingerprint == "cause-2"),
        ({"since": truth.now - since}, lambda info: moment_of(info) >= since),
        ({"until": since, "queue": queue}, lambda info: moment_of(info) < since and info.job.queue == queue),
        ({"queue": queue, "state": "dlq"}, lambda info: info.job.queue == queue and info.state is State.DLQ),
        *(({"state": state}, in_state(state)) for state in State),
    ]
    wrong = []
    for given, accepts in filters:
        wanted, about = truth.where(accepts), ", ".join(given)
        few = await seen.ask(f"harbor.jobs({about}).count()", jobs(**given).acount())
        count = await seen.ask(f"harbor.jobs({about}).count(cap)", jobs(**given).acount(cap=MANY))
        for found, how in ((few, "count()"), (count, "count(cap)")):
            if found.capped:
                seen.unknown[f"harbor.jobs({about}).{how}: how many beyond {found.n}"] += 1
            if found.n != len(wanted) and not (found.capped and found.n < len(wanted)):
                wrong.append(f"harbor.jobs({given}).{how}: {found}, not {len(wanted)}")
        for newest in (False, True):
            first = await seen.ask(f"harbor.jobs({about}).preview()", jobs(**given, newest=newest).apreview(20))
            ids = wanted[:-21:-1] if newest else wanted[:20]
            wrong += differs(f"harbor.jobs({given}, newest={newest}).preview()", [each.job.id for each in first], ids)
        if len(wanted) <= 5_000:
            listed = await seen.ask(f"harbor.jobs({about}).ids()", jobs(**given).aids(MANY))
            wrong += differs(f"harbor.jobs({given}).ids()", listed, wanted)
    return wrong


async def one_job(seen: Seen) -> list[str]:
    wrong = []
    for state in State:
        info = seen.some(state)
        handle = seen.harbor.job(info.job.id)
        found = await seen.ask("harbor.job(id).info()", handle.ainfo())
        wrong += differs(f"info of {info.job.id}", found, info)
        wrong += differs("status", await seen.ask("harbor.job(id).status()", handle.astatus()), state)
        attempts = await seen.ask("harbor.job(id).executions()", handle.aexecutions())
        wrong += differs(f"executions of {info.job.id}", len(attempts), info.job.deliveries)
        await seen.ask("harbor.job(id).progress()", handle.aprogress())
    return wrong


async def dead(seen: Seen) -> list[str]:
    wrong = []
    keys: tuple[SummaryKey, ...] = ("fingerprint", "error", "type", "queue", "reason")
    for by in keys:
        summary = await seen.ask("harbor.dead().summary()", seen.harbor.dead().asummary(by))
        assert by in VALUES
        found = {row.value: row.n for row in summary}
        wrong += seen.dead_rows(f"harbor.dead().summary({by})", found, by, summary.complete)
    tried = await seen.ask("harbor.dead().requeue(dry_run)", seen.harbor.dead().arequeue(dry_run=True))
    wanted = len(seen.truth.where(in_state(State.DLQ)))
    wrong += differs("dry run", tried.count.n, min(wanted, tried.count.n if tried.count.capped else wanted))
    progress = await seen.ask(
        "harbor.operation(id).progress()", seen.harbor.operation(seen.filled.operation).aprogress()
    )
    wrong += differs("operation", progress.done, 0)
    return wrong


async def flows(seen: Seen) -> list[str]:
    async def listed() -> dict[str, Any]:
        return {flow.id: flow.status async for flow in seen.harbor.flows()}

    found = await seen.ask("harbor.flows()", listed())
    wrong = differs("harbor.flows()", found, {id: seen.status_of(id) for id in seen.filled.flows.values()})
    for id in seen.filled.flows.values():
        run = await seen.ask("harbor.flow(id)", seen.harbor.aflow(id))
        members = {info.job.id: info.state for info in seen.truth.flows[id]}
        done = sum(state is State.DONE for state in members.values())
        wrong += differs(f"{id}: status", run.status, seen.status_of(id))
        wrong += differs(f"{id}: progress", (run.progress.done, run.progress.total), (done, len(members)))
        wrong += differs(f"{id}: nodes", {node.job.id: node.state for node in run.nodes}, members)
    return wrong


async def others(seen: Seen) -> list[str]:
    async def schedules() -> list[str]:
        return [each.name async for each in seen.harbor.schedules.list()]

    async def audit() -> list[str]:
        return [entry.action async for entry in seen.harbor.audit(by="ada", since=HOUR * 3)]

    names = await seen.ask("harbor.schedules.list()", schedules())
    wrong = differs("schedules", names, sorted(seen.filled.schedules))
    for name in names[:9]:
        info = await seen.ask("harbor.schedules.get()", seen.harbor.schedules.aget(name))
        slots = await seen.ask("harbor.schedules.preview()", seen.harbor.schedules.apreview(name))
        wrong += differs(f"schedule {name}", (info.name, len(slots)), (name, 5))
        wrong += differs(f"schedule {name}: next", slots[0] > seen.truth.now - timedelta(1), True)
    actions = await seen.ask("harbor.audit()", audit())
    return wrong + differs("audit", len(actions), SCHEDULES + seen.filled.paused_schedules + 1)


HARBOR_READERS = (metrics, figures, queues, jobs, one_job, dead, flows, others)
