"""`taskharbor explain`: explain why a job is not running."""

from __future__ import annotations

from typing import Any

import click

from taskharbor.cli.output import in_colour, write, write_hanging, write_json
from taskharbor.cli.store import call_store
from taskharbor.cli.target import Target, importing, shared
from taskharbor.model.schedule import SCHEDULE_KEY
from taskharbor.ops import json_output
from taskharbor.store.diagnose import made_by, reasons
from taskharbor.store.situation import read_situation
from taskharbor.store.text import command, one_line


@click.command()
@click.argument("id", metavar="ID")
@shared
@importing
def explain(target: Target, id: str) -> None:
    """Explain why a job is not running, and what would help.

    The most immediate reason comes first: its queue is paused, its group is full, it is not due, it depends on other
    jobs, no worker serves its queue, a worker is running it, or it has ended. With --app it also checks that the app
    declares a task of its type.

    \b
    Examples:
      taskharbor explain 01JQZ5X7T0A8C2E4G6J8M0P2R4
      taskharbor explain 01JQZ5X7T0A8C2E4G6J8M0P2R4 --app tasks:harbor

    JSON: {"id", "type", "queue", "state", "schedule", "slot", "reasons": [{"code", "text", "hint"}]}. schedule,
    slot: of a job that a schedule made, else null. code: one of done, dlq, cancelled, leased,
    unknown_type, not_due, retry_not_due, asleep, given_back, blocked, blocked_by_dead, blocked_by_cancelled, paused,
    group_full, group_busy, never_served, no_worker, slots_stuck, workers_busy, next.
    """
    declared = None if target.harbor is None else frozenset(target.harbor.tasks)
    facts: dict[str, Any] = {"place": target.place, "app": target.app or "", "declared": declared}
    seen = call_store(target, lambda driver, now: read_situation(driver, id, now, **facts))
    found = reasons(seen)
    job = seen.info.job
    if target.json:
        write_json(json_output.explanation(seen.info, found))
        return
    state = seen.info.state.value
    write_hanging("", f"job {one_line(job.id)} ({one_line(job.type)}, queue {one_line(job.queue)}): {in_colour(state)}")
    if (origin := made_by(job, seen.now)) is not None:
        write_hanging("  ", f"{origin}: {command('schedule show', job.metadata[SCHEDULE_KEY])}")
    hints = [each.hint for each in found]
    for number, each in enumerate(found):
        write_hanging("  - ", one_line(each.text))
        if each.hint and each.hint not in hints[:number]:
            write(f"    try: {each.hint}")
