"""Both clients: every operation of the OmniQ contract, and the extras that published clients have.

An operation (operations.py) has the signature and the help of the method; a script runner sends it. `OmniQ` may be used
from many threads at once; `AsyncOmniQ` belongs to one event loop.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from taskharbor.model.clock import StoreClock
from taskharbor.omniq import operations
from taskharbor.omniq.consumer import ConsumeCall, consumer_steps, refuse_coroutine_function
from taskharbor.omniq.consumer_runs import TaskInbox, ThreadInbox, run_as_tasks, run_in_threads
from taskharbor.omniq.operations import OmniqCall
from taskharbor.omniq.script_runner import AsyncScriptRunner, ScriptRunner

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])


def _described(method: M, call: Callable[..., Any]) -> M:
    """The method with the signature that `help` shows: that of the call, whose result is what the method returns."""
    signature = inspect.signature(call)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    returned = str(signature.return_annotation).removeprefix("OmniqCall[").removesuffix("]")
    shown = signature.replace(parameters=[own, *signature.parameters.values()], return_annotation=returned)
    method.__signature__ = shown  # type: ignore[attr-defined]  # inspect reads it
    return method


def _blocking(operation: Callable[P, OmniqCall[T]]) -> Callable[Concatenate[OmniQ, P], T]:
    """An operation as a method that blocks."""

    @wraps(operation)
    def method(self: OmniQ, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._runner.run(operation(*args, **kwargs))

    return _described(method, operation)


def _awaited(operation: Callable[P, OmniqCall[T]]) -> Callable[Concatenate[AsyncOmniQ, P], Coroutine[Any, Any, T]]:
    """An operation as a method that is awaited."""

    @wraps(operation)
    async def method(self: AsyncOmniQ, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._runner.run(operation(*args, **kwargs))

    return _described(method, operation)


def _consuming(make: Callable[P, ConsumeCall]) -> Callable[Concatenate[OmniQ, P], None]:
    def consume(self: OmniQ, /, *args: P.args, **kwargs: P.kwargs) -> None:
        call = make(*args, **kwargs)
        refuse_coroutine_function(call.handler)
        inbox = ThreadInbox()
        self._inboxes.add(inbox)
        try:
            run_in_threads(consumer_steps(call, StoreClock().monotonic), inbox, call.handler, self._runner.run)
        finally:
            self._inboxes.discard(inbox)

    consume.__doc__ = make.__doc__
    return _described(consume, make)


def _awaiting(make: Callable[P, ConsumeCall]) -> Callable[Concatenate[AsyncOmniQ, P], Coroutine[Any, Any, None]]:
    async def consume(self: AsyncOmniQ, /, *args: P.args, **kwargs: P.kwargs) -> None:
        call = make(*args, **kwargs)
        inbox = TaskInbox()
        self._inboxes.add(inbox)
        try:
            await run_as_tasks(consumer_steps(call, StoreClock().monotonic), inbox, call.handler, self._runner.run)
        finally:
            self._inboxes.discard(inbox)

    consume.__doc__ = make.__doc__
    return _described(consume, make)


class OmniQ:
    """OmniQ v1 on Redis: `OmniQ("redis://…")`, or around a redis-py client (bytes or text, standalone or Cluster).

    Without `now_ms_override` the server's clock decides. Errors carry the contract's `code`; a server that cannot be
    reached is `BackendUnavailable`.
    """

    def __init__(self, target: Any) -> None:
        self._runner = ScriptRunner(target)
        self._inboxes: set[ThreadInbox] = set()

    def close(self) -> None:
        """Close the connections, unless they belong to a client that the caller passed."""
        self._runner.close()

    def __enter__(self) -> OmniQ:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # The contract
    publish = _blocking(operations.publish)
    reserve = _blocking(operations.reserve)
    heartbeat = _blocking(operations.heartbeat)
    ack_success = _blocking(operations.ack_success)
    ack_fail = _blocking(operations.ack_fail)
    promote_delayed = _blocking(operations.promote_delayed)
    reap_expired = _blocking(operations.reap_expired)
    pause = _blocking(operations.pause)
    resume = _blocking(operations.resume)
    is_paused = _blocking(operations.is_paused)
    consume = _consuming(ConsumeCall)

    def stop(self) -> None:
        """Stop every `consume` of this client, as a signal does. From any thread."""
        for inbox in list(self._inboxes):
            inbox.stop()

    # Beyond the contract
    give_back = _blocking(operations.give_back)
    retry_failed = _blocking(operations.retry_failed)
    retry_failed_batch = _blocking(operations.retry_failed_batch)
    remove_job = _blocking(operations.remove_job)
    remove_jobs_batch = _blocking(operations.remove_jobs_batch)
    purge_failed = _blocking(operations.purge_failed)
    set_group_limit = _blocking(operations.set_group_limit)
    childs_init = _blocking(operations.childs_init)
    child_ack = _blocking(operations.child_ack)


class AsyncOmniQ:
    """OmniQ v1 on Redis, awaited: `AsyncOmniQ("redis://…")`, or around a client of `redis.asyncio`. See `OmniQ`."""

    def __init__(self, target: Any) -> None:
        self._runner = AsyncScriptRunner(target)
        self._inboxes: set[TaskInbox] = set()

    async def close(self) -> None:
        """Close the connections, unless they belong to a client that the caller passed."""
        await self._runner.close()

    async def __aenter__(self) -> AsyncOmniQ:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    # The contract
    publish = _awaited(operations.publish)
    reserve = _awaited(operations.reserve)
    heartbeat = _awaited(operations.heartbeat)
    ack_success = _awaited(operations.ack_success)
    ack_fail = _awaited(operations.ack_fail)
    promote_delayed = _awaited(operations.promote_delayed)
    reap_expired = _awaited(operations.reap_expired)
    pause = _awaited(operations.pause)
    resume = _awaited(operations.resume)
    is_paused = _awaited(operations.is_paused)
    consume = _awaiting(ConsumeCall)

    def stop(self) -> None:
        """Stop every `consume` of this client, as a signal does. From any thread."""
        for inbox in list(self._inboxes):
            inbox.stop()

    # Beyond the contract
    give_back = _awaited(operations.give_back)
    retry_failed = _awaited(operations.retry_failed)
    retry_failed_batch = _awaited(operations.retry_failed_batch)
    remove_job = _awaited(operations.remove_job)
    remove_jobs_batch = _awaited(operations.remove_jobs_batch)
    purge_failed = _awaited(operations.purge_failed)
    set_group_limit = _awaited(operations.set_group_limit)
    childs_init = _awaited(operations.childs_init)
    child_ack = _awaited(operations.child_ack)
