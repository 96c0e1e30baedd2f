"""Every reader of a store, and what it must say of one that nobody arranged: each compares its answer with the records.

A reader is a function of `Seen`; it returns what is wrong, in words. "Not known" is right wherever a reader says so.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

import httpx
from prometheus_client import CollectorRegistry

from taskharbor import Harbor
from taskharbor.dashboard.app import build
from taskharbor.drivers import Driver
from taskharbor.model.job import FlowStatus, JobInfo, JobRecord, State, flow_status
from taskharbor.observe.prometheus import QueueCollector
from taskharbor.ops.access import Access
from taskharbor.store.figures import read_figures
from taskharbor.store.summary import SummaryKey
from taskharbor.testing import ManualClock
from tests.cli.shell import taskharbor
from tests.observe.scrape import only, read, value
from tests.ops.unarranged import Truth, Unarranged

BASE = "http://localhost:8420"


@dataclass
class Seen:
    """A filled store, and how to ask it."""

    truth: Truth
    filled: Unarranged
    driver: Driver
    dsn: str

    def __post_init__(self) -> None:
        self.clock = ManualClock(self.truth.now)
        self.harbor = Harbor(self.driver, clock=self.clock)
        self.app = build(self.harbor, access=lambda request: Access.admin("ada"))

    async def page(self, path: str, **query: str) -> Any:
        """A page of the dashboard as JSON."""
        address = f"{path}?{urlencode(query)}" if query else path
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url=BASE) as client:
            reply = await client.get(address, headers={"accept": "application/json"})
        assert reply.status_code == 200, (address, reply.text[-300:])
        return reply.json()

    async def pages(self, path: str, key: str, **query: str) -> list[Any]:
        """All pages, one after the other."""
        found: list[Any] = []
        cursor: str | None = ""
        while cursor is not None:
            page = await self.page(path, **query, **({"cursor": cursor} if cursor else {}))
            found += page[key]
            cursor = page["cursor"]
        return found

    async def command(self, *words: str) -> Any:
        """A command's JSON."""
        answer = await asyncio.to_thread(taskharbor, *words, "--dsn", self.dsn, "--output", "json")
        assert answer.code == 0, (words, answer.err)
        return json.loads(answer.out)


def in_state(state: State) -> Callable[[JobInfo], bool]:
    """A filter."""
    return lambda info: info.state is state


def differs(what: str, found: object, wanted: object) -> list[str]:
    """Nothing if they are alike."""
    if found == wanted:
        return []
    if isinstance(found, dict) and isinstance(wanted, dict):
        keys = [key for key in {**found, **wanted} if found.get(key) != wanted.get(key)]
        return [f"{what}[{key!r:.60}]: {found.get(key)!r:.80}, not {wanted.get(key)!r:.80}" for key in keys[:5]]
    if isinstance(found, list) and isinstance(wanted, list):
        extra, missing = sorted({*found} - {*wanted}), sorted({*wanted} - {*found})
        return [f"{what}: {len(found)} of {len(wanted)}; not expected {extra[:3]!r:.120}, missing {missing[:3]!r:.120}"]
    return [f"{what}: {found!r:.200}, not {wanted!r:.200}"]


def counted(what: str, found: dict[str, dict[str, int]], truth: Truth, cap: int | None = None) -> list[str]:
    """Counts by queue and state. A number at its cap means "or more"."""
    wanted = truth.counts()
    wrong = []
    for queue in {**found, **wanted}:
        for state in State:
            here, there = found.get(queue, {}).get(state.value, 0), wanted.get(queue, {}).get(state.value, 0)
            if here != there and not (cap is not None and here == cap < there):
                wrong.append(f"{what}: {queue!r:.40} {state.value}: {here}, not {there}")
    return wrong


def waiting(what: str, found: Iterable[tuple[str, str | datetime | None, bool]], truth: Truth) -> list[str]:
    """Since when the oldest ready job of each queue waits, if it is known."""
    wrong = []
    for queue, at, known in found:
        moment = datetime.fromisoformat(at) if isinstance(at, str) else at
        if known and moment != truth.oldest(queue):
            wrong.append(f"{what}: the oldest of {queue!r:.40} since {moment}, not {truth.oldest(queue)}")
    return wrong


# Metrics and the driver ------------------------------------------------------------------------------------------


