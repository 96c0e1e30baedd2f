"""Blocking calls on memory: those of the driver, because they do their work at once and never suspend.

Ctrl-C takes effect after a call that changes the store, not amid it. Otherwise it could leave a job that is stored but
in no queue, and a person who stops a loop of `enqueue` in a notebook goes on with that store.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from taskharbor.drivers.memory.driver import MemoryDriver
from taskharbor.drivers.signal_safe import DeferredSignals
from taskharbor.model.errors import BackendUnavailable

T = TypeVar("T")

_CHANGES = (
    *("enqueue", "requeue", "cancel", "cancel_flow", "delete", "amend"),
    *("put_audit", "change_schedules", "pause", "resume"),
)


class MemoryBlocking:
    """The blocking calls of a memory driver."""

    def __init__(self, driver: MemoryDriver) -> None:
        self._driver = _UninterruptedDriver()
        self._driver.store = driver.store
        self._is_closed = False

    def until(self, deadline: float) -> MemoryDriver:
        """The driver for any call: none takes time."""
        if self._is_closed:
            raise BackendUnavailable("the store's blocking calls were closed")
        return self._driver

    def close(self) -> None:
        self._is_closed = True


class _UninterruptedDriver(MemoryDriver):
    """A memory driver that no signal interrupts in a change."""


def _uninterrupted(verb: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    """The same verb, which never suspends. A signal that arrives meanwhile is handled when it has ended."""

    @functools.wraps(verb)
    async def call(*args: Any, **named: Any) -> T:
        with DeferredSignals():
            return await verb(*args, **named)

    return call


for _verb in _CHANGES:
    setattr(_UninterruptedDriver, _verb, _uninterrupted(getattr(MemoryDriver, _verb)))
