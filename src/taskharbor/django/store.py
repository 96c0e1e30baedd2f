"""The store of a Django harbor: it follows the address of Django's database, and joins Django's transactions.

Where the store is a database of Django's, blocking calls use Django's own connection of the calling thread, as a query
of the ORM would. A job is enqueued in the transaction that is open there, or else in one of its own; reads see what
that transaction has written. Awaited calls read on connections of their own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from asgiref.sync import sync_to_async
from django.db import DEFAULT_DB_ALIAS, connections, transaction

from taskharbor.django.address import address_of, raw_connection
from taskharbor.django.settings import BackendOptions
from taskharbor.drivers.base import Driver, SqlDriver
from taskharbor.drivers.registry import open_driver
from taskharbor.model.clock import Clock
from taskharbor.model.errors import StoreMissing
from taskharbor.model.lease import Enqueued
from taskharbor.store.access import AwaitedAccess, BlockingAccess, StoreAccess, refuse_on_loop
from taskharbor.store.enqueue import PrepareRecords
from taskharbor.store.open_drivers import DriverPerLoop
from taskharbor.store.session import Store


def driver_on(
    options: BackendOptions, find: Callable[[], Any], lock: AbstractContextManager[Any] | None = None
) -> Driver:
    """A driver for the store of a backend whose calls run on a connection of Django's, which `find` returns.

    `lock`: held during each call, if other threads use that connection.
    """
    dsn = address_of(options)
    if dsn is None:
        from taskharbor.drivers.sqlite.caller_connection import SqliteOnConnection
        from taskharbor.drivers.sqlite.options import IN_MEMORY, SqliteOptions

        return SqliteOnConnection(SqliteOptions(IN_MEMORY), lambda: raw_connection(find()), lock)
    driver = open_driver(dsn)
    if not isinstance(driver, SqlDriver):
        raise TypeError(f"expected a driver on a SQL store, got {type(driver).__name__}")
    return driver.on_connection(lambda: raw_connection(find()), lock)


class FollowingDrivers(DriverPerLoop):
    """The drivers of a store whose address may change: in tests Django gives its databases other names."""

    def __init__(self, options: BackendOptions, clock: Clock) -> None:
        self._options = options
        self._address: str | None = ""
        super().__init__("memory://", clock)

    def __repr__(self) -> str:
        try:
            self._follow_address()
        except Exception:  # the settings are wrong: a repr must not say so
            return "'…'"
        return "'sqlite in memory'" if self._address is None else super().__repr__()

    def _follow_address(self) -> None:
        address = address_of(self._options)
        if address == self._address:
            return
        self.close_blocking()
        with self._lock:
            self._address = address
            self._driver, self._is_taken, self._only_awaited = None, False, False
            self._by_loop = {}  # drivers of a database that is gone: their connections go with their loops
            if address is None:
                self._source = self._driver = driver_on(self._options, lambda: connections[self._options.database])
            else:
                self._source = address

    @property
    def dsn(self) -> str | None:
        self._follow_address()
        return super().dsn

    @property
    def driver(self) -> Driver:
        self._follow_address()
        return super().driver

    async def get(self) -> Driver:
        self._follow_address()
        return await super().get()

    def blocking(self) -> BlockingAccess | None:
        self._follow_address()
        return super().blocking()

    def unopened(self) -> Driver:
        self._follow_address()
        return super().unopened()


class ConnectionAccess:
    """The way to a store over one connection of Django's, on the calling thread."""

    def __init__(self, driver: Driver) -> None:
        self._driver: Any = driver

    def time(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - its coroutines never suspend: they block, as the caller asked

    async def driver(self, deadline: float) -> Driver:
        driver: Driver = self._driver
        return driver

    def limit(self, deadline: float) -> asyncio.Timeout | None:
        return None

    def closings(self) -> int:
        return 0

    def is_closed(self) -> bool:
        return False


class DjangoStore(Store):
    """The store behind a backend of TASKS."""

    def __init__(self, backend: BackendOptions, **options: Any) -> None:
        self.backend = backend
        super().__init__(None, **options)

    def use(self, driver_or_dsn: Driver | str | None) -> None:
        """Use another store from now on; None: the one that the settings name."""
        if driver_or_dsn is not None:
            super().use(driver_or_dsn)
            return
        self.drivers = FollowingDrivers(self.backend, self.clock)
        self.awaited: StoreAccess = AwaitedAccess(self.drivers)

    @property
    def joins_transactions(self) -> bool:
        """Whether jobs are stored on Django's own connection."""
        return self.backend.database is not None and isinstance(self.drivers, FollowingDrivers)

    def enqueue(self, prepare: PrepareRecords, connection: Any, method: str) -> list[Enqueued]:
        if connection is not None or not self.joins_transactions:
            return super().enqueue(prepare, connection, method)
        refuse_on_loop(method)
        with in_transaction(self.backend.database) as mine:
            try:
                return super().enqueue(prepare, mine, method)
            except StoreMissing as error:
                raise self._not_migrated() from error

    def _not_migrated(self) -> StoreMissing:
        database = self.backend.database
        command = "migrate" if self.backend.migrate == "auto" else "harbor migrate"
        option = "" if database == DEFAULT_DB_ALIAS or command != "migrate" else f" --database {database}"
        return StoreMissing(
            f"the database {database!r} has no tables of TaskHarbor yet; run `python manage.py {command}{option}`"
        )

    async def aenqueue(self, prepare: PrepareRecords, connection: Any) -> list[Enqueued]:
        if connection is not None or not self.joins_transactions:
            return await super().aenqueue(prepare, connection)
        stored: list[Enqueued] = await sync_to_async(self.enqueue, thread_sensitive=True)(
            prepare, None, "task.aenqueue"
        )
        return stored

    def _blocking_access(self) -> StoreAccess | None:
        if not self.joins_transactions:
            return self.drivers.blocking()
        connection = connections[self.backend.database]
        return ConnectionAccess(driver_on(self.backend, lambda: connection))


@contextmanager
def in_transaction(alias: str | None) -> Iterator[Any]:
    """Django's connection of this thread, inside a transaction: the one that is open, or one for this block."""
    connection = connections[alias]
    if connection.in_atomic_block or not connection.get_autocommit():
        yield connection
        return
    with transaction.atomic(using=alias):
        yield connection