async def metrics(seen: Seen) -> list[str]:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(QueueCollector(seen.driver, clock=seen.clock, timeout=600))
    samples = await asyncio.to_thread(read, registry)
    found: dict[str, dict[str, int]] = {}
    for (queue, state), number in only(samples, "taskharbor_queue_jobs").items():
        found.setdefault(queue, {})[state] = int(number)
    ages = only(samples, "taskharbor_queue_oldest_ready_age_seconds")
    now = seen.truth.now
    # An age of 0: no job is ready, or it is due now.
    oldest = [(queue, now - timedelta(seconds=age) if age else None, True) for (queue,), age in ages.items()]
    up = value(samples, "taskharbor_store_up"), value(samples, "taskharbor_queue_figures_complete")
    cap = int(value(samples, "taskharbor_queue_jobs_cap") or 0)
    return (
        differs("up", up, (1, 1)) + counted("metrics", found, seen.truth, cap) + waiting("metrics", oldest, seen.truth)
    )


async def figures(seen: Seen) -> list[str]:
    wrong = []
    for queue in seen.filled.names()[:12]:
        found = await read_figures(seen.driver, seen.truth.now, "1h", queue)
        assert found is not None
        rows = [row.counts for row in seen.filled.figures if row.queue == queue]
        wanted = tuple(sum(row[name] for row in rows) for name in ("done", "failed"))
        wrong += differs(f"figures of {queue!r:.30}", (found.total.done, found.total.failed), wanted)
    return wrong


# Harbor ----------------------------------------------------------------------------------------------------------


async def harbor_queues(seen: Seen) -> list[str]:
    found = await seen.harbor.aqueues()
    names = sorted({*seen.truth.counts(), *seen.filled.paused})
    return [
        *differs("names", [each.name for each in found], names),
        *differs("paused", {each.name for each in found if each.paused}, seen.filled.paused),
        *counted("harbor.queues", {each.name: each.counts for each in found}, seen.truth),
        *waiting("harbor.queues", [(q.name, q.oldest_ready_at, q.oldest_known) for q in found], seen.truth),
        *counted("harbor.counts", await seen.harbor.acounts(cap=None), seen.truth),
    ]


async def harbor_jobs(seen: Seen) -> list[str]:
    truth, jobs = seen.truth, seen.harbor.jobs
    queue, type = seen.filled.names()[0], "app.tasks.kind_3"
    filters: list[tuple[dict[str, Any], Callable[[Any], bool]]] = [
        ({}, lambda info: True),
        ({"queue": queue}, lambda info: info.job.queue == queue),
        ({"type": type}, lambda info: info.job.type == type),
        ({"group": "customer 2"}, lambda info: info.job.group == "customer 2"),
        ({"flow": "flow-chain"}, lambda info: info.job.flow_id == "flow-chain"),
        ({"error": "app.errors.Error1"}, lambda info: info.job.error_class == "app.errors.Error1"),
        ({"queue": queue, "state": "dlq"}, lambda info: info.job.queue == queue and info.state is State.DLQ),
        *(({"state": state}, in_state(state)) for state in State),
    ]
    wrong = []
    for given, accepts in filters:
        wanted = truth.where(accepts)
        count = await jobs(**given).acount(cap=1_000_000)
        if count.n != len(wanted) and not count.capped:
            wrong.append(f"harbor.jobs({given}).count(): {count}, not {len(wanted)}")
        if len(wanted) <= 5_000:
            wrong += differs(f"harbor.jobs({given}).ids()", sorted(await jobs(**given).aids(1_000_000)), wanted)
    return wrong


KEYS: dict[SummaryKey, Callable[[JobRecord], str]] = {
    "fingerprint": lambda job: job.fingerprint,
    "error": lambda job: job.error_class,
    "type": lambda job: job.type,
    "queue": lambda job: job.queue,
    "reason": lambda job: job.reason,
}


async def harbor_dead(seen: Seen) -> list[str]:
    wrong = []
    for by, value_of in KEYS.items():
        summary = await seen.harbor.dead().asummary(by)
        wrong += dead_rows(seen, f"dead by {by}", {row.value: row.n for row in summary}, value_of, summary.complete)
    return wrong


def dead_rows(
    seen: Seen, what: str, found: dict[str, int], value_of: Callable[[Any], str], complete: bool, most: int = 10**9
) -> list[str]:
    """The rows of a summary. One that did not read all jobs has none too large."""
    wanted = Counter(value_of(info.job) for info in seen.truth.infos.values() if info.state is State.DLQ)
    if complete and len(wanted) <= most:
        return differs(what, found, dict(wanted))
    if complete:
        return differs(what, sorted(found.values(), reverse=True), [n for _, n in wanted.most_common(most)])
    return [f"{what}: {name!r:.40}: {n}, of {wanted[name]}" for name, n in found.items() if n > wanted[name]]


