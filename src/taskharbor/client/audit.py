"""Writing and reading the audit: every change that a person asks for is in it, with a name."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, TypeVar

import msgspec

from taskharbor.client.budget import Budget
from taskharbor.client.listing import Listing
from taskharbor.client.retries import with_retries
from taskharbor.drivers.base import Driver
from taskharbor.model.audit import MAX_AUDIT_IDS, AuditEntry, read_entry
from taskharbor.model.bounds import check_name
from taskharbor.model.errors import DriverError
from taskharbor.model.events import OperatorActed
from taskharbor.model.ids import new_id
from taskharbor.model.times import moment, to_ms

if TYPE_CHECKING:
    from taskharbor.client.client import Client

T = TypeVar("T")

PAGE_ENTRIES = 100
ACTOR_VARIABLE = "TASKHARBOR_BY"


def actor(by: str | None) -> str:
    """Who acts: what the caller gave, $TASKHARBOR_BY, or the user of this process at this machine."""
    if by is None:
        by = os.environ.get(ACTOR_VARIABLE) or f"{_user()}@{socket.gethostname()}"
    check_name(by, "by")
    return by


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run a user without a name
        return f"uid {os.getuid()}"


async def audited(
    client: Client,
    action: str,
    by: str | None,
    budget: Budget,
    act: Callable[[], Awaitable[T]],
    *,
    ids: Sequence[str] = (),
    target: str = "",
    filter: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    tally: Callable[[T], tuple[int | None, int]] = lambda result: (1, 0),
) -> T:
    """Do something that is in the audit before it begins, and again with its outcome afterwards.

    What the store refuses is in the audit as refused; what a crash or an outage cut short, as begun. `tally`: how many
    jobs were changed and how many refused, from what `act` returned.
    """
    now = client.clock.now()
    entry = AuditEntry(
        id=new_id(to_ms(now)),
        at=now,
        by=actor(by),
        action=action,
        target=target,
        ids=tuple(ids[:MAX_AUDIT_IDS]),
        n=len(ids) or None,
        filter=dict(filter or {}),
        options=dict(options or {}),
    )
    await put_entry(client, entry, budget)
    try:
        result = await act()
    except (DriverError, ValueError):  # of a value that turns out to make no sense for what is stored
        await put_entry(client, msgspec.structs.replace(entry, done=0, refused=len(ids) or 1), budget)
        raise
    done, refused = tally(result)
    entry = msgspec.structs.replace(entry, done=done, refused=refused)
    await put_entry(client, entry, budget)
    client.emit(OperatorActed(entry))
    return result


async def put_entry(client: Client, entry: AuditEntry, budget: Budget) -> None:
    """Store an entry, in a store that keeps an audit."""
    tries = budget.tries
    await with_retries(lambda driver: driver.put_audit([entry.stored()], client.clock.now()), budget)
    budget.tries = tries  # an error of the action counts its own


class Audit(Listing[AuditEntry], msgspec.Struct, frozen=True, kw_only=True):
    """Entries of the audit, the newest first: a value, made by `harbor.audit(…)`, which reads nothing until it is
    iterated, with `for` or `async for`. Its fields are the options of `harbor.audit`."""

    _name: ClassVar[str] = "audit"
    _page_size: ClassVar[int] = PAGE_ENTRIES

    _client: Client
    since: datetime | None = None
    until: datetime | None = None
    by: str | None = None

    def __repr__(self) -> str:
        names = [name for name in self.__struct_fields__[1:] if getattr(self, name) is not None]
        return f"Audit({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    async def _page(
        self, budget: Budget, cursor: str | None, limit: int, whole: bool
    ) -> tuple[Sequence[AuditEntry], str | None]:
        async def read(driver: Driver) -> tuple[Sequence[AuditEntry], str | None]:
            page = await driver.audit(since=self.since, until=self.until, by=self.by, cursor=cursor, limit=limit)
            return [read_entry(stored) for stored in page.items], page.cursor

        return await with_retries(read, budget)


def checked_audit(
    client: Client,
    *,
    since: datetime | None,
    until: datetime | None,
    by: str | None,
) -> Audit:
    """What a caller gave, as a filter; TypeError or ValueError for a value that makes no sense."""
    if by is not None:
        check_name(by, "by")
    return Audit(
        _client=client,
        since=None if since is None else moment(since, "since"),
        until=None if until is None else moment(until, "until"),
        by=by,
    )
