"""Steps: what a handler has done under a name is stored, and a later execution of its job gets the value instead.

    a name without a memo ─► the function is called ─► its value is encoded, stored under the lease, and returned
    a name with one       ─► its value is returned; the function is not called

Nothing is replayed: the code between steps runs again in each execution. A function that was called although its memo
was not stored, because the process ended between the two, is called again.

`Steps` belongs to one execution, and any thread may use it. How a memo reaches the store is for its `StepCalls`: the
worker's (worker/step_calls.py), those of a child process, or those of `taskharbor.testing`.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Protocol

from taskharbor.model.bounds import check_name
from taskharbor.model.codec import Codec, JsonCodec
from taskharbor.model.errors import BlockingCall, Snooze, StepRefused
from taskharbor.model.memo import CHECKPOINT, SLEEP, VALUE, Memo
from taskharbor.model.naming import class_name
from taskharbor.model.times import Duration, duration, from_ms, round_up, to_ms
from taskharbor.tasks.annotations import Unresolved, hints_of
from taskharbor.tasks.handler import is_coroutine
from taskharbor.tasks.step_transaction import StepHold, StepTransaction

MAX_STEPS = 1000
MAX_VALUE_BYTES = 64 * 1024
MAX_VALUES_BYTES = 1024 * 1024


class StepCalls(Protocol):
    """What steps need from where they run. Each may be called in any thread."""

    def check(self) -> None:
        """Raise if the outcome of the job is decided."""

    def save(self, name: str, value: bytes) -> None:
        """Store a memo; blocks. Raises if the lease is lost, and `check` raises from then on."""

    async def asave(self, name: str, value: bytes) -> None:
        """The same for a coroutine."""

    def now(self) -> datetime:
        """The time by which a sleep ends."""

    def hold(self, *, is_coroutine: bool) -> StepHold:
        """A transaction for one step; raises where there is none."""


class Asleep(Snooze):
    """Raised by `ctx.sleep()`: the job is given back, and goes on behind it later."""


class Steps:
    """The steps of one execution."""

    def __init__(self, codec: Codec, memos: Sequence[Memo], calls: StepCalls, *, sleeps: bool = True) -> None:
        """`memos`: of earlier executions. `sleeps`: False ends each sleep at once."""
        self.calls = calls
        self._codec = codec
        self._stored = {memo.name: memo.value for memo in memos}
        self._used: set[str] = set()
        self._lock = threading.Lock()
        self._sleeps = sleeps
        self._asleep: timedelta | None = None

    # Steps -----------------------------------------------------------------------------------------------------

    def run(self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """What `ctx.step` does."""
        refuse_loop("ctx.step()", "ctx.astep()")
        if is_coroutine(fn):
            raise TypeError(f"step {name!r}: ctx.step() takes a plain function, got a coroutine function; use: await "
                            "ctx.astep(...)")  # fmt: skip
        with self.claimed(name):
            stored = self._value_of(name, VALUE)
            if stored is None:
                value = fn(*args, **named)
                if inspect.iscoroutine(value):
                    value.close()
                    raise TypeError(f"step {name!r}: its function returned a coroutine; use: await ctx.astep(...)")
                stored, back = self._fitting(name, value, fn)
                with self.room(name, VALUE + stored) as memo:
                    self.calls.save(name, memo)
                return back
            return self._decoded(name, stored, fn)

    def arun(self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> Awaitable[Any]:
        """What `ctx.astep` does. It refuses a call without an event loop at once, not when it is awaited."""
        need_loop("ctx.astep()", "ctx.step()")
        return self._arun(name, fn, args, named)

    async def _arun(self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        with self.claimed(name):
            stored = self._value_of(name, VALUE)
            if stored is None:
                value = fn(*args, **named) if is_coroutine(fn) else await asyncio.to_thread(fn, *args, **named)
                if inspect.isawaitable(value):
                    value = await value
                stored, back = self._fitting(name, value, fn)
                with self.room(name, VALUE + stored) as memo:
                    await self.calls.asave(name, memo)
                return back
            return self._decoded(name, stored, fn)

    # A step in a transaction of the store ---------------------------------------------------------------------

    def transaction(self, name: str, returns: Any) -> StepTransaction:
        """What `ctx.step_transaction` does."""
        return StepTransaction(self, name, returns)

    # Sleeps ----------------------------------------------------------------------------------------------------

    def sleep(self, name: str, seconds: Duration) -> None:
        """What `ctx.sleep` does."""
        refuse_loop("ctx.sleep()", "ctx.asleep()")
        with self.claimed(name):
            until, data = self._end_of(name, seconds)
            if data:
                with self.room(name, SLEEP + data) as memo:
                    self.calls.save(name, memo)
            self._rest(until)

    def asleep(self, name: str, seconds: Duration) -> Awaitable[None]:
        """What `ctx.asleep` does."""
        need_loop("ctx.asleep()", "ctx.sleep()")
        return self._arest(name, seconds)

    async def _arest(self, name: str, seconds: Duration) -> None:
        with self.claimed(name):
            until, data = self._end_of(name, seconds)
            if data:
                with self.room(name, SLEEP + data) as memo:
                    await self.calls.asave(name, memo)
            self._rest(until)

    def _end_of(self, name: str, seconds: Duration) -> tuple[datetime, bytes]:
        """When a sleep ends, and what has to be stored of that; nothing, if it has begun in an earlier execution."""
        span, stored = duration(seconds, f"step {name!r}: seconds"), self._value_of(name, SLEEP)
        if stored is not None:
            return from_ms(int(stored)), b""
        until = round_up(self.calls.now() + span)
        return until, b"%d" % to_ms(until)

    def _rest(self, until: datetime) -> None:
        left = until - self.calls.now()
        if left > timedelta(0) and self._sleeps:
            self._asleep = left
            raise Asleep(left)

    # The checkpoint --------------------------------------------------------------------------------------------

    def checkpoint(self, value: Any) -> None:
        """What `ctx.checkpoint` does."""
        refuse_loop("ctx.checkpoint()", "ctx.acheckpoint()")
        data = self._checked_checkpoint(value)
        with self.room(CHECKPOINT, VALUE + data) as memo:
            self.calls.save(CHECKPOINT, memo)

    def acheckpoint(self, value: Any) -> Awaitable[None]:
        """What `ctx.acheckpoint` does."""
        need_loop("ctx.acheckpoint()", "ctx.checkpoint()")
        return self._acheckpoint(value)

    async def _acheckpoint(self, value: Any) -> None:
        data = self._checked_checkpoint(value)
        with self.room(CHECKPOINT, VALUE + data) as memo:
            await self.calls.asave(CHECKPOINT, memo)

    def _checked_checkpoint(self, value: Any) -> bytes:
        self._check()
        return self.encoded("checkpoint", value, Any)

    @property
    def last_checkpoint(self) -> Any:
        """The last checkpoint, as plain data; None before the first."""
        stored = self._value_of(CHECKPOINT, VALUE)
        return None if stored is None else self.read("checkpoint", stored, Any)

    # Names, values and bounds ----------------------------------------------------------------------------------

    def _check(self) -> None:
        """Raise if this execution is over, again and again, whatever the handler catches."""
        if self._asleep is not None:
            raise Asleep(self._asleep)
        self.calls.check()

    @contextmanager
    def claimed(self, name: str) -> Iterator[None]:
        """A block in which a step of this name runs. One that raises may be tried again."""
        check_name(name, "step")
        if name.startswith("taskharbor."):
            raise ValueError(f"step {name!r}: names that begin with 'taskharbor.' belong to the library")
        self._check()
        with self._lock:
            if name in self._used:
                raise ValueError(
                    f"step {name!r}: expected a name of its own for each step of an execution, got it a second time; "
                    "number the steps of a loop"
                )
            self._used.add(name)
        try:
            yield
        except BaseException:
            with self._lock:
                self._used.discard(name)
            raise

    def stored(self, name: str) -> bytes | None:
        """The codec's bytes of a step that is stored."""
        return self._value_of(name, VALUE)

    @staticmethod
    def refuse_loop(call: str, twin: str) -> None:
        """See below."""
        refuse_loop(call, twin)

    def _value_of(self, name: str, kind: bytes) -> bytes | None:
        stored = self._stored.get(name)
        if stored is not None and not stored.startswith(kind):
            was = "a sleep" if kind == VALUE else "no sleep"
            raise StepRefused(f"step {name!r}: it was {was} in an earlier execution; give it another name")
        return None if stored is None else stored[1:]

    def _fitting(self, name: str, value: Any, fn: Callable[..., Any]) -> tuple[bytes, Any]:
        """What is stored of a value, and the value as a later execution will get it."""
        returns = _returned_by(fn)
        data = self.encoded(name, value, returns)
        return data, self.read(name, data, returns)

    def _decoded(self, name: str, data: bytes, fn: Callable[..., Any]) -> Any:
        return self.read(name, data, _returned_by(fn))

    def encoded(self, name: str, value: Any, returns: Any) -> bytes:
        codec = self._codec
        try:
            data = codec.encode_as(value, returns) if type(codec) is JsonCodec else codec.encode(value)
        except Exception as error:  # its text may quote the value
            raise StepRefused(
                f"step {name!r}: its value of the type {class_name(value)} cannot be encoded ({class_name(error)})"
            ) from None
        if type(data) is not bytes:
            raise StepRefused(f"step {name!r}: its codec returned {class_name(data)}, expected bytes")
        if len(data) > MAX_VALUE_BYTES:
            raise StepRefused(
                f"step {name!r}: its value has {len(data)} bytes, expected at most {MAX_VALUE_BYTES}; "
                "keep it elsewhere and return a reference"
            )
        return data

    def read(self, name: str, data: bytes, returns: Any) -> Any:
        try:
            return self._codec.decode(data, returns)
        except Exception as error:
            raise StepRefused(
                f"step {name!r}: its value does not fit what its function is annotated to return "
                f"({class_name(error)}); give the step another name if that has changed"
            ) from None

    @contextmanager
    def room(self, name: str, memo: bytes) -> Iterator[bytes]:
        """A block that stores a memo: it counts from the beginning, and no longer if it was not stored."""
        with self._lock:
            before = self._stored.get(name)
            others = [len(value) - 1 for other, value in self._stored.items() if other != name]
            if len(others) >= MAX_STEPS:
                raise StepRefused(f"step {name!r}: expected at most {MAX_STEPS} steps of a job")
            if sum(others) + len(memo) - 1 > MAX_VALUES_BYTES:
                raise StepRefused(f"step {name!r}: expected at most {MAX_VALUES_BYTES} bytes in all steps of a job")
            self._stored[name] = memo
        try:
            yield memo
        except BaseException:
            with self._lock:
                if before is None:
                    self._stored.pop(name, None)
                else:
                    self._stored[name] = before
            raise


def _returned_by(fn: Callable[..., Any]) -> Any:
    """What a function is annotated to return; Any if it is not, or that cannot be resolved."""
    found = hints_of(fn, inspect.Signature()).get("return", Any)
    return Any if isinstance(found, Unresolved) else found


def refuse_loop(call: str, twin: str) -> None:
    """BlockingCall on a running event loop."""
    if _has_loop():
        raise BlockingCall(f"{call} would block the running event loop; use: await {twin}")


def need_loop(call: str, twin: str) -> None:
    """BlockingCall without one."""
    if not _has_loop():
        raise BlockingCall(f"{call} needs a running event loop, and there is none here; use: {twin}")


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
