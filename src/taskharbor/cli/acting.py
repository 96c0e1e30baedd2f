"""How a command changes the store: through `ops.actions`, as the administrator that the user of the shell is.

So every change is in the audit, under $TASKHARBOR_BY or user@host, and nothing is decided in a command.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import click

from taskharbor.cli.errors import usage_error
from taskharbor.cli.store import call_store
from taskharbor.cli.target import Target
from taskharbor.drivers.base import Driver
from taskharbor.model.errors import DriverError
from taskharbor.ops.redaction import Redaction
from taskharbor.ops.text import safe_text

if TYPE_CHECKING:
    from taskharbor.client.client import Client
    from taskharbor.client.jobs import Jobs
    from taskharbor.ops.actions import Actions

T = TypeVar("T")


@dataclass(frozen=True)
class Operator:
    """The person at the shell, with the store that they work on."""

    client: Client
    actions: Actions
    driver: Driver
    now: datetime  # of the store


def act(target: Target, call: Callable[[Operator], Awaitable[T]], *, creates: bool = False) -> T:
    """Run `call` with the opened store. `creates`: create the store if it does not exist."""
    return call_store(target, lambda driver, now: _with_operator(call, driver, now), creates=creates)


async def _with_operator(call: Callable[[Operator], Awaitable[T]], driver: Driver, now: datetime) -> T:
    operator = operator_on(driver, now)
    await operator.client.awaited.driver(0)  # so that the client's clock follows the store's
    return await call(operator)


def operator_on(driver: Driver, now: datetime) -> Operator:
    """The user of the shell as the administrator of an opened store."""
    from taskharbor.client.client import Client

    client = Client(driver)
    return Operator(client, actions_of(client), driver, now)


def actions_of(client: Client) -> Actions:
    """What the user of the shell may do with a client's store: everything."""
    from taskharbor.client.audit import ACTOR_VARIABLE, actor
    from taskharbor.ops.access import Access
    from taskharbor.ops.actions import Actions

    try:
        access = Access.admin(actor(None))
    except (TypeError, ValueError) as error:
        raise usage_error(f"${ACTOR_VARIABLE}, the name for the audit: {error}") from error
    return Actions(client, access)


async def reveal(
    driver: Driver, now: datetime, redaction: Redaction, ids: Sequence[str] = (), jobs: Jobs | None = None
) -> None:
    """Write into the audit that payloads are shown, if they are.

    A person who may only read a store can read its payloads anyway. So an audit that cannot be written is reported, and
    does not keep the command from showing what was asked for.
    """
    if not redaction.show:
        return
    operator = operator_on(driver, now)
    try:
        await operator.actions.reveal(ids, jobs=jobs)
    except DriverError as error:
        click.echo(
            f"note: the audit cannot be written, so it does not show this access: {safe_text(str(error))}", err=True
        )
