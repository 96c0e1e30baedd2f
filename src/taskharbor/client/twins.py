"""Every call for both colours, written once: `x()` blocks, `ax()` is awaited.

A call is a coroutine function whose first argument beside `self` is the budget of the call. `@both` makes the blocking
method of it, and its `awaited` the other one:

    class JobHandle:
        @both
        async def status(self, budget: Budget) -> State:
            ...

        astatus = status.awaited

In the class both are plain functions, with the signature and the docstring of the call, less the budget.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from taskharbor.client.access import StoreAccess
from taskharbor.client.budget import Budget
from taskharbor.model.current_job import is_in_handler

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")

Call = Callable[Concatenate[S, Budget, P], Coroutine[Any, Any, T]]


class Awaited(Generic[S, P, T]):
    """The awaited method of a call."""

    def __init__(self, call: Call[S, P, T]) -> None:
        self._call = call

    def __set_name__(self, owner: type, name: str) -> None:
        call: Callable[..., Coroutine[Any, Any, T]] = self._call

        async def awaited(self: Any, *args: Any, **named: Any) -> T:
            client = self._client
            budget = client.budget(client.awaited, call.__name__)
            budget.method, budget.in_handler = name, is_in_handler()
            return await call(self, budget, *args, **named)

        setattr(owner, name, _like(awaited, call, owner, name, "The same, awaited."))

    @overload
    def __get__(self, it: None, owner: Any) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, it: S, owner: Any) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, it: S | None, owner: Any) -> Any:
        raise NotImplementedError  # the class has a function in its place


class Blocking(Generic[S, P, T]):
    """The blocking method of a call. `polls`: it may take longer than a budget, of which it takes one for each read.
    `instead`: what to use on an event loop, if that is not the name with an `a` before it."""

    def __init__(self, call: Call[S, P, T], polls: bool, instead: str) -> None:
        self._call = call
        self._polls = polls
        self._instead = instead
        self.awaited = Awaited(call)

    def __set_name__(self, owner: type, name: str) -> None:
        call: Callable[..., Coroutine[Any, Any, T]] = self._call
        polls, instead = self._polls, self._instead

        def blocking(self: Any, *args: Any, **named: Any) -> T:
            client = self._client
            in_handler = polls and is_in_handler()  # here: the call may run on another thread

            def begin(access: StoreAccess) -> Coroutine[Any, Any, T]:
                budget = client.budget(access, name)
                budget.in_handler = in_handler
                return call(self, budget, *args, **named)

            result: T = client.blocking(begin, f"{self._called}.{name}", polls=polls, instead=instead)
            return result

        setattr(owner, name, _like(blocking, call, owner, name, inspect.cleandoc(call.__doc__ or "")))

    @overload
    def __get__(self, it: None, owner: Any) -> Callable[Concatenate[S, P], T]: ...
    @overload
    def __get__(self, it: S, owner: Any) -> Callable[P, T]: ...
    def __get__(self, it: S | None, owner: Any) -> Any:
        raise NotImplementedError  # the class has a function in its place


@overload
def both(call: Call[S, P, T], /) -> Blocking[S, P, T]: ...
@overload
def both(*, polls: bool = False, instead: str = "") -> Callable[[Call[S, P, T]], Blocking[S, P, T]]: ...
def both(call: Any = None, /, *, polls: bool = False, instead: str = "") -> Any:
    """The blocking method of a call; its `awaited` is the other one. See the head of this file."""
    return Blocking(call, polls, instead) if call is not None else lambda call: Blocking(call, polls, instead)


def _like(function: Any, call: Any, owner: type, name: str, doc: str) -> Any:
    """The function, which looks like the call without its budget."""
    functools.update_wrapper(function, call)
    del function.__wrapped__
    it, _, *others = inspect.signature(call).parameters.values()
    function.__signature__ = inspect.signature(call).replace(parameters=[it, *others])
    function.__annotations__ = {key: kind for key, kind in call.__annotations__.items() if key != "budget"}
    function.__name__, function.__qualname__, function.__doc__ = name, f"{owner.__qualname__}.{name}", doc
    return function
