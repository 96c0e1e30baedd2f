"""Reading jobs, flows, queues and workers: one statement for each call, over both tables through the view `records`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from taskharbor.drivers.contract import WORKER_SILENCE
from taskharbor.drivers.cursor import encode_cursor
from taskharbor.drivers.graph import flow_info
from taskharbor.drivers.listing import JobQuery
from taskharbor.drivers.postgres.records import COLUMNS, StoredState, info_from
from taskharbor.drivers.postgres.statement import Program, Statement, array, named, quoted
from taskharbor.drivers.refusals import no_flow, no_job
from taskharbor.model.job import FlowInfo, JobInfo, Page, WorkerInfo
from taskharbor.model.times import to_us

_WAITING_FOR = f"""case when r.state = {StoredState.BLOCKED:d} then array(
    select d.id from unnest(r.depends_on) with ordinality as d(id, n)
    where exists (select from {{schema}}.edges e where e.dependency = d.id and e.dependent = r.id)
      and not exists (select from {{schema}}.history h where h.id = d.id and h.state + 0 = {StoredState.DONE:d})
    group by d.id order by min(d.n)) end"""
_worker_info = msgspec.json.Decoder(WorkerInfo).decode


def _select(schema: str) -> str:
    columns = ", ".join(f"r.{name}" for name in COLUMNS.split(", "))
    waiting_for = _WAITING_FOR.format(schema=quoted(schema))
    return f"select {columns}, r.state, r.wake, r.worker, {waiting_for} from {quoted(schema)}.records r"


def inspect(schema: str, id: str, now: datetime) -> Program[JobInfo]:
    rows = (
        yield Statement(f"{_select(schema)} where r.id = ?", (id,)) if _storable(id) else Statement("select 1 limit 0")
    )
    if not rows:
        raise no_job(id)
    return info_from(rows[0], to_us(now))


def list_jobs(schema: str, now: datetime, wanted: JobQuery) -> Program[Page]:
    conditions = [f"r.{column} = ?" for column in wanted.names()]
    parameters: list[Any] = [*wanted.names().values()]
    if any(not _storable(value) for value in parameters):
        return Page(())
    if wanted.state is not None:
        conditions.append(f"{named(schema, 'state_of')}(r.state, r.run_at, r.wake, cast(? as bigint)) = ?")
        parameters += [to_us(now), wanted.state.value]
    if wanted.after is not None:
        conditions.append("r.id > ?")
        parameters.append(wanted.after)
    where = f" where {' and '.join(conditions)}" if conditions else ""
    rows = yield Statement(
        f"{_select(schema)}{where} order by r.id limit cast(? as bigint)", (*parameters, min(wanted.limit, 2**31) + 1)
    )
    items = tuple(info_from(row, to_us(now)) for row in rows[: wanted.limit])
    return Page(items, encode_cursor(items[-1].job.id) if len(rows) > wanted.limit else None)


def counts(schema: str, now: datetime) -> Program[dict[str, dict[str, int]]]:
    rows = yield Statement(
        f"""select r.queue, {named(schema, "state_of")}(r.state, r.run_at, r.wake, cast(? as bigint)) as reads, count(*)
        from {quoted(schema)}.records r group by 1, 2 order by 1, 2""",
        (to_us(now),),
    )
    counts: dict[str, dict[str, int]] = {}
    for queue, state, number in rows:
        counts.setdefault(queue, {})[state] = number
    return counts


def queues(schema: str) -> Program[list[str]]:
    """The names of all queues. PostgreSQL has no skip scan: this reads every job once (docs/driver-postgres.md)."""
    s = quoted(schema)
    rows = yield Statement(
        f"""select distinct r.queue collate "C" as queue from {s}.records r
        union select q.queue collate "C" from {s}.queues q where q.paused order by queue"""
    )
    return [row[0] for row in rows]


def flow(schema: str, flow_id: str, now: datetime) -> Program[FlowInfo]:
    found = Statement(f"{_select(schema)} where r.flow_id = ? order by r.id", (flow_id,))
    rows = yield found if _storable(flow_id) else Statement("select 1 limit 0")
    if not rows:
        raise no_flow(flow_id)
    nodes = tuple(info_from(row, to_us(now)) for row in rows)
    return flow_info(flow_id, nodes)


def results(schema: str, ids: Sequence[str]) -> Program[dict[str, bytes | None]]:
    asked = [id for id in dict.fromkeys(ids) if _storable(id)]
    rows = yield Statement(
        f"select x.id, {named(schema, 'result_of')}(x.id) from json_array_elements_text(cast(? as json)) as x(id)",
        (array(asked),),
    )
    found = {row[0]: row[1] for row in rows}
    return {id: found.get(id) for id in ids}


def workers(schema: str, now: datetime) -> Program[list[WorkerInfo]]:
    """The workers that sent a heartbeat lately."""
    rows = yield Statement(
        f"select info from {quoted(schema)}.workers where seen_at > ? order by worker", (to_us(now - WORKER_SILENCE),)
    )
    return [info for row in rows if (info := _readable(row[0])) is not None]


def _readable(info: str) -> WorkerInfo | None:
    """What a worker says of itself; None if another program has damaged it."""
    try:
        return _worker_info(info.encode())
    except (msgspec.MsgspecError, UnicodeError):
        return None


def _storable(text: str) -> bool:
    """Whether PostgreSQL's text can hold this; what it cannot hold is not stored."""
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