async def harbor_flows(seen: Seen) -> list[str]:
    found = {flow.id: flow.status async for flow in seen.harbor.flows()}
    wrong = differs("harbor.flows", found, {id: status_of(seen, id) for id in seen.filled.flows.values()})
    for id in seen.filled.flows.values():
        run = await seen.harbor.aflow(id)
        members = seen.truth.flow(id)
        wrong += differs(f"{id}: status", run.status, status_of(seen, id))
        progress = run.progress
        wrong += differs(f"{id}: progress", (progress.done, progress.total), (done_in(members), len(members)))
    return wrong


def status_of(seen: Seen, id: str) -> FlowStatus:
    return flow_status([info.state for info in seen.truth.flow(id)])


def done_in(members: Iterable[Any]) -> int:
    return sum(info.state is State.DONE for info in members)


# Pages -----------------------------------------------------------------------------------------------------------


def queue_rows(seen: Seen, what: str, rows: list[Any], cap: int) -> list[str]:
    asked = {row["queue"] for row in rows}
    truth = Truth(seen.truth.now, {k: i for k, i in seen.truth.infos.items() if i.job.queue in asked}, seen.truth.due)
    return [
        *counted(what, {row["queue"]: row["jobs"] for row in rows}, truth, cap),
        *waiting(what, [(row["queue"], row["oldest_ready_at"], row["oldest_known"]) for row in rows], seen.truth),
        *differs(f"{what}: paused", {row["queue"] for row in rows if row["paused"]}, seen.filled.paused & asked),
    ]


async def page_queues(seen: Seen) -> list[str]:
    from taskharbor.store.queues import cap_for

    rows = await seen.pages("/queues", "queues")
    cap = cap_for(len(rows))
    names = sorted({*seen.truth.counts(), *seen.filled.paused, *(name for name in seen.filled.names()[:15])})
    wrong = differs("/queues", [row["queue"] for row in rows], names) + queue_rows(seen, "/queues", rows, cap)
    overview = await seen.page("/")
    wrong += queue_rows(seen, "/", overview["queues"], cap)
    for name in seen.filled.names()[:10]:
        row = await seen.page(f"/queues/{quote(name, safe='')}")
        wrong += queue_rows(seen, "/queues/…", [row], cap)
    return wrong


async def page_overview(seen: Seen) -> list[str]:
    points = (await seen.page("/"))["attention"]
    text = "\n".join(point["text"] for point in points)
    since = seen.truth.now - timedelta(hours=1)
    causes = Counter(
        info.job.error_class
        for info in seen.truth.infos.values()
        if info.state is State.DLQ and info.job.finished_at is not None and info.job.finished_at >= since
    )
    wrong = []
    if causes and causes.most_common(1)[0][0] not in text:
        wrong.append(f"/: the largest cause {causes.most_common(3)} is not among {text!r:.300}")
    return wrong


async def page_jobs(seen: Seen) -> list[str]:
    truth, names = seen.truth, seen.filled.names()
    filters: list[tuple[dict[str, str], Callable[[Any], bool]]] = [
        *(({"state": state.value, "limit": "500"}, in_state(state)) for state in State),
        *(({"queue": name, "limit": "500"}, lambda info, name=name: info.job.queue == name) for name in names[:10]),
        ({"type": "t" * 255, "limit": "500"}, lambda info: info.job.type == "t" * 255),
        ({"error": "app.errors.Error2", "limit": "500"}, lambda info: info.job.error_class == "app.errors.Error2"),
        ({"fingerprint": "cause-3", "limit": "500"}, lambda info: info.job.fingerprint == "cause-3"),
    ]
    wrong = []
    for query, accepts in filters:
        wanted = truth.where(accepts)
        if len(wanted) > 10_000:
            continue
        rows = await seen.pages("/jobs", "jobs", **query)
        wrong += differs(f"/jobs?{query!r:.60}", sorted(row["id"] for row in rows), wanted)
        wrong += [
            f"/jobs: {row['id']} is {row['state']}" for row in rows if row["state"] != truth.infos[row["id"]].state
        ]
    return wrong


