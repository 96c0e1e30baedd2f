"""What was made for the injected parameters of one job: opened in the order of need, closed in the reverse order.

An exception of the handler is thrown into each generator, so that it can roll back; it cannot swallow it. What a
generator raises while it is closed is the job's failure if the job had succeeded until then. After a failure it is
added to that failure as a note, and logged by its class: the first failure says why the job ended.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from taskharbor.model.naming import class_name
from taskharbor.policy.describe import summary
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.dependencies import ContextSource, DependencyNode, GivenSource, Source

logger = logging.getLogger("taskharbor.job")


class Opened:
    """The values of one job's dependencies. `given` reads what the lifespan gave. `before`: what was opened elsewhere
    and is closed there."""

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

    # In the thread of a plain function -----------------------------------------------------------------------

    def open(self, node: DependencyNode) -> None:
        """Make the value of a node that is not awaited."""
        made = node.function(**self.values(node.parameters))
        if node.closes:
            manager = made if hasattr(made, "__enter__") else contextmanager(lambda: made)()
            try:
                made = manager.__enter__()
            except RuntimeError as error:
                _refuse_without_yield(node, error)
                raise
            self._open.append((node, manager))
        self._values[node] = _checked(node, made)

    def close(self, failure: BaseException | None) -> BaseException | None:
        """Close everything, the last first; return the failure with which the job ends, if there is one. A failure that
        is given stays."""
        while self._open:
            node, manager = self._open.pop()
            try:
                manager.__exit__(*_details(failure))
            except BaseException as error:
                failure = self._after(node, failure, error)
        return failure

    # On the loop ---------------------------------------------------------------------------------------------

    async def aopen(self, node: DependencyNode) -> None:
        """Make the value of a node."""
        if not node.is_async:
            self.open(node)
            return
        made = node.function(**self.values(node.parameters))
        if node.closes:
            manager = made if hasattr(made, "__aenter__") else asynccontextmanager(lambda: made)()
            try:
                self._values[node] = await manager.__aenter__()
            except RuntimeError as error:
                _refuse_without_yield(node, error)
                raise
            self._open.append((node, manager))
        else:
            # a wrapper of a coroutine function may be a plain function
            self._values[node] = await made if inspect.isawaitable(made) else made

    async def aclose(self, failure: BaseException | None) -> BaseException | None:
        """The same as `close` for what was opened on the loop. A cancellation meanwhile leaves nothing open."""
        while self._open:
            node, manager = self._open.pop()
            try:
                if node.is_async:
                    await manager.__aexit__(*_details(failure))
                else:
                    manager.__exit__(*_details(failure))
            except GeneratorExit:  # this coroutine is discarded with its loop: nothing can be awaited any more
                raise
            except BaseException as error:
                failure = self._after(node, failure, error)
        return failure

    def _after(self, node: DependencyNode, failure: BaseException | None, error: BaseException) -> BaseException:
        """The failure after a dependency could not be closed."""
        if failure is None or error is failure:
            return error
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
