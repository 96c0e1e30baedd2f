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
from taskharbor.drivers.heads import check_next, in_turn, looks_for_each
from taskharbor.drivers.postgres.calls import PostgresCalls
from taskharbor.drivers.postgres.records import (
    COLUMNS,
    LARGE_COLUMNS,
    LAST_US,
    StoredState,
    base64_of,
    info_from,
    nearest_moment,
    optional_moment,
    optional_us,
    to_json,
)
from taskharbor.drivers.postgres.statement import array, call
from taskharbor.drivers.postgres.steps import steps
from taskharbor.drivers.queries import AuditQuery, FlowQuery, JobQuery, check_cap
from taskharbor.drivers.refusals import no_flow, no_job
from taskharbor.model.audit import AUDIT_KEPT_FOR, AuditPage, StoredAudit
from taskharbor.model.bounds import check_audit, check_figures, check_moment
from taskharbor.model.job import (
    EPOCH,
    Figures,
    FlowInfo,
    FlowPage,
    FlowStatus,
    JobInfo,
    Page,
    QueueHead,
    WorkerInfo,
    flow_info,
)
from taskharbor.model.memo import Memo
from taskharbor.model.times import to_us

_WAITING_FOR = f"""case when r.state = {StoredState.BLOCKED:d} then array(
    select d.id from unnest(r.depends_on) with ordinality as d(id, n)
    where exists (select from {{edges}} e where e.dependency = d.id and e.dependent = r.id)
      and not exists (select from {{history}} h where h.id = d.id and h.state + 0 = {StoredState.DONE:d})
    group by d.id order by min(d.n)) end"""
_worker_info = msgspec.json.Decoder(WorkerInfo).decode
_first = operator.itemgetter(0)


class _Following(msgspec.Struct):
    """What queue_heads.sql returns of the jobs that come next."""

    groups_next: bool
    ungrouped: list[str]
    groups: list[list[str]]


_following = msgspec.json.Decoder(_Following).decode


