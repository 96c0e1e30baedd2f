"""Calls handlers that have injected parameters: opens what they need, calls them, and closes it again.

    a coroutine         call middleware ─► dependencies ─► handler ─► closed          all on the loop
    a plain function    coroutine dependencies, on the loop
                          └► thread: call middleware ─► the other dependencies ─► handler ─► closed ─► middleware left
                             └► closed, on the loop

Everything is closed before the outcome of the job is decided, whichever way it ends.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from taskharbor.model.errors import LifespanFailed
from taskharbor.model.naming import class_name
from taskharbor.policy.describe import summary
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.dependencies import ContextSource, DependencyNode, GivenSource, Injection, Source
from taskharbor.tasks.handler import Handler
from taskharbor.tasks.lifespan import Getter, GivenMismatch, Lifespan, getter
from taskharbor.tasks.overrides import Overrides
from taskharbor.worker.middleware import CallMiddleware, await_within, call_within

logger = logging.getLogger("taskharbor.job")

NO_LIFESPAN: Any = object()


class Opened:
    """The values of one job's dependencies, closed when its block is left, the last first. `given` reads what the
    lifespan gave. `before`: what was opened elsewhere and is closed there.

    An exception of the handler is thrown into each generator, so that it can roll back; it cannot swallow it. What a
    generator raises while it is closed is the job's failure if the job had succeeded until then. After a failure it is
    added to that failure as a note, and logged by its class: the first failure says why the job ended. Only a
    TaskGroup, which cancels the handler because a task has failed, raises the failure that counts.
    """

    def __init__(self, context: JobContext, given: Callable[[GivenSource], Any], before: Opened | None = None) -> None:
        self._context = context
        self._given = given
        self._values: dict[DependencyNode, Any] = {} if before is None else dict(before._values)
        self._open: list[tuple[DependencyNode, Any]] = []  # what has to be closed: its context manager

    def value(self, source: Source) -> Any:
        """What a parameter receives."""
        if isinstance(source, DependencyNode):
            return self._values[source]
        return self._context if isinstance(source, ContextSource) else self._given(source)

    def values(self, parameters: tuple[tuple[str, Source], ...]) -> Mapping[str, Any]:
        """What several parameters receive, by name."""
        return {name: self.value(source) for name, source in parameters}

    async def open(self, node: DependencyNode) -> None:
        """Make the value of a node. Without an asynchronous node nothing is awaited."""
        made = node.function(**self.values(node.parameters))
        if node.closes:
            enters, managed = ("__aenter__", asynccontextmanager) if node.is_async else ("__enter__", contextmanager)
            manager: Any = made if hasattr(made, enters) else managed(lambda: made)()
            try:
                made = await manager.__aenter__() if node.is_async else manager.__enter__()
            except RuntimeError as error:
                _refuse_without_yield(node, error)
                raise
            self._open.append((node, manager))
        elif node.is_async and inspect.isawaitable(made):  # a wrapper of a coroutine function may be a plain function
            made = await made
        self._values[node] = made if node.is_async else _checked(node, made)

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, kind: object, failure: BaseException | None, trace: object) -> None:
        _finish(self._close(failure))

    async def __aenter__(self) -> Opened:
        return self

    async def __aexit__(self, kind: object, failure: BaseException | None, trace: object) -> None:
        if kind is not GeneratorExit:  # then this coroutine is discarded with its loop: nothing can be awaited any more
            await self._close(failure)

    async def _close(self, failure: BaseException | None) -> None:
        """Close what was opened. A cancellation meanwhile leaves nothing open."""
        raised = failure
        while self._open:
            node, manager = self._open.pop()
            try:
                if node.is_async:
                    await manager.__aexit__(*_details(failure))
                else:
                    manager.__exit__(*_details(failure))
            except BaseException as error:
                if node.is_async and isinstance(error, GeneratorExit):
                    raise
                failure = self._after(node, failure, error)
        if failure is not None and failure is not raised:
            raise failure

    def _after(self, node: DependencyNode, failure: BaseException | None, error: BaseException) -> BaseException:
        """The failure after a dependency could not be closed."""
        if failure is None or error is failure:
            return error
        is_stopped = self._context.cancelled._reason is not None  # `reason` would count as the handler's test
        if issubclass(type(failure), asyncio.CancelledError) and not is_stopped:
            return _only(error)  # of a TaskGroup, which cancels the handler because a task has failed
        job = self._context.job
        try:
            failure.add_note(f"closing {node.name} failed too: {summary(error)}")
            logger.warning(  # by class alone: the text of an exception may quote a payload
                "job %s: closing %s failed with %s, after the job had failed",
                job.id,
                node.name,
                class_name(error),
                extra={"job_id": job.id, "job_type": job.type, "queue": job.queue},
            )
        except Exception:  # an exception may refuse notes, and a log handler may fail
            return failure
        return failure


def _only(error: BaseException) -> BaseException:
    """The error itself; of a group with one member, that one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that awaits nothing: what is opened in the thread of a plain function is never asynchronous."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise RuntimeError("expected nothing to await")


def _details(failure: BaseException | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if failure is None else (type(failure), failure, failure.__traceback__)


def _refuse_without_yield(node: DependencyNode, error: RuntimeError) -> None:
    """The error for a generator that did not yield, with its name, which contextlib does not know."""
    if error.args == ("generator didn't yield",):
        raise RuntimeError(
            f"the dependency {node.name} ended without a yield; expected it to yield its value once"
        ) from None


def _checked(node: DependencyNode, value: Any) -> Any:
    """The value of a plain function; TypeError if it is a coroutine, which nothing would await."""
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError(f"the dependency {node.name} returned a coroutine; make it an async def, so that it is awaited")
    return value


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
        async with Opened(context, self.given) as opened:
            for node in injection.on_loop:
                await opened.open(node)
            run = partial(self.call_handler, handler, injection, values, context, check, opened)
            if layers:
                run = partial(call_within, layers, context, run)
            check()
            return await in_thread(run)

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
        with Opened(context, self.given, before) as opened:
            for node in injection.in_thread:
                _finish(opened.open(node))
            args, kwargs = handler.assemble(values, context, opened.values(injection.parameters))
            check()
            return handler.function(*args, **kwargs)

    async def _await_handler(
        self,
        handler: Handler,
        injection: Injection,
        values: tuple[Any, ...],
        context: JobContext,
        check: Callable[[], None],
    ) -> Any:
        async with Opened(context, self.given) as opened:
            for node in injection.on_loop:
                await opened.open(node)
            args, kwargs = handler.assemble(values, context, opened.values(injection.parameters))
            check()
            return await handler.function(*args, **kwargs)

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
