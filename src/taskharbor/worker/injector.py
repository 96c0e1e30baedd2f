"""Calls handlers that have injected parameters: opens what they need, calls them, and closes it again.

    a coroutine         call middleware ─► dependencies ─► handler ─► closed          all on the loop
    a plain function    coroutine dependencies, on the loop
                          └► thread: call middleware ─► the other dependencies ─► handler ─► closed ─► middleware left
                             └► closed, on the loop

Everything is closed before the outcome of the job is decided, whichever way it ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from taskharbor.model.errors import LifespanFailed
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.dependencies import GivenSource, Injection
from taskharbor.tasks.given import Getter, GivenMismatch, getter
from taskharbor.tasks.handler import Handler
from taskharbor.tasks.lifespan import Lifespan
from taskharbor.tasks.overrides import Overrides
from taskharbor.worker.middleware import CallMiddleware, await_within, call_within
from taskharbor.worker.opened import Opened

NO_LIFESPAN: Any = object()


class Injector:
    """Gives injected parameters their values. `given`: what the lifespan gave, if there is one; `lifespan`: the one
    that child processes enter too; `declared`: what they enter instead if they cannot import that one."""

    def __init__(
        self,
        overrides: Overrides | None = None,
        lifespan: Lifespan | None = None,
        given: Any = NO_LIFESPAN,
        declared: Lifespan | None = None,
    ) -> None:
        self.overrides = overrides if overrides is not None else Overrides()
        self.lifespan = lifespan
        self.declared_lifespan = declared
        self._given = given
        self._getters: dict[int, tuple[GivenSource, Getter]] = {}  # by the id of the source, which they keep alive

    def check(self, handlers: Iterable[Handler]) -> None:
        """LifespanFailed if the lifespan did not give what one of these handlers asks for."""
        for handler in handlers:
            injection = self.injection_of(handler) if handler.injection is not None else None
            for source in injection.given if injection is not None else ():
                self._getter(source)

    async def call(
        self,
        handler: Handler,
        payload: bytes,
        context: JobContext,
        layers: Sequence[CallMiddleware],
        in_thread: Callable[[partial[Any]], Awaitable[Any]],
        check: Callable[[], None],
    ) -> Any:
        """Call a handler. `check` is called right before it, and raises if the job was stopped meanwhile."""
        values = handler.signature.checked_values(payload)  # first: nothing is opened for a payload that does not fit
        injection = self.injection_of(handler)
        if handler.is_coroutine:
            call = partial(self._await_handler, handler, injection, values, context, check)
            return await (await_within(layers, context, call) if layers else call())
        opened = Opened(context, self.given)
        try:
            for node in injection.on_loop:
                await opened.aopen(node)
            run = partial(self.call_handler, handler, injection, values, context, check, opened)
            if layers:
                run = partial(call_within, layers, context, run)
            check()
            value = await in_thread(run)
        except GeneratorExit:
            raise  # this coroutine is discarded with its loop: nothing can be awaited any more
        except BaseException as error:
            await opened.aclose(error)
            raise
        failure = await opened.aclose(None)
        if failure is not None:
            raise failure
        return value

    def call_handler(
        self,
        handler: Handler,
        injection: Injection,
        values: tuple[Any, ...],
        context: JobContext,
        check: Callable[[], None],
        before: Opened | None = None,
    ) -> Any:
        """Call a plain function in this thread, with the dependencies that are left to it."""
        opened = Opened(context, self.given, before)
        try:
            for node in injection.in_thread:
                opened.open(node)
            args, kwargs = handler.assemble(values, context, opened.values(injection.parameters))
            check()
            value = handler.function(*args, **kwargs)
        except BaseException as error:
            opened.close(error)
            raise
        failure = opened.close(None)
        if failure is not None:
            raise failure
        return value

    async def _await_handler(
        self,
        handler: Handler,
        injection: Injection,
        values: tuple[Any, ...],
        context: JobContext,
        check: Callable[[], None],
    ) -> Any:
        opened = Opened(context, self.given)
        try:
            for node in injection.on_loop:
                await opened.aopen(node)
            args, kwargs = handler.assemble(values, context, opened.values(injection.parameters))
            check()
            value = await handler.function(*args, **kwargs)
        except GeneratorExit:
            raise
        except BaseException as error:
            await opened.aclose(error)
            raise
        failure = await opened.aclose(None)
        if failure is not None:
            raise failure
        return value

    def injection_of(self, handler: Handler) -> Injection:
        """The injection of a handler that has one."""
        injection = self.overrides.injection_of(handler) if self.overrides else handler.injection
        assert injection is not None
        return injection

    def given(self, source: GivenSource) -> Any:
        """What the lifespan gave, for one parameter."""
        found = self._getters.get(id(source))
        return (self._getter(source) if found is None else found[1])(self._given)

    def _getter(self, source: GivenSource) -> Getter:
        if self._given is NO_LIFESPAN:
            raise LifespanFailed(
                f"{source.where}: Given() receives what the lifespan gave, and there is none; declare it: "
                "Harbor(…, lifespan=…)"
            )
        try:
            found = getter(self._given, source.wanted)
        except GivenMismatch as error:
            raise LifespanFailed(f"{source.where}: {error}") from None
        self._getters[id(source)] = (source, found)
        return found
