"""The face of the Postgres driver: the calls of the contract, each a program that is run on a pooled connection.

What a call does is told in sql/functions, one file for each: the server does it in one round trip, so that no other
caller can look in between, and a connection that is lost in the middle leaves all of it or nothing.
"""

from __future__ import annotations

import asyncio
import builtins
import operator
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from importlib.util import find_spec
from typing import Any, TypeVar

import msgspec

from taskharbor.drivers.connections import expect, run
from taskharbor.drivers.contract import CANCELLED_REASON, WORKER_SILENCE, SingleVerbs, within_lease
from taskharbor.drivers.postgres import caller_connection, reading, schema
from taskharbor.drivers.postgres.bloat import ScanStart
from taskharbor.drivers.postgres.deadline import Deadline
from taskharbor.drivers.postgres.enqueue import enqueue
from taskharbor.drivers.postgres.lock_retry import ADMIN, ALONE, BESIDE_OTHERS, JobLocked, ask_again
from taskharbor.drivers.postgres.long_transactions import LongTransactionWarning
from taskharbor.drivers.postgres.options import located, parse
from taskharbor.drivers.postgres.pool import PostgresPool, unavailable, unusable
from taskharbor.drivers.postgres.records import (
    RESERVED_COLUMNS,
    DamagedRecord,
    from_reserved_row,
    micros,
    moment_of,
    to_json,
)
from taskharbor.drivers.postgres.settle import extend, plain, runs, settle_plain, settle_spawning
from taskharbor.drivers.postgres.statement import Program, Statement, array, call, named, quoted, value
from taskharbor.drivers.postgres.transaction import PostgresTransaction, PostgresTransactionSync, drive_sync
from taskharbor.drivers.postgres.wait import HintListener
from taskharbor.drivers.unstorable import accepts_any_name
from taskharbor.model.bounds import check_moment, check_name
from taskharbor.model.errors import BackendUnavailable, DriverError, JobNotFound, TaskHarborError, WrongState
from taskharbor.model.ids import new_tokens
from taskharbor.model.job import FlowInfo, JobInfo, JobRecord, Page, State, WorkerInfo
from taskharbor.model.lease import Enqueued, Lease, Reserved
from taskharbor.model.outcome import Outcome

T = TypeVar("T")
_REMEMBERED = 10 * WORKER_SILENCE
_NOTED = msgspec.json.Decoder(WorkerInfo).decode
_TOKEN = operator.itemgetter(-1)
_UPGRADE = 3600.0  # seconds for a store that is not empty
_TURN = 10_000  # jobs of one reserve: more would make tokens by the megabyte