class PostgresReading(PostgresCalls):
    """The calls that read, and those that store figures and the audit."""

    def _select(self, source: str, *, payloads: bool = True) -> str:
        """The statement whose rows `info_from` reads, without its condition."""
        columns = ", ".join(
            f"r.{name}" if payloads or name not in LARGE_COLUMNS else f"cast(null as bytea) as {name}"
            for name in COLUMNS.split(", ")
        )
        waiting_for = _WAITING_FOR.format(edges=self._table("edges"), history=self._table("history"))
        return f"select {columns}, r.state, r.wake, r.worker, {waiting_for} from {source} r"

    async def server_time(self) -> datetime:
        runner = self._runner()
        rows = await self._execute("select (extract(epoch from clock_timestamp()) * 1000)::bigint")
        return nearest_moment(runner.newest_time(rows[0][0]) * 1000)

    async def inspect(self, id: str, now: datetime) -> JobInfo:
        rows = await self._execute(f"{self._select(self._table('records'))} where r.id = ?", id)
        if not rows:
            raise no_job(id)
        return info_from(rows[0], to_us(now))

    async def steps(self, id: str) -> list[Memo]:
        return await self._runner().run(lambda: steps(self._schema, id))

    async def list_jobs(self, now: datetime, wanted: JobQuery) -> Page:
        asked: dict[str, Any] = {**wanted.names()}
        moments = {"since": wanted.since, "until": wanted.until}
        asked |= {name: to_us(moment) for name, moment in moments.items() if moment is not None}
        if wanted.state is not None:
            asked["state"] = wanted.state.value
        if wanted.after is not None:
            asked["after"] = wanted.after
        given = (to_json(asked), wanted.newest, wanted.limit, MAX_SCANNED_JOBS, to_us(now))
        listed = call(self._schema, "list_ids(text, boolean, integer, integer, bigint)", *given, columns="ids, last")
        of_listed = self._select(f"{self._function('records_of')}(l.ids)", payloads=wanted.payloads)
        rows = await self._execute(
            f"with listed as materialized ({listed.sql}) "
            f"select l.last, x.* from listed l left join lateral ({of_listed}) as x on true",
            *listed.parameters,
        )
        found = sorted((row[1:] for row in rows if row[1] is not None), key=_first, reverse=wanted.newest)
        items = tuple(info_from(row, to_us(now)) for row in found)
        return Page(items, encode_cursor(rows[0][0]) if rows[0][0] is not None else None)

    async def counts(self, now: datetime, cap: int | None = None) -> dict[str, dict[str, int]]:
        check_cap(cap)
        if cap is None:
            state = f"{self._function('state_of')}(r.state, r.run_at, r.wake, cast(? as bigint))"
            counted = f"select r.queue, {state}, count(*) from {self._table('records')} r group by 1, 2"
            rows = await self._execute(counted, to_us(now))
        else:
            most = min(cap, 2**62)
            rows = await self._call("count_jobs(bigint, bigint)", to_us(now), most, columns="queue, state, n")
        counts: dict[str, dict[str, int]] = {}
        for queue, state, number in sorted(map(tuple, rows)):
            by_state = counts.setdefault(queue, {})
            by_state[state] = by_state.get(state, 0) + number
        if cap is None:
            return counts
        return {queue: {state: min(number, cap) for state, number in found.items()} for queue, found in counts.items()}

    async def queues(self) -> list[str]:
        rows = await self._execute(
            f"select q.queue from {self._function('queue_names')}() as q(queue) "
            f"union select q.queue from {self._table('queues')} q where q.paused"
        )
        return sorted(map(_first, rows))

    async def is_paused(self, queue: str) -> bool:
        return bool(await self._execute(f"select 1 from {self._table('queues')} where queue = ? and paused", queue))

    async def heads(self, queues: Sequence[str], now: datetime, n: int = 0) -> list[QueueHead]:
        check_next(n)
        given = (array(queues), to_us(now), n, looks_for_each(queues))
        columns = "queue, oldest, oldest_known, following"
        found = []
        for queue, oldest, oldest_known, text in await self._call(
            "queue_heads(text, bigint, integer, integer)", *given, columns=columns
        ):
            after = _following(text) if text is not None else None
            following = in_turn(after.ungrouped, after.groups, after.groups_next, n) if after is not None else ()
            is_known = n == 0 or after is not None
            found.append(QueueHead(queue, optional_moment(oldest), following, oldest_known, is_known))
        return found

    async def upcoming(self, queues: Sequence[str], now: datetime) -> datetime | None:
        names = array(list(dict.fromkeys(queues)))
        return optional_moment((await self._call("upcoming(text, bigint)", names, to_us(now)))[0][0])

    async def flow(self, flow_id: str, now: datetime) -> FlowInfo:
        rows = await self._execute(f"{self._select(self._table('records'))} where r.flow_id = ? order by r.id", flow_id)
        if not rows:
            raise no_flow(flow_id)
        return flow_info(flow_id, tuple(info_from(row, to_us(now)) for row in rows))

    async def list_flows(self, now: datetime, wanted: FlowQuery) -> FlowPage:
        rows = await self._call(
            "list_flows(text, boolean, text, bigint, bigint, integer, integer)",
            wanted.after,
            wanted.newest,
            None if wanted.status is None else wanted.status.value,
            optional_us(wanted.since),
            optional_us(wanted.until),
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

    async def results(self, ids: Sequence[str]) -> dict[str, bytes | None]:
        rows = await self._execute(
            f"select x.id, y.result from json_array_elements_text(cast(? as json)) as x(id), "
            f"{self._function('result_of')}(x.id) as y",
            array(list(dict.fromkeys(ids))),
        )
        return dict(map(tuple, rows))

    async def workers(self, now: datetime) -> list[WorkerInfo]:
        recent = f"select info from {self._table('workers')} where seen_at > ? order by worker"
        rows = await self._execute(recent, to_us(now - WORKER_SILENCE))
        return [info for row in rows if (info := _readable(row[0])) is not None]

    # Figures by minute and queue

    async def add_figures(self, rows: Sequence[Figures], now: datetime) -> None:
        check_figures(rows)
        given = [
            {"minute": to_us(row.minute), "queue": row.queue, "name": name, "n": number}
            for row in rows
            for name, number in row.counts.items()
            if number
        ]
        oldest = to_us(max(now - FIGURES_KEPT_FOR, EPOCH))
        await self._value("add_figures(text, bigint)", to_json(given), oldest)

    async def figures(self, since: datetime, until: datetime, queue: str | None = None) -> list[Figures]:
        check_moment(since, "since")
        check_moment(until, "until")
        chosen = "" if queue is None else " and queue = ?"
        rows = await self._execute(
            f"select minute, queue, name, n from {self._table('figures')} "
            f"where minute >= ? and minute < ? and n > 0{chosen} order by minute, queue, name",
            *(to_us(since), to_us(until), *(() if queue is None else (queue,))),
        )
        found: dict[tuple[int, str], dict[str, int]] = {}
        for minute, of_queue, name, number in rows:
            found.setdefault((minute, of_queue), {})[name] = number
        return [Figures(nearest_moment(minute), of_queue, counts) for (minute, of_queue), counts in found.items()]

    # The audit: who did what, for 90 days

    async def put_audit(self, entries: Sequence[StoredAudit], now: datetime) -> None:
        check_audit(entries)
        given = [
            {"id": entry.id, "at": to_us(entry.at), "done_by": entry.by, "data": base64_of(entry.data)}
            for entry in {entry.id: entry for entry in entries}.values()
        ]
        await self._call("put_audit(text, bigint)", to_json(given), to_us(max(now - AUDIT_KEPT_FOR, EPOCH)))

    async def list_audit(self, wanted: AuditQuery) -> AuditPage:
        since = 0 if wanted.since is None else to_us(wanted.since)
        # The place behind which a page begins. Bytes of UTF-8 are in the order of the store's collation.
        at, id = (LAST_US + 1 if wanted.until is None else to_us(wanted.until), b"")
        if wanted.after is not None:
            at, id = min((at, id), (to_us(wanted.after[0]), wanted.after[1].encode()))
        given = (since, at, id.decode(), wanted.by, wanted.limit, MAX_SCANNED_AUDIT)
        function = "list_audit(bigint, bigint, text, text, integer, integer)"
        rows = await self._call(function, *given, columns="id, at, done_by, data")
        items = tuple(
            StoredAudit(id=id, at=nearest_moment(at), by=by, data=data) for id, at, by, data in rows if data is not None
        )
        last = rows[-1] if rows and rows[-1][-1] is None else None
        return AuditPage(items, None if last is None else encode_place(nearest_moment(last[1]), last[0]))


def _readable(info: str) -> WorkerInfo | None:
    """What a worker says of itself; None if another program has damaged it."""
    try:
        return _worker_info(info.encode())
    except (msgspec.MsgspecError, UnicodeError):
        return None
