"""A step in a transaction of the job's own store: its memo and what its block writes are committed together."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

from taskharbor.drivers.connections import at_once
from taskharbor.model.memo import VALUE

if TYPE_CHECKING:
    from taskharbor.tasks.steps import Steps


class StepHold(Protocol):
    """A transaction on the store that ends with a step. For a plain function its coroutines never suspend."""

    async def begin(self) -> Any:
        """Begin it, and return the connection."""

    async def commit(self, name: str, value: bytes) -> None:
        """Store the memo and commit. What is raised leaves both undone, or in doubt where the store is away."""

    async def rollback(self) -> None:
        """Undo it."""


class StepTransaction:
    """What `ctx.step_transaction` returns: `with` it in a plain function, `async with` in a coroutine.

    `done`: an earlier execution has committed the step; then `value` is what that set as `result`, and `connection` is
    None. Else `connection` is in a transaction, which commits at the end of the block, together with `result`. A block
    that raises undoes both.
    """

    def __init__(self, steps: Steps, name: str, returns: Any) -> None:
        self.done = False
        self.value: Any = None
        self.connection: Any = None
        self.result: Any = None
        self._steps, self._name, self._returns = steps, name, returns
        self._claim = steps.claimed(name)
        self._hold: StepHold | None = None

    def __enter__(self) -> StepTransaction:
        self._steps.refuse_loop("with ctx.step_transaction()", "async with ctx.step_transaction()")
        at_once(self._begin(is_coroutine=False))
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        at_once(self._end(kind, error, trace))

    async def __aenter__(self) -> StepTransaction:
        await self._begin(is_coroutine=True)
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        await self._end(kind, error, trace)

    async def _begin(self, *, is_coroutine: bool) -> None:
        self._claim.__enter__()
        try:
            stored = self._steps.stored(self._name)
            if stored is None:
                hold = self._steps.calls.hold(is_coroutine=is_coroutine)
                self.connection = await hold.begin()
                self._hold = hold
            else:
                self.done, self.value = True, self._steps.read(self._name, stored, self._returns)
        except BaseException:
            self._claim.__exit__(*sys.exc_info())
            raise

    async def _end(self, kind: Any, error: Any, trace: Any) -> None:
        hold, self._hold = self._hold, None
        if hold is None or error is not None:
            if hold is not None:
                await hold.rollback()
            self._claim.__exit__(kind, error, trace)
            return
        try:
            await self._commit(hold)
        except BaseException:
            self._claim.__exit__(*sys.exc_info())
            raise
        self._claim.__exit__(None, None, None)

    async def _commit(self, hold: StepHold) -> None:
        steps, is_ending = self._steps, False
        try:
            data = steps.encoded(self._name, self.result, self._returns)
            self.value = steps.read(self._name, data, self._returns)
            with steps.room(self._name, VALUE + data) as memo:
                is_ending = True
                await hold.commit(self._name, memo)
        except BaseException:
            if not is_ending:
                await hold.rollback()
            raise
