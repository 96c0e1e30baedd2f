"""`taskharbor queue`: list, pause and resume queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from taskharbor.cli.commands.stats import write_queues
from taskharbor.cli.output import write_answer, write_json
from taskharbor.cli.store import Operator, act, call_store
from taskharbor.cli.target import Target, shared
from taskharbor.model.bounds import check_name
from taskharbor.ops.overview import read_overview
from taskharbor.store.text import one_line

_names = click.argument("names", nargs=-1, required=True, metavar="QUEUE…")


@click.group()
def queue() -> None:
    """List, pause and resume queues."""


@queue.command("list")
@shared
def list_(target: Target) -> None:
    """List the queues that hold jobs or are paused, with the number of jobs in each state.

    \b
    Example:
      taskharbor queue list

    JSON: {"queues": [{"queue", "paused", "workers", "jobs": {"blocked", "scheduled", "ready", "inflight", "done",
    "dlq", "cancelled"}, "capped", "oldest_ready_at", "oldest_known"}]}. workers: how many serve the queue and sent a
    heartbeat in the last minute. oldest_ready_at: since when the job is due that has been ready for longest; null if
    none is. Where the store cannot tell, it is null too, oldest_known is false, and the table has a question mark.
    Counting stops at 100,000 jobs of a queue in one state, shown as 100000+; then capped is true.
    """
    found = call_store(target, read_overview)
    if target.json:
        write_json({"queues": found.queues})
    else:
        write_queues(found)


@queue.command()
@_names
@shared
def pause(target: Target, names: tuple[str, ...]) -> None:
    """Stop workers from taking jobs from a queue. Running jobs continue, and jobs can still be enqueued.

    \b
    Example:
      taskharbor queue pause mail

    JSON: {"queues": [{"queue", "paused"}]}
    """
    _switch(target, names, paused=True)


@queue.command()
@_names
@shared
def resume(target: Target, names: tuple[str, ...]) -> None:
    """Let workers take jobs from a queue again.

    \b
    Example:
      taskharbor queue resume mail

    JSON: {"queues": [{"queue", "paused"}]}
    """
    _switch(target, names, paused=False)


def _switch(target: Target, names: Sequence[str], *, paused: bool) -> None:
    for name in names:
        check_name(name, "queue")

    async def switch(operator: Operator) -> list[dict[str, Any]]:
        known = set(await operator.driver.queues())
        for name in names:
            await (operator.actions.pause(name) if paused else operator.actions.resume(name))
            if name not in known:
                click.echo(f"note: the queue {one_line(name)} holds no jobs yet", err=True)
        return [{"queue": name, "paused": await operator.driver.is_paused(name)} for name in names]

    rows = act(target, switch, creates=True)
    lines = [f"{one_line(row['queue'])} is {'paused' if row['paused'] else 'not paused'}" for row in rows]
    write_answer(target, {"queues": rows}, "\n".join(lines))
