"""`dlq show`: a dead job with all that a person needs to decide about it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from taskharbor.cli.acting import reveal
from taskharbor.cli.job_output import job_lines, write_executions
from taskharbor.cli.output import write, write_facts, write_hanging, write_json
from taskharbor.cli.store import call_store
from taskharbor.cli.table import style
from taskharbor.cli.target import Target
from taskharbor.drivers.base import Driver
from taskharbor.ops import json_output
from taskharbor.ops.dead_view import DeadJob, effects, next_commands, read_dead
from taskharbor.ops.job_view import tries_of
from taskharbor.ops.redaction import Redaction
from taskharbor.ops.text import one_line
from taskharbor.ops.timefmt import with_distance

_SHOWN = (
    "id", "type", "queue", "group", "flow_id", "priority", "attempts", "max_attempts", "timeout", "metadata",
    "created_at", "error_class", "fingerprint", "lost", "edits", "payload", "payload_bytes", "result_bytes", "hidden",
)  # fmt: skip
"""What `dlq show` prints of the facts that `inspect` knows: the executions and the reason have their own places."""


def write_dead(target: Target, typed: str, redaction: Redaction) -> None:
    """Print a dead job: its record, why it died, every execution, what a requeue would do, and what to type next."""
    declared = None if target.harbor is None else frozenset(target.harbor.tasks)

    async def read(driver: Driver, now: datetime) -> tuple[DeadJob, datetime]:
        dead = await read_dead(driver, typed, now, app=target.app or "", declared=declared)
        await reveal(driver, now, redaction, [dead.info.job.id])
        return dead, now

    dead, now = call_store(target, read)
    facts = json_output.whole(dead.info, redaction, now)
    if target.json:
        would = [{"code": each.code, "text": each.text, "hint": each.hint or None} for each in effects(dead)]
        write_json({**facts, "requeue": would, "next": next_commands(dead)}, one=_is_raw(facts))
        return
    shown: dict[str, Any] = {name: facts[name] for name in _SHOWN}
    write_facts(job_lines(shown, tries_of(dead.info), now, first=()))
    write("")
    why = redaction.why(dead.info.job) or "no reason was recorded"
    write_hanging("", f"It has been dead since {with_distance(dead.info.job.finished_at, now)}: {why}")
    if facts["executions"]:
        write("")
        write_executions(facts["executions"], facts["missing"], now)
    write("")
    write(style("If it is requeued:", bold=True))
    for each in effects(dead):
        write_hanging("  - ", one_line(each.text))
        if each.hint:
            write(f"    try: {one_line(each.hint)}")
    write("")
    for command in next_commands(dead):
        write(f"try: {one_line(command)}")


def _is_raw(facts: dict[str, Any]) -> bool:
    """Whether a value is so deep that it can only be copied as it is, on one line."""
    import msgspec

    return any(isinstance(facts[name], msgspec.Raw) for name in ("payload", "result"))