async def page_job(seen: Seen) -> list[str]:
    wrong = []
    by_state: dict[State, str] = {}
    for id, info in seen.truth.infos.items():
        by_state.setdefault(info.state, id)
    for state, id in by_state.items():
        facts = await seen.page(f"/jobs/{quote(id, safe='')}")
        wrong += differs(f"/jobs/{id}", (facts["id"], facts["state"]), (id, state.value))
        wrong += [] if facts["reasons"] else [f"/jobs/{id}: no reason"]
        told = await seen.command("explain", id)
        wrong += differs(f"explain {id}", told["state"], state.value)
    return wrong


async def page_dead(seen: Seen) -> list[str]:
    wrong = []
    some: tuple[SummaryKey, ...] = ("fingerprint", "type", "error")
    for by in some:
        page = await seen.page("/dead", by=by, limit="100")
        rows = {row["value"] or "": row["jobs"] for row in page["rows"]}
        wrong += dead_rows(seen, f"/dead by {by}", rows, KEYS[by], page["complete"])
    return wrong


async def page_flows(seen: Seen) -> list[str]:
    wrong = []
    rows = {row["id"]: row["status"] for row in await seen.pages("/flows", "flows")}
    wrong += differs("/flows", rows, {id: status_of(seen, id).value for id in seen.filled.flows.values()})
    for status in FlowStatus:
        some = sorted(row["id"] for row in await seen.pages("/flows", "flows", status=status.value))
        wanted = sorted(id for id in seen.filled.flows.values() if status_of(seen, id) is status)
        wrong += differs(f"/flows?status={status}", some, wanted)
    for id in seen.filled.flows.values():
        page, members = await seen.page(f"/flows/{quote(id, safe='')}"), seen.truth.flow(id)
        wrong += differs(f"/flows/{id}", (page["done"], page["total"]), (done_in(members), len(members)))
        states = {row["id"]: row["state"] for row in page["jobs"]}
        wrong += differs(f"/flows/{id}: jobs", states, {info.job.id: info.state.value for info in members})
    return wrong


async def page_others(seen: Seen) -> list[str]:
    workers = await seen.page("/workers")
    alive = {worker.worker for worker in await seen.driver.workers(seen.truth.now)}
    rows = await seen.pages("/schedules", "schedules")
    wrong = differs("/workers", {row["worker"] for row in workers["workers"]}, alive)
    wrong += differs("/workers", len(alive), 3)
    wrong += differs("/schedules", len(rows), 30)
    for path in ("/operations", "/about"):
        await seen.page(path)
    return wrong


# Commands --------------------------------------------------------------------------------------------------------


async def commands(seen: Seen) -> list[str]:
    truth = seen.truth
    stats = await seen.command("stats")
    wrong = queue_rows(seen, "stats", stats["queues"], 100_000)
    wrong += queue_rows(seen, "queue list", (await seen.command("queue", "list"))["queues"], 100_000)
    for state in State:
        ids = sorted(row["id"] for row in await paged(seen, "jobs", "list", "--state", state.value, "--limit", "10000"))
        wrong += differs(f"list --state {state.value}", ids, truth.where(in_state(state)))
    queue = seen.filled.names()[1]
    ids = sorted(row["id"] for row in await paged(seen, "jobs", "list", f"--queue={queue}", "--limit", "10000"))
    wrong += differs("list --queue", ids, truth.where(lambda info: info.job.queue == queue))
    summary = await seen.command("dlq", "summary", "--by", "error")
    rows = {row["value"] or "": row["jobs"] for row in summary["rows"]}
    wrong += dead_rows(seen, "dlq summary", rows, lambda job: job.error_class, summary["complete"], len(rows))
    flows = {row["id"]: row["status"] for row in await paged(seen, "flows", "flow", "list")}
    wrong += differs("flow list", flows, {id: status_of(seen, id).value for id in seen.filled.flows.values()})
    wrong += differs("schedule list", len(await paged(seen, "schedules", "schedule", "list")), 30)
    return wrong


async def paged(seen: Seen, key: str, *words: str) -> list[Any]:
    found: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        page = await seen.command(*words, *(["--cursor", cursor] if cursor else []))
        found += page[key]
        cursor = page.get("cursor")
    return found


Reader = Callable[[Seen], Awaitable[list[str]]]
READERS: tuple[Reader, ...] = (
    metrics, figures, harbor_queues, harbor_jobs, harbor_dead, harbor_flows, page_queues, page_overview, page_jobs,
    page_job, page_dead, page_flows, page_others, commands,
)  # fmt: skip