@accepts_any_name
class PostgresDriver(SingleVerbs):
    """Jobs in PostgreSQL.

    >>> PostgresDriver("postgresql://localhost/app?schema=jobs&retention=7d").retention
    datetime.timedelta(days=7)
    """

    def __init__(self, dsn: str) -> None:
        if find_spec("psycopg") is None:  # imported when a connection is made; who lacks it is told at once
            raise ModuleNotFoundError("No module named 'psycopg'", name="psycopg")
        self._dsn = dsn
        self._options = parse(dsn)
        self._schema = self._options.schema
        self._pool: PostgresPool | None = None
        self._hints: HintListener | None = None
        self._time = 0
        self._elders = LongTransactionWarning()
        self._slope = ScanStart()

    def __repr__(self) -> str:
        return f"PostgresDriver(schema={self._schema!r})"

    @property
    def location(self) -> str:
        """The DSN by which a process with another environment reaches the same database. It may hold a password."""
        return located(self._dsn)

    @property
    def retention(self) -> timedelta:
        return self._options.retention

    async def open(self) -> None:
        """Connect, check the server, and create the schema in an empty store."""
        await self._open(self._options.migrate)

    async def open_existing(self) -> None:
        """Connect to a database that has the schema already; StoreMissing where it has not, and nothing is made."""
        await self._open("manual")

    async def _open(self, mode: str) -> None:
        if self._pool is not None:
            return
        import psycopg

        pool = PostgresPool(self._options)
        try:
            async with pool.connection() as connection:
                with Deadline(pool.limit, connection):
                    await schema.check_server(connection)
                    found = await schema.found_in(connection, self._schema)
                with Deadline(_UPGRADE if found.version else pool.limit, connection):
                    await schema.ensure(connection, self._options, found, mode)
        except (psycopg.OperationalError, psycopg.InterfaceError, TimeoutError, OSError) as error:
            await pool.close()
            raise unavailable(self._options, error) from error
        except psycopg.Error as error:
            await pool.close()
            raise unusable(self._options, error) from error
        except BaseException:
            await pool.close()
            raise
        self._pool = pool
        self._hints = HintListener(pool, self._options)

    async def close(self) -> None:
        pool, hints = self._pool, self._hints
        self._pool = self._hints = None
        if hints is not None:
            await hints.close()
        if pool is not None:
            await pool.close()

    def sibling(self) -> PostgresDriver:
        return PostgresDriver(self._dsn)

    async def migrate(self) -> int:
        """Bring the schema to this version, whatever the DSN says; answers the version it had."""
        pool = PostgresPool(self._options)
        try:
            async with pool.connection() as connection:
                await schema.check_server(connection)
                return await schema.migrate(connection, self._options)
        finally:
            await pool.close()

    def migration_sql(self, found: int = 0) -> str:
        """The SQL that brings a schema of that version (0: none) to this one; empty if there is nothing to do."""
        return schema.script(self._schema, found)

    async def server_time(self) -> datetime:
        rows = await self._run(
            lambda: _rows(Statement("select (extract(epoch from clock_timestamp()) * 1000)::bigint"))
        )
        self._time = max(self._time, rows[0][0])
        return moment_of(self._time * 1000)

    # The four verbs

    async def enqueue(self, jobs: Sequence[JobRecord], now: datetime) -> builtins.list[Enqueued]:
        return await self._run(lambda: enqueue(self._schema, jobs, now, self._options.max_payload))

    async def reserve(
        self, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str = ""
    ) -> builtins.list[Reserved]:
        if worker:
            check_name(worker, "worker")
        names = [name for name in dict.fromkeys(queues) if "\x00" not in name]
        if limit < 1 or not names:
            return []
        limit = min(limit, _TURN)
        tokens = ",".join(sorted(new_tokens(limit)))  # given out in the order of the line: so it can be told from them
        ends = now + lease_for
        loop, sent = asyncio.get_running_loop(), 0
        one_queue = names[0] if len(names) == 1 else None
        times = ((micros(now), "bigint"), (micros(ends), "bigint"), (limit, "integer"), (worker, "text"))

        def make() -> Program[Any]:
            nonlocal sent
            sent += 1
            durable = (self._options.durable_reserve, "boolean")
            if one_queue is not None and scan_from is None and sent == 1:
                parameters = ((one_queue, "text"), *times, (tokens, "text"), durable)
                return _rows(call(self._schema, "reserve_queue", *parameters, columns=RESERVED_COLUMNS))
            function = "reserve_queues" if sent == 1 else "reserve_again"
            several = ((array(names), "text"), *times, (tokens, "text"), (scan_from, "text"), durable)
            return _rows(call(self._schema, function, *several, columns=RESERVED_COLUMNS))

        while True:
            scan_from, began = self._slope.floors(), loop.time()
            rows = await self._run(make, within=within_lease(lease_for))
            self._slope.heard(rows, scan_from, began)
            if rows or scan_from is None:
                break
            self._slope = ScanStart()
            sent = 0
        rows.sort(key=_TOKEN)
        if self._hints is not None:
            self._hints.reserved(len(rows))
        try:
            return [Reserved(from_reserved_row(row), Lease(row[0], row[1], row[-1], ends)) for row in rows]
        except DamagedRecord:
            return await self._reserve_whole(rows, queues, now, lease_for, limit, worker)

    async def _reserve_whole(
        self, rows: Any, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str
    ) -> builtins.list[Reserved]:
        """What was reserved, without the records that turn out to be damaged: these are set aside, and others taken."""
        whole: builtins.list[Reserved] = []
        broken: builtins.list[dict[str, str]] = []
        for row in rows:
            try:
                whole.append(Reserved(from_reserved_row(row), Lease(row[0], row[1], row[-1], now + lease_for)))
            except DamagedRecord as error:
                broken.append({"id": row[0], "token": row[-1], "reason": str(error)})
        await self._run(
            lambda: _rows(value(self._schema, "set_reserved_aside", (to_json(broken), "text"), (micros(now), "bigint")))
        )
        return whole + await self.reserve(queues, now, lease_for, limit - len(whole), worker)

    async def extend(
        self, leases: Sequence[Lease], now: datetime, lease_for: timedelta
    ) -> builtins.list[Lease | DriverError]:
        async def ask(held: Sequence[Lease]) -> builtins.list[Lease | DriverError]:
            return await self._run(lambda: extend(self._schema, held, now, lease_for), within=within_lease(lease_for))

        answers: builtins.list[Lease | DriverError] = []
        batch: dict[str, Lease] = {}
        for lease in [*leases, None]:
            if batch and (lease is None or lease.job_id in batch):
                held = list(batch.values())
                answers += await ask_again(held, await ask(held), ask, BESIDE_OTHERS if len(leases) > 1 else ALONE)
                batch = {}
            if lease is not None:
                batch[lease.job_id] = lease
        return answers

    async def settle(self, outcomes: Sequence[Outcome], now: datetime) -> builtins.list[TaskHarborError | None]:
        async def ask(batch: Sequence[Outcome]) -> builtins.list[TaskHarborError | None]:
            if len(batch) > 1 or plain(batch[0]):
                found, _ = await self._run(lambda: settle_plain(self._schema, batch, now))
                return found
            only: Any = batch[0]
            size = self._options.max_payload
            spawning = lambda: settle_spawning(self._schema, only, now, size)  # noqa: E731
            return [await self._run(spawning, transaction=True)]

        answers: builtins.list[TaskHarborError | None] = []
        for places in runs(outcomes):
            batch = [outcomes[place] for place in places]
            patience = BESIDE_OTHERS if len(outcomes) > 1 else ALONE
            answers += await ask_again(batch, await ask(batch), ask, patience)
        return answers

    # Beside the verbs

    async def results(self, ids: Sequence[str]) -> dict[str, bytes | None]:
        return await self._run(lambda: reading.results(self._schema, ids))

    async def release(self, worker: str, now: datetime, keep: Sequence[str] = ()) -> int:
        given = ((worker, "text"), (micros(now), "bigint"), (array(list(keep)), "text"))
        released, _ = await self._count("release", *given, columns="released, locked", patience=ALONE)
        return released  # what is left somebody is ending at this moment, or its lease ends

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        if self._hints is None:
            raise BackendUnavailable("the driver is not open")
        return await self._hints.wait(queues, timeout)

    # The caller's own transaction

    async def enqueue_on(self, connection: Any, jobs: Sequence[JobRecord], now: datetime) -> builtins.list[Enqueued]:
        """Store jobs on the caller's asynchronous connection, in the caller's transaction."""
        expect(connection, "postgresql", asynchronous=True)
        await caller_connection.check(connection, self._options)
        program = enqueue(self._schema, jobs, now, self._options.max_payload, gently=True)
        try:
            statement = next(program)
            while True:
                statement = program.send(await run(connection, statement.sql, statement.parameters))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def enqueue_on_sync(self, connection: Any, jobs: Sequence[JobRecord], now: datetime) -> builtins.list[Enqueued]:
        """The same on a synchronous connection."""
        expect(connection, "postgresql", asynchronous=False)
        caller_connection.check_sync(connection, self._options)
        answers: builtins.list[Enqueued] = drive_sync(
            connection, enqueue(self._schema, jobs, now, self._options.max_payload, gently=True)
        )
        return answers

    def transaction(self, lease: Lease) -> PostgresTransaction:
        return PostgresTransaction(self._opened, self._options, lease)

    def transaction_sync(self, lease: Lease) -> PostgresTransactionSync:
        return PostgresTransactionSync(self._options, lease)

    # Pause

    async def pause(self, queue: str) -> None:
        check_name(queue, "queue")
        await self._do(
            f"insert into {quoted(self._schema)}.queues (queue, paused) values (?, true) "
            "on conflict (queue) do update set paused = true",
            queue,
        )

    async def resume(self, queue: str) -> None:
        await self._do(f"update {quoted(self._schema)}.queues set paused = false where queue = ? and paused", queue)
        await self._do(f"select {named(self._schema, 'hint_queue')}(cast(? as text))", queue)

    async def is_paused(self, queue: str) -> bool:
        rows = await self._do(f"select 1 from {quoted(self._schema)}.queues where queue = ? and paused", queue)
        return bool(rows)

    # Admin

    async def inspect(self, id: str, now: datetime) -> JobInfo:
        return await self._run(lambda: reading.inspect(self._schema, id, now))

    async def list(
        self,
        *,
        now: datetime,
        queue: str | None = None,
        state: State | str | None = None,
        type: str | None = None,
        group: str | None = None,
        flow_id: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page:
        return await self._run(
            lambda: reading.list_jobs(
                self._schema,
                now,
                queue=queue,
                state=state,
                type=type,
                group=group,
                flow_id=flow_id,
                cursor=cursor,
                limit=limit,
            )
        )

    async def counts(self, now: datetime) -> dict[str, dict[str, int]]:
        return await self._run(lambda: reading.counts(self._schema, now))

    async def queues(self) -> builtins.list[str]:
        return await self._run(lambda: reading.queues(self._schema))

    async def requeue(
        self, ids: Sequence[str], now: datetime, run_at: datetime | None = None, reset_attempts: bool = False
    ) -> builtins.list[DriverError | None]:
        if run_at is not None:
            check_moment(run_at, "run_at")
        ticks = None if run_at is None else micros(run_at)
        given = ((micros(now), "bigint"), (ticks, "bigint"), (reset_attempts, "boolean"))
        return await self._decide("requeue", ids, *given, takes="requeue takes dlq and cancelled")

    async def cancel(self, ids: Sequence[str], now: datetime) -> builtins.list[DriverError | None]:
        given = ((micros(now), "bigint"), (CANCELLED_REASON, "text"))
        return await self._decide("cancel", ids, *given, takes="cancel takes what is not terminal")

    async def delete(self, ids: Sequence[str]) -> builtins.list[DriverError | None]:
        return await self._decide("delete_jobs", ids, takes="")

    async def prune(self, before: datetime, limit: int) -> int:
        return int(await self._one("prune", (micros(before), "bigint"), (min(limit, 2**31 - 1), "integer")))

    async def flow(self, flow_id: str, now: datetime) -> FlowInfo:
        return await self._run(lambda: reading.flow(self._schema, flow_id, now))

    async def cancel_flow(self, flow_id: str, now: datetime) -> int:
        if "\x00" in flow_id:
            return 0
        given = ((flow_id, "text"), (micros(now), "bigint"))
        cancelled, locked = await self._count("cancel_flow", *given, columns="cancelled, locked", patience=ADMIN)
        if locked is not None:
            raise JobLocked(f"flow {flow_id}: cancelled {cancelled} job(s), but {locked}; cancel it again later")
        return cancelled

    async def beat(self, info: WorkerInfo, now: datetime) -> None:
        check_name(info.worker, "worker")
        table = f"{quoted(self._schema)}.workers"
        await self._do(
            f"insert into {table} (worker, seen_at, info) values (?, ?, ?) "
            "on conflict (worker) do update set seen_at = excluded.seen_at, info = excluded.info",
            info.worker,
            micros(now),
            to_json(msgspec.structs.replace(info, seen_at=now)),
        )
        await self._do(f"delete from {table} where seen_at <= ?", micros(now - _REMEMBERED))
        await self._do(f"delete from {quoted(self._schema)}.waiting where said_at < now() - interval '5 minutes'")
        await self._run(self._elders.look)

    async def workers(self, now: datetime) -> builtins.list[WorkerInfo]:
        rows = await self._do(
            f"select info from {quoted(self._schema)}.workers where seen_at > ? order by worker",
            micros(now - WORKER_SILENCE),
        )
        return [noted for row in rows if (noted := _noted(row[0])) is not None]

    # How it is run

    async def _opened(self) -> PostgresPool:
        if self._pool is None:
            raise BackendUnavailable("the driver is not open")
        return self._pool

    async def _run(
        self,
        make: Callable[[], Program[T]],
        *,
        transaction: bool = False,
        repeat: bool = True,
        within: float | None = None,
    ) -> T:
        return await (await self._opened()).run(make, transaction=transaction, repeat=repeat, within=within)

    async def _do(self, sql: str, *parameters: Any) -> Any:
        return await self._run(lambda: _rows(Statement(sql, parameters)))

    async def _one(self, function: str, *parameters: tuple[Any, str]) -> Any:
        # These count, or refuse what is done already: sent twice they would answer something else.
        rows = await self._run(lambda: _rows(value(self._schema, function, *parameters)), repeat=False)
        return rows[0][0]

    async def _count(
        self, function: str, *parameters: tuple[Any, str], columns: str, patience: float
    ) -> tuple[int, JobLocked | None]:
        """How many jobs a function has changed, and what it still found locked after it was called for a while."""
        number = 0

        async def ask(_: Sequence[None]) -> builtins.list[JobLocked | None]:
            nonlocal number
            counted = lambda: _rows(call(self._schema, function, *parameters, columns=columns))  # noqa: E731
            rows = await self._run(counted, repeat=False)
            changed, locked = rows[0]
            number += changed
            return [JobLocked(f"{locked} more are locked by a transaction that is still open") if locked else None]

        (left,) = await ask_again([None], await ask([None]), ask, patience)
        return number, left

    async def _decide(
        self, function: str, ids: Sequence[str], *parameters: tuple[Any, str], takes: str
    ) -> builtins.list[DriverError | None]:
        async def ask(some: Sequence[str]) -> builtins.list[DriverError | None]:
            storable = [id if "\x00" not in id else "" for id in some]
            found = await self._one(function, (array(storable), "text"), *parameters)
            return _decided(some, found, takes)

        return await ask_again(ids, await ask(ids), ask, ADMIN)


def _noted(info: str) -> WorkerInfo | None:
    """What a worker says of itself; None if another program has spoiled it."""
    try:
        return _NOTED(info.encode())
    except (msgspec.MsgspecError, UnicodeError):
        return None


def _decided(ids: Sequence[str], found: Sequence[str | None], takes: str) -> list[DriverError | None]:
    answers: list[DriverError | None] = []
    for id, answer in zip(ids, found, strict=True):
        if answer is None:
            answers.append(None)
        elif answer == "unknown":
            answers.append(JobNotFound(f"no job {id}"))
        elif answer == "locked":
            answers.append(JobLocked.job(id))
        elif answer.startswith("needed "):
            answers.append(WrongState(f"job {id} is needed: {answer[7:]} unfinished job(s) depend on it"))
        else:
            answers.append(WrongState(f"job {id} is {answer}; {takes}"))
    return answers


def _rows(statement: Statement) -> Program[Any]:
    return (yield statement)
