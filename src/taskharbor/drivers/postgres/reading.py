"""Reading jobs, flows, queues, workers, figures and the audit; storing the last two. Each call is one statement."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from taskharbor.drivers.base import (
    FIGURES_KEPT_FOR,
    MAX_SCANNED_AUDIT,
    MAX_SCANNED_FLOWS,
    MAX_SCANNED_JOBS,
    WORKER_SILENCE,
)
from taskharbor.drivers.cursor import encode_cursor, encode_place
from taskharbor.drivers.graph import flow_info
from taskharbor.drivers.heads import in_turn, looks_for_each
from taskharbor.drivers.postgres.records import (
    COLUMNS,
    LARGE_COLUMNS,
    LAST_US,
    StoredState,
    base64_of,
    info_from,
    nearest_moment,
    to_json,
)
from taskharbor.drivers.postgres.statement import Program, Statement, array, call, named, quoted
from taskharbor.drivers.queries import AuditQuery, FlowQuery, JobQuery
from taskharbor.drivers.refusals import no_flow, no_job
from taskharbor.model.audit import AUDIT_KEPT_FOR, AuditPage, StoredAudit
from taskharbor.model.job import EPOCH, Figures, FlowInfo, FlowPage, FlowStatus, JobInfo, Page, QueueHead, WorkerInfo
from taskharbor.model.times import to_us

_WAITING_FOR = f"""case when r.state = {StoredState.BLOCKED:d} then array(
    select d.id from unnest(r.depends_on) with ordinality as d(id, n)
    where exists (select from {{schema}}.edges e where e.dependency = d.id and e.dependent = r.id)
      and not exists (select from {{schema}}.history h where h.id = d.id and h.state + 0 = {StoredState.DONE:d})
    group by d.id order by min(d.n)) end"""
_worker_info = msgspec.json.Decoder(WorkerInfo).decode


def _select(schema: str, *, payloads: bool = True, source: str = "") -> str:
    columns = ", ".join(
        f"r.{name}" if payloads or name not in LARGE_COLUMNS else f"cast(null as bytea) as {name}"
        for name in COLUMNS.split(", ")
    )
    waiting_for = _WAITING_FOR.format(schema=quoted(schema))
    source = source or f"{quoted(schema)}.records"
    return f"select {columns}, r.state, r.wake, r.worker, {waiting_for} from {source} r"


def inspect(schema: str, id: str, now: datetime) -> Program[JobInfo]:
    rows = (
        yield Statement(f"{_select(schema)} where r.id = ?", (id,)) if _storable(id) else Statement("select 1 limit 0")
    )
    if not rows:
        raise no_job(id)
    return info_from(rows[0], to_us(now))


def list_jobs(schema: str, now: datetime, wanted: JobQuery) -> Program[Page]:
    asked: dict[str, Any] = {**wanted.names()}
    if any(not _storable(value) for value in asked.values()):
        return Page(())
    moments = {"since": wanted.since, "until": wanted.until}
    asked |= {name: to_us(moment) for name, moment in moments.items() if moment is not None}
    if wanted.state is not None:
        asked["state"] = wanted.state.value
    if wanted.after is not None:
        asked["after"] = wanted.after
    given = (to_json(asked), wanted.newest, wanted.limit, MAX_SCANNED_JOBS, to_us(now))
    listed = call(schema, "list_ids(text, boolean, integer, integer, bigint)", *given, columns="ids, last")
    of_listed = _select(schema, payloads=wanted.payloads, source=f"{named(schema, 'records_of')}(l.ids)")
    rows = yield Statement(
        f"with listed as materialized ({listed.sql}) "
        f"select l.last, x.* from listed l left join lateral ({of_listed}) as x on true",
        listed.parameters,
    )
    found = sorted((row[1:] for row in rows if row[1] is not None), key=_id, reverse=wanted.newest)
    items = tuple(info_from(row, to_us(now)) for row in found)
    return Page(items, encode_cursor(rows[0][0]) if rows[0][0] is not None else None)


_id = operator.itemgetter(0)


def counts(schema: str, now: datetime, cap: int | None) -> Program[dict[str, dict[str, int]]]:
    if cap is None:
        rows = yield Statement(
            f"""select r.queue, {named(schema, "state_of")}(r.state, r.run_at, r.wake, cast(? as bigint)) as reads,
            count(*) from {quoted(schema)}.records r group by 1, 2""",
            (to_us(now),),
        )
    else:
        most = min(cap, 2**62)
        rows = yield call(schema, "count_jobs(bigint, bigint)", to_us(now), most, columns="queue, state, n")
    counts: dict[str, dict[str, int]] = {}
    for queue, state, number in sorted(map(tuple, rows)):
        by_state = counts.setdefault(queue, {})
        by_state[state] = by_state.get(state, 0) + number
    if cap is None:
        return counts
    return {queue: {state: min(number, cap) for state, number in found.items()} for queue, found in counts.items()}


def queues(schema: str) -> Program[list[str]]:
    """The names of all queues."""
    rows = yield Statement(
        f"""select q.queue from {named(schema, "queue_names")}() as q(queue)
        union select q.queue from {quoted(schema)}.queues q where q.paused"""
    )
    return sorted(row[0] for row in rows)


def upcoming(schema: str, queues: Sequence[str], now: datetime) -> Program[datetime | None]:
    names = [name for name in dict.fromkeys(queues) if _storable(name)]
    rows = yield call(schema, "upcoming(text, bigint)", array(names), to_us(now))
    return None if rows[0][0] is None else nearest_moment(rows[0][0])


def flow(schema: str, flow_id: str, now: datetime) -> Program[FlowInfo]:
    found = Statement(f"{_select(schema)} where r.flow_id = ? order by r.id", (flow_id,))
    rows = yield found if _storable(flow_id) else Statement("select 1 limit 0")
    if not rows:
        raise no_flow(flow_id)
    nodes = tuple(info_from(row, to_us(now)) for row in rows)
    return flow_info(flow_id, nodes)


def list_flows(schema: str, wanted: FlowQuery) -> Program[FlowPage]:
    rows = yield call(
        schema,
        "list_flows(text, boolean, text, bigint, bigint, integer, integer)",
        wanted.after,
        wanted.newest,
        None if wanted.status is None else wanted.status.value,
        None if wanted.since is None else to_us(wanted.since),
        None if wanted.until is None else to_us(wanted.until),
        min(wanted.limit, MAX_SCANNED_FLOWS),
        MAX_SCANNED_FLOWS,
        columns="id, status, created_at, updated_at, last",
    )
    last = rows[-1][-1] if rows else None
    items = tuple(
        FlowInfo(id, FlowStatus(status), nearest_moment(created_at), nearest_moment(updated_at), (), ())
        for id, status, created_at, updated_at, _ in rows
        if id is not None
    )
    return FlowPage(items, None if last is None else encode_cursor(last))


def results(schema: str, ids: Sequence[str]) -> Program[dict[str, bytes | None]]:
    """The results of the jobs that are done."""
    asked = [id for id in dict.fromkeys(ids) if _storable(id)]
    rows = yield Statement(
        f"select x.id, y.result from json_array_elements_text(cast(? as json)) as x(id), "
        f"{named(schema, 'result_of')}(x.id) as y",
        (array(asked),),
    )
    return {row[0]: row[1] for row in rows}


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


# The heads of queues


class _Following(msgspec.Struct):
    """What queue_heads.sql returns of the jobs that come next."""

    groups_next: bool
    ungrouped: list[str]
    groups: list[list[str]]


_following = msgspec.json.Decoder(_Following).decode


def heads(schema: str, queues: Sequence[str], now: datetime, n: int) -> Program[list[QueueHead]]:
    """The head of each of these queues, in their order."""
    given = (array(queues), to_us(now), n, looks_for_each(queues))
    columns = "queue, oldest, oldest_known, following"
    rows = yield call(schema, "queue_heads(text, bigint, integer, integer)", *given, columns=columns)
    found = []
    for queue, oldest, oldest_known, text in rows:
        oldest_at = None if oldest is None else nearest_moment(oldest)
        after = _following(text) if text is not None else None
        following = in_turn(after.ungrouped, after.groups, after.groups_next, n) if after is not None else ()
        found.append(QueueHead(queue, oldest_at, following, oldest_known, n == 0 or after is not None))
    return found


# Figures by minute and queue


def add_figures(schema: str, rows: Sequence[Figures], now: datetime) -> Program[None]:
    """Add figures that were checked."""
    given = [
        {"minute": to_us(row.minute), "queue": row.queue, "name": name, "n": number}
        for row in rows
        for name, number in row.counts.items()
        if number
    ]
    oldest = to_us(max(now - FIGURES_KEPT_FOR, EPOCH))
    yield call(schema, "add_figures(text, bigint)", to_json(given), oldest)


def read_figures(schema: str, since: datetime, until: datetime, queue: str | None) -> Program[list[Figures]]:
    """The figures of the minutes from `since` to before `until`, in the order of minutes, then queues."""
    chosen = "" if queue is None else " and queue = ?"
    rows = yield Statement(
        f"select minute, queue, name, n from {quoted(schema)}.figures "
        f"where minute >= ? and minute < ? and n > 0{chosen} order by minute, queue, name",
        (to_us(since), to_us(until), *(() if queue is None else (queue,))),
    )
    found: dict[tuple[int, str], dict[str, int]] = {}
    for minute, of_queue, name, number in rows:
        found.setdefault((minute, of_queue), {})[name] = number
    return [Figures(nearest_moment(minute), of_queue, counts) for (minute, of_queue), counts in found.items()]


# The audit: who did what, for 90 days


def put_audit(schema: str, entries: Sequence[StoredAudit], now: datetime) -> Program[None]:
    """Store entries that were checked. Sent twice, they are stored once."""
    last = {entry.id: entry for entry in entries}
    given = [
        {"id": entry.id, "at": to_us(entry.at), "done_by": entry.by, "data": base64_of(entry.data)}
        for entry in last.values()
    ]
    oldest = to_us(max(now - AUDIT_KEPT_FOR, EPOCH))
    yield call(schema, "put_audit(text, bigint)", to_json(given), oldest)


def list_audit(schema: str, wanted: AuditQuery) -> Program[AuditPage]:
    """A page of the audit, the newest entries first."""
    since = 0 if wanted.since is None else to_us(wanted.since)
    # The place behind which a page begins. Bytes of UTF-8 are in the order of the store's collation.
    at, id = (LAST_US + 1 if wanted.until is None else to_us(wanted.until), b"")
    if wanted.after is not None:
        at, id = min((at, id), (to_us(wanted.after[0]), wanted.after[1].encode()))
    given = (since, at, id.decode(), wanted.by, wanted.limit, MAX_SCANNED_AUDIT)
    function = "list_audit(bigint, bigint, text, text, integer, integer)"
    rows = yield call(schema, function, *given, columns="id, at, done_by, data")
    items = tuple(
        StoredAudit(id=id, at=nearest_moment(at), by=by, data=data) for id, at, by, data in rows if data is not None
    )
    last = rows[-1] if rows and rows[-1][-1] is None else None
    return AuditPage(items, None if last is None else encode_place(nearest_moment(last[1]), last[0]))
