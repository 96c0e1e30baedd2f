"""What each page of the dashboard says of a store, as JSON and as HTML, compared with its records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from html import unescape
from typing import Any
from urllib.parse import quote, unquote

from taskharbor.dashboard.pages.overview import TILES
from taskharbor.dashboard.rendering import STATE_WORDS
from taskharbor.model.job import FlowStatus, State
from taskharbor.store.queues import cap_for
from taskharbor.store.summary import MAX_SUMMARISED_JOBS
from tests.ops.seen import Seen, differs, in_state
from tests.ops.unarranged import HOUR, SCHEDULES


def at(path: str, name: str) -> str:
    """The page of something with a name."""
    return f"{path}/{quote(name, safe='')}"


async def queues(seen: Seen) -> list[str]:
    rows = await seen.pages("/queues", "queues")
    cap = cap_for(len(rows))
    names = sorted({*seen.truth.counts, *seen.filled.paused, *seen.filled.served})
    wrong = differs("/queues", [row["queue"] for row in rows], names)
    wrong += seen.queue_rows("/queues", rows, cap, whole=True)
    wrong += seen.queue_rows("/", (await seen.page("/"))["queues"], cap)
    for name in seen.filled.names()[:10]:
        wrong += seen.queue_rows("/queues/…", [await seen.page(at("/queues", name))], cap)
    return wrong


async def overview(seen: Seen) -> list[str]:
    page = await seen.page("/")
    if "late" in page:
        seen.unknown[f"/: {', '.join(page['late'])}"] += 1
        return []
    points = page["attention"]
    text = "\n".join(point["text"] for point in points)
    since = seen.truth.now - HOUR
    causes = Counter(
        info.job.error_class
        for info in seen.truth.infos.values()
        if info.state is State.DLQ and info.job.finished_at is not None and info.job.finished_at >= since
    )
    wrong = []
    if causes and causes.most_common(1)[0][0] not in text:
        wrong.append(f"/: the largest cause {causes.most_common(3)} is not among {text!r:.300}")
    return wrong


async def jobs(seen: Seen) -> list[str]:
    truth, names = seen.truth, seen.filled.names()
    filters: list[tuple[dict[str, str], Callable[[Any], bool]]] = [
        *(({"state": state.value}, in_state(state)) for state in State),
        *(({"queue": name}, lambda info, name=name: info.job.queue == name) for name in names[:10]),
        ({"type": "t" * 255}, lambda info: info.job.type == "t" * 255),
        ({"group": "customer 2"}, lambda info: info.job.group == "customer 2"),
        ({"error": "app.errors.Error2"}, lambda info: info.job.error_class == "app.errors.Error2"),
        ({"fingerprint": "cause-3"}, lambda info: info.job.fingerprint == "cause-3"),
        ({"state": "dlq", "queue": names[-1]}, lambda i: i.state is State.DLQ and i.job.queue == names[-1]),
    ]
    wrong = []
    for query, accepts in filters:
        wanted = truth.where(accepts)
        if len(wanted) > 10_000:
            rows = (await seen.page("/jobs", **query, limit="500"))["jobs"]
            wrong += differs(f"/jobs?{query!r:.60}", [row["id"] for row in rows], wanted[: -len(rows) - 1 : -1])
        else:
            rows = await seen.pages("/jobs", "jobs", **query, limit="500")
            wrong += differs(f"/jobs?{query!r:.60}", sorted(row["id"] for row in rows), wanted)
        states = {row["id"]: row["state"] for row in rows}
        wrong += differs("/jobs: states", states, {id: truth.infos[id].state.value for id in states})
    return wrong


async def one_job(seen: Seen) -> list[str]:
    wrong = []
    for state in State:
        id = seen.some(state).job.id
        facts = await seen.page(at("/jobs", id))
        wrong += differs(f"/jobs/{id}", (facts["id"], facts["state"]), (id, state.value))
        wrong += [] if facts["reasons"] else [f"/jobs/{id}: no reason"]
    return wrong


async def dead(seen: Seen) -> list[str]:
    wrong = []
    for by in ("fingerprint", "type", "error", "queue", "reason"):
        page = await seen.page("/dead", by=by, limit="100")
        rows = {row["value"] or "": row["jobs"] for row in page["rows"]}
        wrong += seen.dead_rows(f"/dead by {by}", rows, by, page["complete"], len(rows))
    preview = await seen.page("/operations/new", state="dlq")
    wanted = len(seen.truth.where(in_state(State.DLQ)))
    found = preview["jobs"], preview["capped"]
    return wrong + differs("/operations/new", found, (min(wanted, preview["jobs"]), wanted > preview["jobs"]))


async def flows(seen: Seen) -> list[str]:
    wrong, ids = [], seen.filled.flows.values()
    rows = {row["id"]: row["status"] for row in await seen.pages("/flows", "flows")}
    wrong += differs("/flows", rows, {id: seen.status_of(id).value for id in ids})
    for status in FlowStatus:
        some = sorted(row["id"] for row in await seen.pages("/flows", "flows", status=status.value))
        wrong += differs(f"/flows?status={status}", some, sorted(id for id in ids if seen.status_of(id) is status))
    for id in ids:
        page = await seen.page(at("/flows", id))
        members = {info.job.id: info.state.value for info in seen.truth.flows[id]}
        shown = {row["id"]: row["state"] for row in page["jobs"]}
        if not page["complete"]:
            seen.unknown["/flows/…: jobs beyond those that a page reads"] += 1
            members = {id: state for id, state in members.items() if id in shown}
        done = sum(state == "done" for state in members.values())
        wrong += differs(f"/flows/{id}", (page["done"], page["total"]), (done, len(members)))
        wrong += differs(f"/flows/{id}: jobs", shown, members)
    return wrong


async def others(seen: Seen) -> list[str]:
    workers = await seen.page("/workers")
    wrong = differs("/workers", [row["worker"] for row in workers["workers"]], seen.filled.alive)
    rows = await seen.pages("/schedules", "schedules")
    wrong += differs("/schedules", [row["name"] for row in rows], sorted(seen.filled.schedules))
    for name in seen.filled.schedules[:9]:
        page = await seen.page(at("/schedules", name))
        wrong += differs(f"/schedules/{name}", (page["name"], len(page["upcoming"])), (name, 5))
    entries = await seen.pages("/operations", "entries")
    wrong += differs("/operations", len(entries), SCHEDULES + seen.filled.paused_schedules + 1)
    first = (await seen.page("/operations"))["operations"]
    wrong += differs("/operations", [row["id"] for row in first], [seen.filled.operation])
    await seen.page("/about")
    return wrong


def number_of(text: str, before: str) -> tuple[int, bool] | None:
    """The number that stands behind some markup, and whether it is a lower bound; None if it is not there."""
    found = re.search(before + r"([\d,]+)(\+?)", text)
    return None if found is None else (int(found[1].replace(",", "")), bool(found[2]))


def tiles(what: str, text: str, counts: Mapping[str, int]) -> list[str]:
    """The numbers at the top of a page."""
    wrong = []
    for state in TILES:
        shown, wanted = number_of(text, rf'class="name">{STATE_WORDS[state]}</span><strong>'), counts.get(state, 0)
        if shown is None or shown[0] > wanted or (shown[0] < wanted and not shown[1]):
            wrong.append(f"{what}: {state}: {shown}, not {wanted}")
    return wrong


async def drawn(seen: Seen) -> list[str]:
    """What people see beside what JSON says: tiles, rows of the tables, what comes next, how far workflows are."""
    truth = seen.truth
    total = Counter[str]()
    for states in truth.counts.values():
        total.update(states)
    page = await seen.drawn("/")
    wrong = tiles("/", page, total)
    waits = (await seen.drawn("/queues")).partition("<tbody>")[2]
    for queue, row in re.findall(r'<th scope="row"><a href="/queues/([^"]+)".*?</th>(.*?)</tr>', waits, re.DOTALL):
        counts = truth.counts.get(unquote(queue), {})
        for state in ("ready", "inflight", "scheduled", "blocked", "dlq"):
            shown = number_of(row, rf'data-label="{STATE_WORDS[state]}">(?:<a [^>]*>)?')
            wanted = counts.get(state, 0)
            if shown is None or shown[0] > wanted or (shown[0] < wanted and not shown[1]):
                wrong.append(f"/queues: {queue!r:.40} {state}: {shown}, not {wanted}")
    for name in seen.filled.names()[:4]:
        page = await seen.drawn(at("/queues", name))
        wrong += tiles("/queues/…", page, truth.counts[name])
        coming = [unquote(id) for id in re.findall(r'href="/jobs/([^"?]+)" title', page.partition("Next in line")[2])]
        ready = [id for id in truth.where(in_state(State.READY)) if truth.infos[id].job.queue == name]
        if not coming or not {*coming} <= {*ready}:
            wrong.append(f"/queues/{name!r:.30}: next in line are {coming[:3]}, ready are {ready[:3]}")
    rows = re.findall(r'name="id" value="([^"]+)"', await seen.drawn("/jobs"))
    wrong += differs("/jobs", [unescape(id) for id in rows], truth.where(lambda info: True)[:-51:-1])
    kinds = [
        int(n.replace(",", "")) for n in re.findall(r'class="n" [^>]*><strong>([\d,]+)', await seen.drawn("/dead"))
    ]
    causes = Counter(info.job.fingerprint for info in truth.infos.values() if info.state is State.DLQ)
    most = [n for _, n in causes.most_common(len(kinds))]
    if total["dlq"] <= MAX_SUMMARISED_JOBS:
        wrong += differs("/dead", kinds, most)
    page = await seen.drawn("/flows")
    for id, members in truth.flows.items():
        if id not in seen.filled.flows.values():
            continue  # an operation
        row = page.partition(f'href="{at("/flows", id)}"')[2].partition("</tr>")[0]
        done = sum(info.state is State.DONE for info in members)
        found = re.search(r'jobs done">(\d+) of (\d+)(\+?)', row)
        said = None if found is None else (int(found[1]), int(found[2]), found[3])
        if said is None or (said != (done, len(members), "") and not (said[2] and said[0] <= done)):
            wrong.append(f"/flows: {id!r:.40}: {said}, not {(done, len(members))}")
    return wrong


PAGE_READERS = (queues, overview, jobs, one_job, dead, flows, others, drawn)
