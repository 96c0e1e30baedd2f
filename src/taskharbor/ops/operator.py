"""One person in front of one store: what they see and what they do, each checked against their access.

A front end makes one for each request. Reading goes through `read`, changing through `actions`; nothing else is needed,
so nothing can be forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from taskharbor.client.store_calls import StoreCalls
from taskharbor.drivers.base import Driver
from taskharbor.drivers.dsn import redact as without_password
from taskharbor.model.errors import BackendUnavailable
from taskharbor.ops.access import Access, Permission
from taskharbor.ops.actions import Actions

if TYPE_CHECKING:
    from taskharbor.harbor import Harbor
    from taskharbor.store.session import Store

T = TypeVar("T")

READ_TIMEOUT_S = 2.0  # for all calls of one page: a person waits


@dataclass(frozen=True, repr=False)
class StoreReading:
    """What reading needs: the opened driver, the store's time, and what the application declares."""

    driver: Driver
    now: datetime
    store: Store
    access: Access
    place: str  # the store's address, without a password
    declared: frozenset[str] | None  # the types of its tasks; None: not known

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
        """What `read` finds in the store; BackendUnavailable if that takes too long."""
        return await read_as(self._harbor, self._access, read, timeout or self._timeout)


async def read_as(harbor: Harbor, access: Access, read: Callable[[StoreReading], Awaitable[T]], timeout: float) -> T:
    """What `read` finds in the store for a person; BackendUnavailable if that takes too long."""
    access.check(Permission.VIEW)
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            store = harbor._store
            driver = await store.awaited.driver(0)
            declared = frozenset(harbor.tasks) or None
            return await read(StoreReading(driver, store.clock.now(), store, access, place_of(harbor), declared))
    except TimeoutError:
        if not limit.expired():
            raise
        raise BackendUnavailable(f"the store did not answer within {timeout:g} s") from None


def place_of(harbor: Harbor) -> str:
    """The store's address, without a password."""
    dsn = harbor._store.dsn
    return type(harbor.driver).__name__ if dsn is None else without_password(dsn)
