"""Every call for both colours, written once: `x()` blocks, `ax()` is awaited.

A call is a coroutine function whose first argument beside `self` is the `StoreCall`. `@both` makes the blocking
method of it, and its `awaited` the other one:

    class JobHandle:
        @both
        async def status(self, call: StoreCall) -> State:
            ...

        astatus = status.awaited

In the class both are plain functions, with the signature and the docstring of the call, less the `StoreCall`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from taskharbor.model.current_job import is_in_handler
from taskharbor.store.access import StoreCall

if TYPE_CHECKING:
    from taskharbor.store.session import Store

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")

CallOf = Callable[Concatenate[S, StoreCall, P], Coroutine[Any, Any, T]]


class Awaited(Generic[S, P, T]):
    """The awaited method of a call."""

    def __init__(self, method: CallOf[S, P, T]) -> None:
        self._method = method

    def __set_name__(self, owner: type, name: str) -> None:
        method: Callable[..., Coroutine[Any, Any, T]] = self._method

        async def awaited(self: Any, *args: Any, **named: Any) -> T:
            call = self._store.call(method.__name__, method=name, in_handler=is_in_handler())
            return await method(self, call, *args, **named)

        setattr(owner, name, _like(awaited, method, owner, name, "The same, awaited."))

    @overload
    def __get__(self, it: None, owner: Any) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, it: S, owner: Any) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, it: S | None, owner: Any) -> Any:
        raise NotImplementedError  # the class has a function in its place


class Blocking(Generic[S, P, T]):
    """The blocking method of a call. `polls`: it may take longer than a call may, and makes one for each read.
    `instead`: what to use on an event loop, if that is not the name with an `a` before it."""

    def __init__(self, method: CallOf[S, P, T], polls: bool, instead: str) -> None:
        self._method = method
        self._polls = polls
        self._instead = instead
        self.awaited = Awaited(method)

    def __set_name__(self, owner: type, name: str) -> None:
        method: Callable[..., Coroutine[Any, Any, T]] = self._method
        polls, instead = self._polls, self._instead

        def blocking(self: Any, *args: Any, **named: Any) -> T:
            store: Store = self._store
            called = f"{self._called}.{name}"
            work: Callable[..., Coroutine[Any, Any, T]] = MethodType(method, self)
            return store.blocking(work, name, called, args, named, polls=polls, instead=instead)

        setattr(owner, name, _like(blocking, method, owner, name, inspect.cleandoc(method.__doc__ or "")))

    @overload
    def __get__(self, it: None, owner: Any) -> Callable[Concatenate[S, P], T]: ...
    @overload
    def __get__(self, it: S, owner: Any) -> Callable[P, T]: ...
    def __get__(self, it: S | None, owner: Any) -> Any:
        raise NotImplementedError  # the class has a function in its place


@overload
def both(method: CallOf[S, P, T], /) -> Blocking[S, P, T]: ...
@overload
def both(*, polls: bool = False, instead: str = "") -> Callable[[CallOf[S, P, T]], Blocking[S, P, T]]: ...
def both(method: Any = None, /, *, polls: bool = False, instead: str = "") -> Any:
    """The blocking method of a call; its `awaited` is the other one. See the head of this file."""
    return Blocking(method, polls, instead) if method is not None else lambda method: Blocking(method, polls, instead)


def _like(function: Any, method: Any, owner: type, name: str, doc: str) -> Any:
    """The function, which looks like the method without its `StoreCall`."""
    functools.update_wrapper(function, method)
    del function.__wrapped__
    it, _, *others = inspect.signature(method).parameters.values()
    function.__signature__ = inspect.signature(method).replace(parameters=[it, *others])
    function.__annotations__ = {key: kind for key, kind in method.__annotations__.items() if key != "call"}
    function.__name__, function.__qualname__, function.__doc__ = name, f"{owner.__qualname__}.{name}", doc
    return function
