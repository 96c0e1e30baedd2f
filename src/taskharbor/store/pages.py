"""Listings, page by page: the loop over cursors that all front ends share.

A page is read with a cursor, which is a place among the ids. So a job that changes or vanishes between two pages spoils
nothing: it is listed as it is when its page is read, or not at all. A page may be short, even empty, because the store
examined enough records for one call; only a cursor of None is the end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from taskharbor.model.clock import Clock

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

FILL_S = 0.5  # what a page for a person may take: no call begins later than this after the first one
MAX_FILL_CALLS = 10  # of a page for a person: what is rare is found, and a command still ends


class AnyPage(Protocol[T_co]):
    """A page of jobs, flows, schedules or audit entries."""

    @property
    def items(self) -> Sequence[T_co]: ...

    @property
    def cursor(self) -> str | None: ...


class ItemsPage(NamedTuple, Generic[T]):
    """Some items, and the cursor after them; None: these were the last."""

    items: Sequence[T]
    cursor: str | None


async def read_items(
    read: Callable[..., Awaitable[AnyPage[T]]],
    *,
    page: int,
    most: int | None = None,
    calls: int | None = None,
    is_late: Callable[[], bool] | None = None,
    cursor: str | None = None,
    **query: Any,
) -> tuple[list[T], str | None]:
    """The items of several pages, and the cursor after them; None: these were the last.

    It stops at `most` items, after that number of `calls`, or when `is_late` returns True; else at the last page.
    """
    items: list[T] = []
    made = 0
    while True:
        limit = page if most is None else min(page, most - len(items))
        found = await read(cursor=cursor, limit=limit, **query)
        items += found.items
        cursor, made = found.cursor, made + 1
        if cursor is None or (most is not None and len(items) >= most):
            return items, cursor
        if made == calls or (is_late is not None and is_late()):
            return items, cursor


async def fill_page(
    read: Callable[..., Awaitable[AnyPage[T]]], limit: int, clock: Clock | None = None, **query: Any
) -> ItemsPage[T]:
    """A page for a person, filled up over at most MAX_FILL_CALLS calls; with a `clock`, for at most FILL_S by it."""
    ends = None if clock is None else clock.monotonic() + FILL_S

    def is_late() -> bool:
        return clock is not None and ends is not None and clock.monotonic() > ends

    return ItemsPage(*await read_items(read, page=limit, most=limit, calls=MAX_FILL_CALLS, is_late=is_late, **query))
