"""Looking at jobs: one statement for each question, over both tables through the view `records`."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from taskharbor.drivers.postgres.records import COLUMNS, info_from, micros
from taskharbor.drivers.postgres.statement import Program, Statement, array, named, quoted
from taskharbor.model.errors import JobNotFound
from taskharbor.model.job import FlowInfo, JobInfo, Page, State, flow_status

_WAITING_FOR = """case when r.state = 0 then array(
    select d.id from unnest(r.depends_on) with ordinality as d(id, n)
    where exists (select from {schema}.edges e where e.dependency = d.id and e.dependent = r.id)
      and not exists (select from {schema}.history h where h.id = d.id and h.state + 0 = 5)
    group by d.id order by min(d.n)) end"""


def _select(schema: str) -> str:
    columns = ", ".join(f"r.{name}" for name in COLUMNS.split(", "))
    waiting_for = _WAITING_FOR.format(schema=quoted(schema))
    return f"select {columns}, r.state, r.wake, r.worker, {waiting_for} from {quoted(schema)}.records r"


def inspect(schema: str, id: str, now: datetime) -> Program[JobInfo]:
    rows = (
        yield Statement(f"{_select(schema)} where r.id = ?", (id,)) if _storable(id) else Statement("select 1 limit 0")
    )
    if not rows:
        raise JobNotFound(f"no job {id}")
    return info_from(rows[0], micros(now))


def list_jobs(
    schema: str,
    now: datetime,
    *,
    queue: str | None,
    state: State | str | None,
    type: str | None,
    group: str | None,
    flow_id: str | None,
    cursor: str | None,
    limit: int,
) -> Program[Page]:
    if limit < 1:
        raise ValueError(f"limit: expected at least 1, got {limit}")
    wanted = State(state) if state is not None else None
    conditions: list[str] = []
    parameters: list[Any] = []
    for column, value in (("queue", queue), ("type", type), ("grp", group), ("flow_id", flow_id)):
        if value is not None:
            conditions.append(f"r.{column} = ?")
            parameters.append(value)
    if any(not _storable(value) for value in parameters):
        return Page(())
    if wanted is not None:
        conditions.append(f"{named(schema, 'state_of')}(r.state, r.run_at, r.wake, cast(? as bigint)) = ?")
        parameters += [micros(now), wanted.value]
    if cursor is not None:
        conditions.append("r.id > ?")
        parameters.append(decode_cursor(cursor))
    where = f" where {' and '.join(conditions)}" if conditions else ""
    rows = yield Statement(
        f"{_select(schema)}{where} order by r.id limit cast(? as bigint)", (*parameters, min(limit, 2**31) + 1)
    )
    items = tuple(info_from(row, micros(now)) for row in rows[:limit])
    return Page(items, encode_cursor(items[-1].job.id) if len(rows) > limit else None)


def counts(schema: str, now: datetime) -> Program[dict[str, dict[str, int]]]:
    rows = yield Statement(
        f"""select r.queue, {named(schema, "state_of")}(r.state, r.run_at, r.wake, cast(? as bigint)) as reads, count(*)
        from {quoted(schema)}.records r group by 1, 2 order by 1, 2""",
        (micros(now),),
    )
    answer: dict[str, dict[str, int]] = {}
    for queue, state, number in rows:
        answer.setdefault(queue, {})[state] = number
    return answer


def queues(schema: str) -> Program[list[str]]:
    """Distinct names by hopping from one to the next: a million jobs of a queue cost one look."""
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
        raise JobNotFound(f"no flow {flow_id}")
    nodes = tuple(info_from(row, micros(now)) for row in rows)
    jobs = [node.job for node in nodes]
    times = [at for job in jobs for at in (job.created_at, job.failed_at, job.finished_at) if at is not None]
    return FlowInfo(
        flow_id,
        flow_status([node.state for node in nodes]),
        min(job.created_at for job in jobs),
        max(times),
        nodes,
        tuple((dependency, job.id) for job in jobs for dependency in job.depends_on),
    )


def results(schema: str, ids: Sequence[str]) -> Program[dict[str, bytes | None]]:
    asked = [id for id in dict.fromkeys(ids) if _storable(id)]
    rows = yield Statement(
        f"select x.id, {named(schema, 'result_of')}(x.id) from json_array_elements_text(cast(? as json)) as x(id)",
        (array(asked),),
    )
    found = {row[0]: row[1] for row in rows}
    return {id: found.get(id) for id in ids}


def _storable(text: str) -> bool:
    """Whether PostgreSQL can be asked about such a text; what it cannot hold is not stored there."""
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def encode_cursor(id: str) -> str:
    """Opaque, and checked: a cursor that lost a character must not quietly begin somewhere else."""
    data = id.encode()
    return base64.urlsafe_b64encode(b"1" + zlib.crc32(data).to_bytes(4, "big") + data).decode()


def decode_cursor(cursor: str) -> str:
    try:
        data = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        id = data[5:].decode()
    except (AttributeError, UnicodeError, binascii.Error):
        raise ValueError("cursor: expected one that list answered, got a damaged one") from None
    if encode_cursor(id) != cursor or not _storable(id):
        raise ValueError("cursor: expected one that list answered, got a damaged one")
    return id
