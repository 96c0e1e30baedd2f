"""One person in front of one store: what they see and what they do, each checked against their access.

A front end makes one for each request. Reading goes through `read`, changing through `actions`; nothing else is needed,
so nothing can be forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from taskharbor.client.store_calls import StoreCalls
from taskharbor.drivers.base import Driver
from taskharbor.drivers.dsn import redact as without_password
from taskharbor.model.errors import BackendUnavailable, TaskHarborError
from taskharbor.ops.access import Access, Permission
from taskharbor.ops.actions import Actions

if TYPE_CHECKING:
    from taskharbor.harbor import Harbor
    from taskharbor.store.session import Store

T = TypeVar("T")

READ_TIMEOUT_S = 2.0  # for all calls of one page: a person waits
PART_MARGIN_S = 0.2  # before that limit, a part of a page that is not there is left out
ALIVE_TIMEOUT_S = 0.5  # for the question whether a store answers at all


class PageTooSlow(TaskHarborError):
    """A page took too long to read, from a store that answers."""


@dataclass(frozen=True, repr=False)
class StoreReading:
    """What reading needs: the opened driver, the store's time, and what the application declares."""

    driver: Driver
    now: datetime
    store: Store
    access: Access
    place: str  # the store's address, without a password
    declared: frozenset[str] | None  # the types of its tasks; None: not known
    deadline: float  # by the loop's time
    late: list[str] = field(default_factory=list)  # the parts that took too long

    async def part(self, name: str, read: Awaitable[T], otherwise: T) -> T:
        """A part of a page that is shown without it if reading it takes too long."""
        limit = asyncio.timeout_at(self.deadline - PART_MARGIN_S)
        try:
            async with limit:
                return await read
        except TimeoutError:
            if not limit.expired():
                raise
            self.late.append(name)
            return otherwise

    @property
    def actions(self) -> Actions:
        """What this person may do beside reading: a preview needs it."""
        return Actions(self.store, self.access)

    @property
    def client(self) -> StoreCalls:
        """The store as a harbor shows it: for filters."""
        return StoreCalls._of(self.store)

    @property
    def harbor_name(self) -> str:
        """How texts name the application."""
        return "this application" if self.declared is not None else ""


class OperatorSession:
    """A store as one person may see and change it."""

    def __init__(self, harbor: Harbor, access: Access, *, timeout: float = READ_TIMEOUT_S) -> None:
        self._harbor = harbor
        self._access = access
        self._timeout = timeout

    @property
    def access(self) -> Access:
        """What this person may do."""
        return self._access

    @property
    def actions(self) -> Actions:
        """What this person does; each action is checked and is in the audit."""
        return Actions(self._harbor._store, self._access)

    async def read(self, read: Callable[[StoreReading], Awaitable[T]], timeout: float | None = None) -> T:
        """What `read` finds in the store; PageTooSlow if that takes too long."""
        return await read_as(self._harbor, self._access, read, timeout or self._timeout)


async def read_as(harbor: Harbor, access: Access, read: Callable[[StoreReading], Awaitable[T]], timeout: float) -> T:
    """What `read` finds in the store for a person; PageTooSlow if that takes too long, and BackendUnavailable if the
    store does not answer at all."""
    access.check(Permission.VIEW)
    deadline = asyncio.get_running_loop().time() + timeout
    limit, store, driver = asyncio.timeout_at(deadline), harbor._store, None
    try:
        async with limit:
            driver = await store.awaited.driver(0)
            declared = frozenset(harbor.tasks) or None
            return await read(
                StoreReading(driver, store.clock.now(), store, access, place_of(harbor), declared, deadline)
            )
    except TimeoutError:
        if not limit.expired():
            raise
        if driver is not None and await _answers(driver):
            raise PageTooSlow(f"this page took longer than {timeout:g} s; the store answers, but slowly") from None
        raise BackendUnavailable(f"the store did not answer within {timeout:g} s") from None


async def _answers(driver: Driver) -> bool:
    try:
        async with asyncio.timeout(ALIVE_TIMEOUT_S):
            await driver.server_time()
    except (TimeoutError, TaskHarborError, OSError):
        return False
    return True


def place_of(harbor: Harbor) -> str:
    """The store's address, without a password."""
    dsn = harbor._store.dsn
    return type(harbor.driver).__name__ if dsn is None else without_password(dsn)
