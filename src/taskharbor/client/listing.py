"""Listings as values: filters that read nothing until they are iterated, and then page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

import msgspec

from taskharbor.drivers.base import Driver
from taskharbor.model.audit import AuditEntry, read_entry
from taskharbor.model.bounds import check_name
from taskharbor.model.job import FlowInfo, FlowStatus
from taskharbor.model.times import duration, moment
from taskharbor.model.validation import one_of
from taskharbor.store.access import refuse_on_loop
from taskharbor.store.flows import list_flows
from taskharbor.store.pages import AnyPage, ItemsPage, read_items
from taskharbor.store.schedules import ScheduleInfo, info_of

if TYPE_CHECKING:
    from taskharbor.store.access import StoreCall
    from taskharbor.store.session import Store

T = TypeVar("T")

MAX_PAGES = 100
"""How many pages `count`, `ids` and `preview` read at most: with what a store examines for a page, a million jobs."""


Bound: TypeAlias = datetime | timedelta | None
"""A bound of a filter: a moment, a span before the present, or none."""


class Listing(Generic[T]):
    """What can be iterated, `for` and `async for`, again and again: each time the store is read anew."""

    __slots__ = ()

    if TYPE_CHECKING:
        _store: Store

    async def _read(self, driver: Driver, now: datetime, cursor: str | None, limit: int, whole: bool) -> AnyPage[T]:
        """One page; `whole`: with everything that the records hold."""
        raise NotImplementedError

    _name: ClassVar[str]
    """How errors name it, as in `harbor.jobs`."""
    _page_size: ClassVar[int] = 100

    def __repr__(self) -> str:
        fields: tuple[str, ...] = getattr(self, "__struct_fields__", ())
        given = [f"{name}={value!r}" for name in fields[1:] if (value := getattr(self, name)) not in (None, False)]
        return f"{type(self).__name__}({', '.join(given)})"

    def __iter__(self) -> Iterator[T]:
        refuse_on_loop(f"harbor.{self._name}", f"async for … in harbor.{self._name}(...)")
        return self._items()

    def _items(self) -> Iterator[T]:
        cursor: str | None = None
        while True:
            page = self._blocking_page(cursor)
            yield from page.items
            cursor = page.cursor
            if cursor is None:
                return

    def _blocking_page(self, cursor: str | None) -> AnyPage[T]:
        return self._store.blocking(
            lambda call: self._page(call, cursor),
            self._name,
            f"harbor.{self._name}",
            instead=f"async for … in harbor.{self._name}(...)",
        )

    async def __aiter__(self) -> AsyncIterator[T]:
        cursor: str | None = None
        while True:
            page = await self._page(self._store.call(self._name), cursor)
            for item in page.items:
                yield item
            cursor = page.cursor
            if cursor is None:
                return

    async def _page(self, call: StoreCall, cursor: str | None, limit: int = 0, whole: bool = True) -> AnyPage[T]:
        limit = limit or self._page_size
        return await call.ask(lambda driver: self._read(driver, call.now(), cursor, limit, whole))

    async def _some(self, call: StoreCall, most: int, page: int) -> tuple[list[T], bool]:
        """Up to `most` items without payloads, and whether there may be more; reads at most MAX_PAGES pages."""

        async def read(cursor: str | None, limit: int) -> AnyPage[T]:
            return await self._page(call.again(self._name), cursor, limit, whole=False)

        items, cursor = await read_items(read, page=page, most=most, calls=MAX_PAGES)
        return items, cursor is not None


class Flows(Listing[FlowInfo], msgspec.Struct, frozen=True, kw_only=True):
    """A filter for flows, made by `harbor.flows(…)`: a value, which reads nothing until it is iterated, with `for` or
    `async for`. Its fields are the options of `harbor.flows`.

    Each `FlowInfo` has an id, a status and times, without nodes and edges: `harbor.flow(id)` reads those. A job outside
    of a flow that the flow waits for does not count for its status here.
    """

    _name: ClassVar[str] = "flows"

    _store: Store
    status: FlowStatus | None = None
    since: datetime | None = None
    until: datetime | None = None
    newest: bool = False

    __repr__ = Listing.__repr__

    async def _read(
        self, driver: Driver, now: datetime, cursor: str | None, limit: int, whole: bool
    ) -> AnyPage[FlowInfo]:
        return await list_flows(
            driver,
            now=now,
            status=self.status,
            since=self.since,
            until=self.until,
            order="-id" if self.newest else "id",
            cursor=cursor,
            limit=limit,
        )


def checked_flows(store: Store, *, status: Any, since: Bound, until: Bound, newest: Any) -> Flows:
    """What a caller gave, as a filter; TypeError or ValueError for a value that makes no sense."""
    check_flag(newest, "newest")
    return Flows(
        _store=store,
        status=None if status is None else one_of(FlowStatus, status, "status"),
        since=bound(store, since, "since"),
        until=bound(store, until, "until"),
        newest=newest,
    )


class Audit(Listing[AuditEntry], msgspec.Struct, frozen=True, kw_only=True):
    """Entries of the audit, the newest first: a value, made by `harbor.audit(…)`, which reads nothing until it is
    iterated, with `for` or `async for`. Its fields are the options of `harbor.audit`."""

    _name: ClassVar[str] = "audit"

    _store: Store
    since: datetime | None = None
    until: datetime | None = None
    by: str | None = None

    __repr__ = Listing.__repr__

    async def _read(
        self, driver: Driver, now: datetime, cursor: str | None, limit: int, whole: bool
    ) -> AnyPage[AuditEntry]:
        page = await driver.audit(since=self.since, until=self.until, by=self.by, cursor=cursor, limit=limit)
        return ItemsPage([read_entry(stored) for stored in page.items], page.cursor)


def checked_audit(store: Store, *, since: Bound, until: Bound, by: str | None) -> Audit:
    """What a caller gave, as a filter; TypeError or ValueError for a value that makes no sense."""
    if by is not None:
        check_name(by, "by")
    return Audit(
        _store=store,
        since=bound(store, since, "since"),
        until=bound(store, until, "until"),
        by=by,
    )


class ScheduleListing(Listing[ScheduleInfo], msgspec.Struct, frozen=True, kw_only=True):
    """Schedules in the order of their names: a value to iterate, `for` or `async for`; reads nothing until then."""

    _name: ClassVar[str] = "schedules.list"

    _store: Store
    queue: str | None = None

    __repr__ = Listing.__repr__

    async def _read(
        self, driver: Driver, now: datetime, cursor: str | None, limit: int, whole: bool
    ) -> AnyPage[ScheduleInfo]:
        page = await driver.schedules(queue=self.queue, cursor=cursor, limit=limit)
        return ItemsPage([info_of(row) for row in page.items], page.cursor)


def bound(store: Store, value: Bound, name: str) -> datetime | None:
    """A bound of a filter as a moment; a span is that much before the present."""
    if isinstance(value, timedelta):
        return moment(store.clock.now() - duration(value, name), name)
    return None if value is None else moment(value, name)


def check_flag(value: Any, name: str) -> None:
    """TypeError unless the value is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}: expected True or False, got {type(value).__name__}")
