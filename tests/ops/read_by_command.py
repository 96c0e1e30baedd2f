"""What each command that looks at a store says of it, as JSON, compared with its records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from taskharbor.model.job import State
from taskharbor.store.diagnose import named
from tests.ops.seen import Seen, differs, in_state
from tests.ops.unarranged import ERRORS, SCHEDULES

ROWS = ("--limit", "10000")


async def overview(seen: Seen) -> list[str]:
    await seen.filled.beat(datetime.now(UTC))  # commands know no other time
    stats = await seen.command("stats")
    wrong = seen.queue_rows("stats", stats["queues"], 100_000, whole=True)
    wrong += differs("stats: workers", [row["worker"] for row in stats["workers"]], seen.filled.alive)
    rows = (await seen.command("queue", "list"))["queues"]
    wrong += seen.queue_rows("queue list", rows, 100_000, whole=True)
    checks = (await seen.command("doctor"))["checks"]
    said = [each["text"] for each in checks if each["check"] in ("queues", "workers")]
    dead = sum(states["dlq"] for states in seen.truth.counts.values() if "dlq" in states)
    lonely = sorted({*seen.truth.oldest} - seen.filled.served)
    wanted = [
        f"{len(seen.filled.alive)} sent a heartbeat in the last minute",
        f"no worker serves {named(lonely)}, where jobs are ready",
        f"paused: {named(sorted(seen.filled.paused))}",
        f"{dead} dead jobs; list them: taskharbor dlq list",
    ]
    wrong += differs("doctor", said, wanted)
    return wrong


async def lists(seen: Seen) -> list[str]:
    truth, wrong, queue = seen.truth, [], seen.filled.names()[1]
    filters: list[tuple[tuple[str, ...], Any]] = [
        *((("--state", state.value), in_state(state)) for state in State),
        ((f"--queue={queue}",), lambda info: info.job.queue == queue),
        (("--type", "<i>type</i>"), lambda info: info.job.type == "<i>type</i>"),
        (("--group", "customer 3"), lambda info: info.job.group == "customer 3"),
        (("--flow", "flow-mixed"), lambda info: info.job.flow_id == "flow-mixed"),
        (("--error", ERRORS[2]), lambda info: info.job.error_class == ERRORS[2]),
        ((f"--queue={queue}", "--state", "dlq", "--newest"), lambda i: i.job.queue == queue and i.state is State.DLQ),
    ]
    for words, accepts in filters:
        wanted = truth.where(accepts)
        ids = [row["id"] for row in await seen.all_of("jobs", "list", *words, *ROWS)]
        wrong += differs(f"list {words}", ids, wanted[::-1] if "--newest" in words else wanted)
    return wrong


async def one_job(seen: Seen) -> list[str]:
    wrong = []
    for state in State:
        info = seen.some(state)
        id = info.job.id
        told = await seen.command("explain", "--", id)
        wrong += differs(f"explain {id}", (told["state"], bool(told["reasons"])), (state.value, True))
        for words in (("inspect",), ("job", "show")):
            shown = await seen.command(*words, "--", id)
            facts = shown["id"], shown["state"], shown["type"], shown["queue"], shown["attempts"], shown["reason"]
            job = info.job
            wanted = job.id, state.value, job.type, job.queue, job.attempts, job.reason or None
            wrong += differs(f"{words} {id}", facts, wanted)
        attempts = await seen.command("job", "attempts", "--", id)
        found = len(attempts["attempts"]) + attempts["missing"]
        wrong += differs(f"job attempts {id}", found, info.job.deliveries)
    id = seen.some(State.DLQ).job.id
    return wrong + differs("dlq show", (await seen.command("dlq", "show", "--", id))["state"], "dlq")


async def dead(seen: Seen) -> list[str]:
    wrong = []
    for by in ("fingerprint", "error", "type", "reason", "queue"):
        summary = await seen.command("dlq", "summary", "--by", by, "--limit", "1000")
        rows = {row["value"] or "": row["jobs"] for row in summary["rows"]}
        wrong += seen.dead_rows(f"dlq summary --by {by}", rows, by, summary["complete"], len(rows))
    queue = seen.filled.names()[0]
    wanted = seen.truth.where(lambda info: info.job.queue == queue and info.state is State.DLQ)
    listed = [row["id"] for row in await seen.all_of("jobs", "dlq", "list", f"--queue={queue}", *ROWS)]
    wrong += differs("dlq list", listed, wanted)
    exported = [row["id"] for row in await seen.command("dlq", "export", f"--queue={queue}")]
    wrong += differs("dlq export", sorted(exported), wanted)
    rows = (await seen.command("dlq", "operations", "list"))["operations"]
    wrong += differs("dlq operations list", [row["id"] for row in rows], [seen.filled.operation])
    one = await seen.command("dlq", "operations", "show", seen.filled.operation)
    return wrong + differs("dlq operations show", (one["id"], one["done"]), (seen.filled.operation, 0))


async def flows(seen: Seen) -> list[str]:
    ids = seen.filled.flows.values()
    rows = {row["id"]: row["status"] for row in await seen.all_of("flows", "flow", "list")}
    wrong = differs("flow list", rows, {id: seen.status_of(id).value for id in ids})
    for id in ids:
        shown = await seen.command("flow", "show", "--", id)
        members = {info.job.id: info.state.value for info in seen.truth.flows[id]}
        found = {row["id"]: row["state"] for row in shown["jobs"]}
        if not shown["complete"]:
            seen.unknown["flow show: jobs beyond those that it reads"] += 1
            members = {id: state for id, state in members.items() if id in found}
        wrong += differs(f"flow show {id}", found, members)
    return wrong


async def others(seen: Seen) -> list[str]:
    rows = [row["name"] for row in await seen.all_of("schedules", "schedule", "list")]
    wrong = differs("schedule list", rows, sorted(seen.filled.schedules))
    for name in seen.filled.schedules[:6]:
        shown = await seen.command("schedule", "show", "--", name)
        slots = await seen.command("schedule", "preview", "--count", "5", "--", name)
        wrong += differs(f"schedule show {name}", (shown["name"], len(shown["upcoming"])), (name, len(slots["slots"])))
    entries = await seen.all_of("entries", "audit")
    return wrong + differs("audit", len(entries), SCHEDULES + seen.filled.paused_schedules + 1)


COMMAND_READERS = (overview, lists, one_job, dead, flows, others)
