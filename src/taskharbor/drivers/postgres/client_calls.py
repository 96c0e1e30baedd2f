"""The calls that a client makes, written once: awaited on an event loop, or blocking on the calling thread.

A call is a program (statement.py), or a few of them. A `Runner` (pool.py) runs it, on an event loop or, in blocking.py,
without one. There none of these coroutines ever suspends.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from taskharbor.drivers.base import CANCELLED_REASON, SqlDriver
from taskharbor.drivers.heads import check_next
from taskharbor.drivers.postgres import reading
from taskharbor.drivers.postgres.enqueue import enqueue
from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.drivers.postgres.pool import Runner
from taskharbor.drivers.postgres.reading import heads, list_audit, put_audit, read_figures
from taskharbor.drivers.postgres.records import nearest_moment, to_json
from taskharbor.drivers.postgres.schedules import (
    change_batches,
    change_schedules,
    list_due_schedules,
    list_schedules,
)
from taskharbor.drivers.postgres.statement import Statement, array, call, named, quoted, rows_of
from taskharbor.drivers.postgres.tries import ADMIN_S, JobLocked, Pauses, ask_again
from taskharbor.drivers.queries import AuditQuery, DueQuery, FlowQuery, JobQuery, ScheduleQuery, check_cap
from taskharbor.drivers.refusals import (
    amended_since,
    changed_since,
    no_job,
    not_amendable,
    paired,
    still_needed,
    wrong_state,
)
from taskharbor.model.amendment import Amend
from taskharbor.model.audit import AuditPage, StoredAudit
from taskharbor.model.bounds import check_amend, check_audit, check_moment, check_name
from taskharbor.model.errors import DriverError, InvalidJob, TaskHarborError
from taskharbor.model.job import Figures, FlowInfo, FlowPage, JobInfo, JobRecord, Page, QueueHead, Seen, WorkerInfo
from taskharbor.model.lease import Enqueued
from taskharbor.model.schedule import ScheduleChange, SchedulePage
from taskharbor.model.times import MICROSECOND, to_us

_CLOCK = Statement("select (extract(epoch from clock_timestamp()) * 1000)::bigint")


class PostgresClientCalls(SqlDriver):
    """The calls of clients and operators, apart from `open`: written once, for the driver and its blocking calls."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._schema = options.schema

    def _runner(self) -> Runner:
        raise NotImplementedError

    async def server_time(self) -> datetime:
        runner = self._runner()
        rows = await runner.run(lambda: rows_of(_CLOCK))
        return nearest_moment(runner.newest_time(rows[0][0]) * 1000)

    async def enqueue(self, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        return await self._runner().run(lambda: enqueue(self._schema, jobs, now, self._options.max_payload))

    async def inspect(self, id: str, now: datetime) -> JobInfo:
        return await self._runner().run(lambda: reading.inspect(self._schema, id, now))

    async def results(self, ids: Sequence[str]) -> dict[str, bytes | None]:
        return await self._runner().run(lambda: reading.results(self._schema, ids))

    async def flow(self, flow_id: str, now: datetime) -> FlowInfo:
        return await self._runner().run(lambda: reading.flow(self._schema, flow_id, now))

    async def workers(self, now: datetime) -> list[WorkerInfo]:
        return await self._runner().run(lambda: reading.workers(self._schema, now))

    async def requeue(
        self,
        ids: Sequence[str],
        now: datetime,
        run_at: datetime | None = None,
        reset_attempts: bool = False,
        seen: Sequence[Seen] | None = None,
    ) -> list[DriverError | None]:
        if run_at is not None:
            check_moment(run_at, "run_at")
        run_at_us = None if run_at is None else to_us(run_at)
        function = "requeue(text, bigint, bigint, boolean, text)"
        return await self._change_each(function, ids, seen, to_us(now), run_at_us, reset_attempts)

    async def cancel(
        self, ids: Sequence[str], now: datetime, seen: Sequence[Seen] | None = None
    ) -> list[DriverError | None]:
        return await self._change_each("cancel(text, bigint, text, text)", ids, seen, to_us(now), CANCELLED_REASON)

    async def cancel_flow(self, flow_id: str, now: datetime) -> int:
        if "\x00" in flow_id:
            return 0
        statement = call(self._schema, "cancel_flow(text, bigint)", flow_id, to_us(now), columns="cancelled, locked")
        cancelled, locked = await self._until_unlocked(statement, ADMIN_S)
        if locked:
            raise JobLocked(
                f"flow {flow_id}: cancelled {cancelled} job(s), but {locked} more are locked by a transaction that is "
                "still open; cancel it again later"
            )
        return cancelled

    async def amend(self, changes: Sequence[Amend], now: datetime) -> list[TaskHarborError | None]:
        """Change jobs that are not running, each if it is as its editor saw it."""
        results: dict[int, TaskHarborError | None] = {}
        sound: list[Amend] = []
        for place, change in enumerate(changes):
            try:
                check_amend(change, self._options.max_payload)
                sound.append(change)
            except InvalidJob as error:
                results[place] = error

        async def ask(some: Sequence[Amend]) -> list[DriverError | None]:
            given = to_json([_amendment(change) for change in some])
            texts = await self._value("amend(text, bigint)", given, to_us(now))
            return [_refusal("amend", change.id, text) for change, text in zip(some, texts, strict=True)]

        if sound:
            answers = iter(await ask_again(sound, ask, ADMIN_S, self._runner()))
        return [results[place] if place in results else next(answers) for place in range(len(changes))]

    async def delete(self, ids: Sequence[str], seen: Sequence[Seen] | None = None) -> list[DriverError | None]:
        return await self._change_each("delete_jobs(text, text)", ids, seen)

    async def counts(self, now: datetime, cap: int | None = None) -> dict[str, dict[str, int]]:
        check_cap(cap)
        return await self._runner().run(lambda: reading.counts(self._schema, now, cap))

    async def queues(self) -> list[str]:
        return await self._runner().run(lambda: reading.queues(self._schema))

    async def pause(self, queue: str) -> None:
        check_name(queue, "queue")
        await self._execute(
            f"insert into {quoted(self._schema)}.queues (queue, paused) values (?, true) "
            "on conflict (queue) do update set paused = true",
            queue,
        )

    async def resume(self, queue: str) -> None:
        await self._execute(
            f"update {quoted(self._schema)}.queues set paused = false where queue = ? and paused", queue
        )
        await self._execute(f"select {named(self._schema, 'hint_queue')}(cast(? as text))", queue)

    async def is_paused(self, queue: str) -> bool:
        rows = await self._execute(f"select 1 from {quoted(self._schema)}.queues where queue = ? and paused", queue)
        return bool(rows)

    async def heads(self, queues: Sequence[str], now: datetime, n: int = 0) -> list[QueueHead]:
        check_next(n)
        return await self._runner().run(lambda: heads(self._schema, queues, now, n))

    async def figures(self, since: datetime, until: datetime, queue: str | None = None) -> list[Figures]:
        check_moment(since, "since")
        check_moment(until, "until")
        return await self._runner().run(lambda: read_figures(self._schema, since, until, queue))

    async def put_audit(self, entries: Sequence[StoredAudit], now: datetime) -> None:
        check_audit(entries)
        await self._runner().run(lambda: put_audit(self._schema, entries, now))

    async def list_audit(self, wanted: AuditQuery) -> AuditPage:
        return await self._runner().run(lambda: list_audit(self._schema, wanted))

    async def change_schedules(self, changes: Sequence[ScheduleChange], now: datetime) -> list[bool]:
        results: list[bool] = []
        for batch in change_batches(changes, self._options.max_payload):
            results += await self._runner().run(partial(change_schedules, self._schema, batch, now))
        return results

    async def list_schedules(self, wanted: ScheduleQuery) -> SchedulePage:
        return await self._runner().run(lambda: list_schedules(self._schema, wanted))

    async def list_due_schedules(self, wanted: DueQuery) -> SchedulePage:
        return await self._runner().run(lambda: list_due_schedules(self._schema, wanted))

    async def list_flows(self, now: datetime, wanted: FlowQuery) -> FlowPage:
        return await self._runner().run(lambda: reading.list_flows(self._schema, wanted))

    # How they are run

    async def _execute(self, sql: str, *parameters: Any) -> Any:
        return await self._runner().run(lambda: rows_of(Statement(sql, parameters)))

    async def _value(self, function: str, *parameters: Any) -> Any:
        """The value of a function that counts, or refuses what is done already: sent twice it would return something
        else, so it is not repeated."""
        statement = call(self._schema, function, *parameters)
        rows = await self._runner().run(lambda: rows_of(statement), repeat=False)
        return rows[0][0]

    async def _until_unlocked(self, statement: Statement, patience: float) -> tuple[int, int]:
        """How many jobs a statement that is sent again and again has changed, and how many were still locked after
        `patience` seconds."""
        runner, changed = self._runner(), 0
        pauses: Pauses | None = None
        while True:
            ((more, locked),) = await runner.run(lambda: rows_of(statement), repeat=False)
            changed += more
            pauses = pauses or Pauses(runner, patience)
            if not locked or not await pauses.sleep():
                return changed, locked

    async def _change_each(
        self, function: str, ids: Sequence[str], seen: Sequence[Seen] | None, *parameters: Any
    ) -> list[DriverError | None]:
        """Call one of the functions of sql/functions/admin for these ids, and again for those that are locked."""
        pairs = paired(ids, seen)

        async def ask(some: Sequence[tuple[str, Seen | None]]) -> list[DriverError | None]:
            storable = [id if "\x00" not in id else "" for id, _ in some]
            expected = None if seen is None else array([_seen_text(was) for _, was in some if was is not None])
            texts = await self._value(function, array(storable), *parameters, expected)
            return [_refusal(function.partition("(")[0], id, text) for (id, _), text in zip(some, texts, strict=True)]

        return await ask_again(pairs, ask, ADMIN_S, self._runner())

    async def list_jobs(self, now: datetime, wanted: JobQuery) -> Page:
        return await self._runner().run(lambda: reading.list_jobs(self._schema, now, wanted))


def _seen_text(seen: Seen) -> str:
    """What was seen of a job, as sql/functions/admin/seen_of.sql writes it."""
    end = seen.finished_at
    if end is None:
        at = "-"
    else:
        at = str(to_us(end)) if end.utcoffset() is not None else "naive"  # no job has ended at such a moment
    return f"{seen.deliveries:d} {seen.edits:d} {at}"


def _refusal(function: str, id: str, text: str | None) -> DriverError | None:
    """The error for what a function of sql/functions/admin returned for a job."""
    if text is None:
        return None
    if text == "unknown":
        return no_job(id)
    if text == "locked":
        return JobLocked.job(id)
    if text == "changed":
        return changed_since(id)
    if text == "amended":
        return amended_since(id)
    if text.startswith("needed "):
        return still_needed(id, int(text.removeprefix("needed ")))
    if function == "amend":
        return not_amendable(id, text)
    return wrong_state(id, text, "cancel" if function == "cancel" else "requeue")


def _amendment(change: Amend) -> dict[str, Any]:
    """An amendment that was checked, as the function `amend` takes it; bytes become base64."""
    stored = change.changes()
    for name, value in stored.items():
        if isinstance(value, datetime):
            stored[name] = to_us(value)
        elif isinstance(value, timedelta):
            stored[name] = value // MICROSECOND
        elif isinstance(value, dict):
            stored[name] = to_json(value) if value else None
    return {"id": change.id, "deliveries": change.deliveries, "edits": change.edits, **stored}
