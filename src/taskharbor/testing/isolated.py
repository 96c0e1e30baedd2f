"""A store of its own for the length of a block: `with isolated(harbor, clock=manual_clock):`.

Real programs have one harbor, made when a module is imported. Within the block its client, its handles, its workers and
`drain` use an empty store in memory, and the given clock; afterwards everything is as before, also after an exception.
It holds for the whole process. Blocks may be nested: each has a store of its own.

A task with `process=True` runs in the test's own process meanwhile: in a child its harbor would use the real store.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from taskharbor.model.clock import Clock
from taskharbor.model.errors import BlockingCall
from taskharbor.store.session import Store

if TYPE_CHECKING:
    from taskharbor.harbor import Harbor

PRIVATE = "memory://"  # each driver of this address has a store of its own


H = TypeVar("H", bound="Harbor")


class Isolated(Generic[H]):
    """The block. Made by `isolated`."""

    def __init__(self, harbor: H, clock: Clock | None, dsn: str) -> None:
        self._harbor = harbor
        self._clock = clock
        self._dsn = dsn
        self._before: list[dict[str, Any]] = []  # what to restore: more than one if this block is entered again

    def __enter__(self) -> H:
        if self._dsn != PRIVATE and _is_on_loop():
            raise BlockingCall("isolated(…, dsn=…) could not close that store on a running event loop; use: async with")
        self._before.append(self._harbor._store.isolate(self._dsn, self._clock))
        return self._harbor

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        store = self._harbor._store
        drivers = store.restore(self._before.pop())
        if self._dsn != PRIVATE and not _is_on_loop():
            store.close_isolated(drivers)
        else:
            drivers.close_blocking()  # what a loop has opened in memory needs no closing

    async def __aenter__(self) -> H:
        self._before.append(self._harbor._store.isolate(self._dsn, self._clock))
        return self._harbor

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        drivers = self._harbor._store.restore(self._before.pop())
        drivers.close_blocking()
        await drivers.close()


def isolated(harbor: H, *, clock: Clock | None = None, dsn: str = PRIVATE) -> Isolated[H]:
    """An empty store of its own and this `clock` for a harbor, for a block: `with` or `async with`.

    Without a clock the store's own time counts, or the clock that was given to the harbor. `dsn`: another store than
    one in memory, for code that needs SQL (`connection=`, `ctx.transaction()`); emptying it is up to the test.
    """
    if not isinstance(getattr(harbor, "_store", None), Store):
        raise TypeError(f"isolated: expected a Harbor, got {type(harbor).__name__}")
    return Isolated(harbor, clock, dsn)


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
