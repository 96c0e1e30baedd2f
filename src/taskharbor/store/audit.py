"""The audit: every change that a person asks for is in it, with a name, before it begins and when it has ended."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec

from taskharbor.drivers.base import Driver
from taskharbor.model.audit import MAX_AUDIT_IDS, AuditEntry, read_entry
from taskharbor.model.bounds import check_name
from taskharbor.model.errors import BackendUnavailable, DriverError
from taskharbor.model.events import OperatorActed
from taskharbor.model.ids import new_id
from taskharbor.model.times import to_ms
from taskharbor.store.pages import fill_page

if TYPE_CHECKING:
    from taskharbor.store.access import Act, StoreCall

T = TypeVar("T")

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
    call: StoreCall,
    action: str,
    by: str | None,
    act: Act[T],
    doubt: str = "",
    *,
    ids: Sequence[str] = (),
    target: str = "",
    filter: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    tally: Callable[[T], tuple[int | None, int]] = lambda result: (1, 0),
) -> T:
    """Do something that is in the audit before it begins, and again with its outcome afterwards.

    What the store refuses is in the audit as refused; what a crash or an outage cut short, as begun. `act` may be
    called several times, but not again after it has returned or was refused. `doubt`: what is unknown if no reply to
    it comes. `tally`: how many jobs were changed and how many refused, from what `act` returned.
    """
    now = call.now()
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
    is_begun = False
    results: list[T] = []
    refusal: Exception | None = None

    async def send(driver: Driver) -> None:
        nonlocal entry, is_begun, refusal
        if not is_begun:
            await driver.put_audit([entry.stored()], call.now())
            is_begun = True
            if doubt:
                call.doubt = lambda: doubt
        if not results and refusal is None:
            try:
                results.append(await act(driver))
            except BackendUnavailable:
                raise
            except (DriverError, ValueError) as error:  # ValueError: what makes no sense for what is stored
                refusal = error
            done, refused = tally(results[0]) if results else (0, len(ids) or 1)
            entry = msgspec.structs.replace(entry, done=done, refused=refused)
        await driver.put_audit([entry.stored()], call.now())

    await call.ask(send)
    if refusal is not None:
        raise refusal
    call.store.emit(OperatorActed(entry))
    return results[0]


async def put_entry(call: StoreCall, entry: AuditEntry) -> None:
    """Store an entry, in a store that keeps an audit."""
    await call.ask(lambda driver: driver.put_audit([entry.stored()], call.now()))


async def read_audit(
    driver: Driver,
    *,
    since: datetime | None,
    until: datetime | None,
    by: str | None,
    cursor: str | None,
    limit: int,
) -> tuple[list[AuditEntry], str | None]:
    """A page of entries for a person, the newest first, and the cursor of the next."""
    stored, cursor = await fill_page(driver.audit, limit, since=since, until=until, by=by, cursor=cursor)
    return [read_entry(entry) for entry in stored], cursor
