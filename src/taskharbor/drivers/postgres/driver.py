"""The Postgres driver: the calls of the contract, each a program that runs on a pooled connection.

Most of a call happens in the functions of sql/functions: the server does it in one round trip, so that no other call
sees it half done, and a connection that is lost in the middle leaves all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec

from taskharbor.drivers.base import WORKER_FORGOTTEN_AFTER, Driver, within_lease
from taskharbor.drivers.connections import expect, run
from taskharbor.drivers.postgres import caller_connection, long_transactions, schema
from taskharbor.drivers.postgres.admin import PostgresAdmin
from taskharbor.drivers.postgres.deadline import Deadline
from taskharbor.drivers.postgres.enqueue import enqueue
from taskharbor.drivers.postgres.handler_pool import HandlerPool
from taskharbor.drivers.postgres.long_transactions import LongTransactionWarning
from taskharbor.drivers.postgres.options import located, parse
from taskharbor.drivers.postgres.pool import PostgresPool
from taskharbor.drivers.postgres.reading import PostgresReading
from taskharbor.drivers.postgres.records import to_json
from taskharbor.drivers.postgres.reserve import Reserving
from taskharbor.drivers.postgres.schedules import PostgresSchedules
from taskharbor.drivers.postgres.settle import batches, extend, is_plain, settle_plain, settle_spawning
from taskharbor.drivers.postgres.statement import Program, array, drive, drive_sync
from taskharbor.drivers.postgres.steps import save
from taskharbor.drivers.postgres.tries import ALONE_S, BESIDE_OTHERS_S, ask_again, not_opened
from taskharbor.drivers.postgres.wait import HintListener
from taskharbor.drivers.refusals import bad_notes
from taskharbor.drivers.slices import prune_in_slices
from taskharbor.drivers.unstorable import accepts_any_name
from taskharbor.model.bounds import check_name
from taskharbor.model.errors import BackendUnavailable, DriverError, TaskHarborError
from taskharbor.model.job import JobRecord, WorkerInfo
from taskharbor.model.lease import Enqueued, Lease, Reserved
from taskharbor.model.outcome import Outcome
from taskharbor.model.times import MICROSECOND, to_us

if TYPE_CHECKING:
    from taskharbor.drivers.postgres.blocking import PostgresBlocking
    from taskharbor.drivers.postgres.transaction import PostgresTransaction, PostgresTransactionSync

_MIGRATION_S = 3600.0  # for a store that is not empty


@accepts_any_name
class PostgresDriver(PostgresReading, PostgresSchedules, PostgresAdmin):
    """Jobs in PostgreSQL.

    >>> PostgresDriver("postgresql://localhost/app?schema=jobs&retention=7d").retention
    datetime.timedelta(days=7)
    """

    def __init__(self, dsn: str) -> None:
        if find_spec("psycopg") is None:  # it is imported with the first connection; say at once that it is missing
            raise ModuleNotFoundError("No module named 'psycopg'", name="psycopg")
        super().__init__(parse(dsn))
        self._dsn = dsn
        self._pool: PostgresPool | None = None
        self._hints: HintListener | None = None
        self._long_transactions = LongTransactionWarning()
        self._reserving = Reserving(self._options)
        self._handlers = HandlerPool(self._options.pool_size)

    def __repr__(self) -> str:
        return f"PostgresDriver(schema={self._schema!r})"

    @property
    def location(self) -> str:
        """The DSN by which a process with another environment reaches the same database. It may hold a password."""
        return located(self._dsn)

    @property
    def retention(self) -> timedelta:
        return self._options.retention

    # Life cycle

    async def open(self) -> None:
        """Connect, check the server, and create the schema in an empty store."""
        await self._open(self._options.migrate)

    async def open_existing(self) -> None:
        """Connect to a database that has the schema already; StoreMissing if it has not, and nothing is created."""
        await self._open("manual")

    async def _open(self, mode: str) -> None:
        if self._pool is not None:
            return
        import psycopg

        pool = PostgresPool(self._options)
        try:
            async with pool.connection() as pooled:
                connection = pooled.for_psycopg()
                with Deadline(pool.shared.limit, connection):
                    await schema.check_server(connection)
                    found = await schema.found_in(connection, self._schema)
                with Deadline(_MIGRATION_S if found.version else pool.shared.limit, connection):
                    await schema.ensure(connection, self._options, found, mode)
        except (psycopg.Error, TimeoutError, OSError) as error:
            await pool.close()
            raise not_opened(self._options, error) from error
        except BaseException:
            await pool.close()
            raise
        self._pool = pool
        self._hints = HintListener(pool, self._options)

    async def close(self) -> None:
        pool, hints = self._pool, self._hints
        self._pool = self._hints = None
        self._handlers.close()
        if hints is not None:
            await hints.close()
        if pool is not None:
            await pool.close()

    def sibling(self) -> PostgresDriver:
        return PostgresDriver(self._dsn)

    def blocking(self) -> PostgresBlocking:
        from taskharbor.drivers.postgres.blocking import PostgresBlocking

        return PostgresBlocking(self._dsn)

    def on_connection(self, connection: Callable[[], Any], lock: AbstractContextManager[Any] | None = None) -> Driver:
        """A driver whose calls are a part of the transaction that is open on the caller's connection."""
        from taskharbor.drivers.postgres.on_connection import PostgresOnConnection

        return PostgresOnConnection(self._dsn, connection, lock)

    async def migrate(self) -> int:
        """Bring the schema to this version, whatever the DSN says; returns the number it had."""
        pool = PostgresPool(self._options)
        try:
            async with pool.connection() as pooled:
                connection = pooled.for_psycopg()
                await schema.check_server(connection)
                return await schema.migrate(connection, self._options)
        finally:
            await pool.close()

    def migration_sql(self, found: int = 0) -> str:
        """The SQL that brings a schema from number `found` (0: none) to this one; empty if there is nothing to do."""
        return schema.script(self._schema, found)

    def _runner(self) -> PostgresPool:
        if self._pool is None:
            raise BackendUnavailable("the driver is not open")
        return self._pool

    async def enqueue(self, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        return await self._runner().run(lambda: enqueue(self._schema, jobs, now, self._options.max_payload))

    # What workers do

    async def reserve(
        self, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str = ""
    ) -> list[Reserved]:
        if worker:
            check_name(worker, "worker")
        reserved = await self._reserving.reserve(self._runner(), queues, now, lease_for, limit, worker)
        if self._hints is not None:
            self._hints.reserved(len(reserved))
        return reserved

    async def extend(
        self,
        leases: Sequence[Lease],
        now: datetime,
        lease_for: timedelta,
        notes: Mapping[str, bytes] | None = None,
    ) -> list[Lease | DriverError]:
        runner = self._runner()
        bad = bad_notes(leases, notes) if notes else {}

        async def ask(batch: Sequence[Lease]) -> list[Any]:
            return await runner.run(
                lambda: extend(self._schema, batch, now, lease_for, notes or {}), within=within_lease(lease_for)
            )

        patience = BESIDE_OTHERS_S if len(leases) > 1 else ALONE_S
        results: list[Any] = []
        good = [lease for place, lease in enumerate(leases) if place not in bad]
        for batch in batches(good, lambda lease: lease.job_id):
            results += await ask_again(batch, ask, patience, runner)
        for place in sorted(bad):
            results.insert(place, bad[place])
        return results

    async def save(self, lease: Lease, name: str, value: bytes, now: datetime) -> None:
        refused = await self._runner().run(lambda: save(self._schema, lease, name, value, now))
        if refused is not None:
            raise refused

    async def settle(self, outcomes: Sequence[Outcome], now: datetime) -> list[TaskHarborError | None]:
        runner = self._runner()
        # A server that hangs must not hold up the next outcomes until it is known to: this one may be sent again.
        within = within_lease(max((each.lease.expires_at for each in outcomes), default=now) - now)

        async def ask(batch: Sequence[Outcome]) -> list[TaskHarborError | None]:
            if len(batch) > 1 or is_plain(batch[0]):
                results, _ = await runner.run(lambda: settle_plain(self._schema, batch, now), within=within)
                return results
            only: Any = batch[0]
            return [
                await runner.run(
                    lambda: settle_spawning(self._schema, only, now, self._options.max_payload),
                    transaction=True,
                    within=within,
                )
            ]

        patience = BESIDE_OTHERS_S if len(outcomes) > 1 else ALONE_S
        results: list[TaskHarborError | None] = []
        for batch in batches(outcomes, lambda outcome: outcome.lease.job_id, lambda outcome: not is_plain(outcome)):
            results += await ask_again(batch, ask, patience, runner)
        return results

    async def release(self, worker: str, now: datetime, keep: Sequence[str] = ()) -> int:
        given = (worker, to_us(now), array(list(keep)))
        released, _ = await self._until_unlocked(ALONE_S, "release(text, bigint, text)", *given)
        return released  # another call ends the others at this moment, or their leases end

    def is_hinted(self) -> bool:
        return self._hints is not None and self._hints.is_listening

    def is_looking(self) -> bool:
        return self._hints is None or self._hints.sweeps or not self._hints.is_listening

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        if self._hints is None:
            raise BackendUnavailable("the driver is not open")
        return await self._hints.wait(queues, timeout)

    async def beat(self, info: WorkerInfo, now: datetime) -> None:
        check_name(info.worker, "worker")
        beat = (info.worker, to_us(now), to_json(msgspec.structs.replace(info, seen_at=now)))
        given = (*beat, to_us(now - WORKER_FORGOTTEN_AFTER), long_transactions.OLD_S)
        oldest = await self._call("beat(text, bigint, text, bigint, integer)", *given, columns="pid, seconds, state")
        self._long_transactions.note(oldest)
        self._handlers.trim()

    # The caller's own transaction

    async def enqueue_on(self, connection: Any, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        """Store jobs on the caller's asynchronous connection, in the caller's transaction."""
        expect(connection, "postgresql", asynchronous=True)
        await caller_connection.check(connection, self._options)
        return await drive(self._enqueue_for_caller(jobs, now), partial(run, connection))

    def enqueue_on_sync(self, connection: Any, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        """The same on a synchronous connection."""
        expect(connection, "postgresql", asynchronous=False)
        caller_connection.check_sync(connection, self._options)
        return drive_sync(connection, self._enqueue_for_caller(jobs, now))

    def _enqueue_for_caller(self, jobs: Sequence[JobRecord], now: datetime) -> Program[list[Enqueued]]:
        return enqueue(self._schema, jobs, now, self._options.max_payload, callers_transaction=True)

    def transaction(self, lease: Lease) -> PostgresTransaction:
        from taskharbor.drivers.postgres.transaction import PostgresTransaction

        self._runner()  # raises if the driver is not open
        return PostgresTransaction(self._options, lease, self._handlers)

    def transaction_sync(self, lease: Lease) -> PostgresTransactionSync:
        from taskharbor.drivers.postgres.transaction import PostgresTransactionSync

        return PostgresTransactionSync(self._options, lease, self._handlers)

    # Administration

    async def prune(self, before: datetime, limit: int) -> int:
        kept_before = to_us(before) + self.retention // MICROSECOND

        async def some(limit: int) -> int:
            return int(await self._value("prune(bigint, bigint, integer)", to_us(before), kept_before, limit))

        return await prune_in_slices(limit, some)
