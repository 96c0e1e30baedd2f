"""`taskharbor flow`: show a workflow and its jobs."""

from __future__ import annotations

from datetime import datetime

import click

from taskharbor.cli import json_output
from taskharbor.cli.commands.list import tries
from taskharbor.cli.output import write, write_facts, write_json, write_table
from taskharbor.cli.store import call_store
from taskharbor.cli.table import Column
from taskharbor.cli.target import Target, shared
from taskharbor.cli.timefmt import format_duration, with_distance
from taskharbor.drivers.contract import Driver
from taskharbor.model.errors import JobNotFound
from taskharbor.model.job import FlowInfo

COLUMNS = (
    Column("id", whole=True),
    Column("type", tail=True),
    Column("state", whole=True),
    Column("tries", whole=True),
    Column("took", right=True),
    Column("waits for", right=True),
)


@click.group()
def flow() -> None:
    """Show a workflow and its jobs."""


@flow.command()
@click.argument("id", metavar="ID")
@click.option("--mermaid", is_flag=True, help="Print the graph as Mermaid text instead.")
@shared
def show(target: Target, id: str, mermaid: bool) -> None:
    """Show the status of a workflow and each of its jobs. ID is the flow's id, or the id of a job in it.

    \b
    Examples:
      taskharbor flow show 01JQZ5X7T0A8C2E4G6J8M0P2R4
      taskharbor flow show 01JQZ5X7T0A8C2E4G6J8M0P2R4 --mermaid > flow.mmd

    The column "took" is the time from when a job became ready to its end, including the wait for a worker.

    JSON: {"id", "status", "created_at", "updated_at", "done", "total", "jobs": [as for `taskharbor list`],
    "edges": [[ID, ID]]}. In an edge the second job waits for the first.
    """
    from taskharbor.flow.mermaid import mermaid as draw
    from taskharbor.flow.summary import durations_of, progress_of

    info, now = call_store(target, lambda driver, now: _read_flow(driver, id, now))
    if mermaid:
        write(draw(info).rstrip())
        return
    done, total = progress_of(info)
    if target.json:
        write_json(
            {
                "id": info.id,
                "status": info.status.value,
                "created_at": info.created_at,
                "updated_at": info.updated_at,
                "done": done,
                "total": total,
                "jobs": [json_output.summary(node) for node in info.nodes],
                "edges": info.edges,
            }
        )
        return
    write_facts(
        [
            ("flow", info.id),
            ("status", info.status.value),
            ("jobs", f"{done} of {total} done"),
            ("created", with_distance(info.created_at, now)),
            ("updated", with_distance(info.updated_at, now)),
        ]
    )
    write("")
    took = durations_of(info)
    rows = []
    for node in info.nodes:
        span = took[node.job.id]
        waits = str(len(node.waiting_for)) if node.waiting_for else ""
        rows.append(
            [
                node.job.id,
                node.job.type,
                node.state.value,
                tries(node),
                "" if span is None else format_duration(span),
                waits,
            ]
        )
    write_table(COLUMNS, rows)


async def _read_flow(driver: Driver, id: str, now: datetime) -> tuple[FlowInfo, datetime]:
    from taskharbor.client.external_jobs import read_flow

    try:
        return await read_flow(driver, id, now), now
    except JobNotFound:
        pass
    try:
        job = (await driver.inspect(id, now)).job
    except JobNotFound:
        raise JobNotFound(f"no flow and no job has the id {id}") from None
    if job.flow_id is None:
        raise JobNotFound(f"job {id} does not belong to a flow")
    return await read_flow(driver, job.flow_id, now), now
