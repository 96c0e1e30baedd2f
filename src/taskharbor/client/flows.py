"""Flows by filter: `harbor.flows(…)`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

import msgspec

from taskharbor.client.budget import Budget
from taskharbor.client.listing import Listing, one_of
from taskharbor.client.retries import with_retries
from taskharbor.drivers.base import Driver
from taskharbor.model.job import FlowInfo, FlowStatus
from taskharbor.model.times import moment

if TYPE_CHECKING:
    from taskharbor.client.client import Client

PAGE_FLOWS = 100


class Flows(Listing[FlowInfo], msgspec.Struct, frozen=True, kw_only=True):
    """A filter for flows, made by `harbor.flows(…)`: a value, which reads nothing until it is iterated, with `for` or
    `async for`. Its fields are the options of `harbor.flows`.

    Each `FlowInfo` has an id, a status and times, without nodes and edges: `harbor.flow(id)` reads those. A job outside
    of a flow that the flow waits for does not count for its status here.
    """

    _name: ClassVar[str] = "flows"
    _page_size: ClassVar[int] = PAGE_FLOWS

    _client: Client
    status: FlowStatus | None = None
    since: datetime | None = None
    until: datetime | None = None
    newest: bool = False

    def __repr__(self) -> str:
        names = [name for name in self.__struct_fields__[1:] if getattr(self, name) not in (None, False)]
        return f"Flows({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    async def _page(
        self, budget: Budget, cursor: str | None, limit: int, whole: bool
    ) -> tuple[Sequence[FlowInfo], str | None]:
        client = self._client

        async def read(driver: Driver) -> tuple[Sequence[FlowInfo], str | None]:
            page = await driver.flows(
                now=client.clock.now(),
                status=self.status,
                since=self.since,
                until=self.until,
                order="-id" if self.newest else "id",
                cursor=cursor,
                limit=limit,
            )
            return page.items, page.cursor

        return await with_retries(read, budget)


def checked_flows(
    client: Client,
    *,
    status: FlowStatus | str | None,
    since: datetime | None,
    until: datetime | None,
    newest: bool,
) -> Flows:
    """What a caller gave, as a filter; TypeError or ValueError for a value that makes no sense."""
    if not isinstance(newest, bool):
        raise TypeError(f"newest: expected True or False, got {type(newest).__name__}")
    return Flows(
        _client=client,
        status=None if status is None else one_of(FlowStatus, status, "status"),
        since=None if since is None else moment(since, "since"),
        until=None if until is None else moment(until, "until"),
        newest=newest,
    )
