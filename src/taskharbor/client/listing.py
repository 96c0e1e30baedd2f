"""Listings as values: a filter that reads nothing until it is iterated, and then page by page.

A page is read with a cursor, which is a place among the ids. So a job that changes or vanishes between two pages spoils
nothing: it is listed as it is when its page is read, or not at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from taskharbor.client.budget import Budget
from taskharbor.client.portal import refuse_on_loop

if TYPE_CHECKING:
    from taskharbor.client.client import Client

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

MAX_PAGES = 100
"""How many pages `count`, `ids` and `preview` read at most: with what a store looks at for a page, a million jobs."""


class Listing(Generic[T]):
    """What can be iterated, `for` and `async for`, again and again: each time the store is read anew."""

    __slots__ = ()

    if TYPE_CHECKING:
        _client: Client

    async def _page(
        self, budget: Budget, cursor: str | None, limit: int, whole: bool
    ) -> tuple[Sequence[T], str | None]:
        """One page, and the cursor of the next; `whole`: with everything that the records hold."""
        raise NotImplementedError

    _name: ClassVar[str]
    """How errors name it, as in `harbor.jobs`."""
    _page_size: ClassVar[int]

    def __iter__(self) -> Iterator[T]:
        refuse_on_loop(f"harbor.{self._name}", f"async for … in harbor.{self._name}(...)")
        return self._items()

    def _items(self) -> Iterator[T]:
        cursor: str | None = None
        while True:
            items, cursor = self._blocking_page(cursor)
            yield from items
            if cursor is None:
                return

    def _blocking_page(self, cursor: str | None) -> tuple[Sequence[T], str | None]:
        return self._client.blocking(
            lambda access: self._page(self._client.budget(access, self._name), cursor, self._page_size, True),
            f"harbor.{self._name}",
            instead=f"async for … in harbor.{self._name}(...)",
        )

    async def __aiter__(self) -> AsyncIterator[T]:
        cursor: str | None = None
        while True:
            budget = self._client.budget(self._client.awaited, self._name)
            items, cursor = await self._page(budget, cursor, self._page_size, True)
            for item in items:
                yield item
            if cursor is None:
                return

    async def _some(self, budget: Budget, most: int, page: int) -> tuple[list[T], bool]:
        """Up to `most` items without payloads, and whether there may be more; reads at most MAX_PAGES pages."""
        found: list[T] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            items, cursor = await self._page(budget.again(self._name), cursor, min(page, most - len(found)), False)
            found += items
            if cursor is None or len(found) >= most:
                break
        return found, cursor is not None


def at_least_one(value: Any, name: str) -> int:
    """A number of things to read, or TypeError / ValueError."""
    if type(value) is not int:
        raise TypeError(f"{name}: expected a whole number, got {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name}: expected 1 or more, got {value}")
    return value


def one_of(kind: type[E], value: Any, name: str) -> E:
    """A member of an enumeration by its value, or ValueError that names all of them."""
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(str(member) for member in kind)
        raise ValueError(f"{name}: expected one of {known}, got {value!r}") from None
