"""A driver around another one: for tests, for measuring, for whatever stands between core and a store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import Any

from taskharbor.drivers.base import Driver

_BY_OTHERS = {"ack", "retry", "fail", "extend_lease", "open_existing"}  # they call settle, extend and open
VERBS = tuple(
    name
    for name, verb in vars(Driver).items()
    if iscoroutinefunction(verb) and name not in _BY_OTHERS
    if not name.startswith(("_", "list_"))  # `list_jobs` and its kin: the inner driver calls its own
)
"""The verbs that pass through `WrappedDriver.around`."""


class WrappedDriver(Driver):
    """Passes every verb on to another driver. A subclass overrides `around`, or the verbs that are to differ.

    >>> import asyncio
    >>> from taskharbor.drivers import open_driver
    >>> class Printing(WrappedDriver):
    ...     async def around(self, verb, call, args):
    ...         print(verb)
    ...         return await call()
    >>> asyncio.run(Printing(open_driver("memory://")).queues())
    queues
    []
    """

    def __init__(self, inner: Driver) -> None:
        self.inner = inner
        self.unkept = inner.unkept  # type: ignore[misc]  # a wrapper has what its driver has
        self.lacks = inner.lacks  # type: ignore[method-assign]  # the same
        self.is_hinted = inner.is_hinted  # type: ignore[method-assign]  # the same
        self.is_looking = inner.is_looking  # type: ignore[method-assign]  # the same

    @property
    def retention(self) -> timedelta:
        return self.inner.retention

    async def around(self, verb: str, call: Callable[[], Awaitable[Any]], args: tuple[Any, ...]) -> Any:
        """Make one call of a verb: `await call()` passes it on. `args` are its positional arguments."""
        return await call()

    async def open_existing(self) -> None:
        inner = self.inner
        if type(inner).open_existing is Driver.open_existing:
            await self.open()  # as that one does
        else:
            await self.around("open_existing", inner.open_existing, ())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)  # more than the contract has: transactions, `location`


def _passed_on(name: str) -> Callable[..., Awaitable[Any]]:
    async def verb(self: WrappedDriver, *args: Any, **named: Any) -> Any:
        return await self.around(name, lambda: getattr(self.inner, name)(*args, **named), args)

    return verb


for _name in VERBS:
    setattr(WrappedDriver, _name, _passed_on(_name))
