"""The client: requests and calls in, handles out.

A blocking method runs the same coroutine as its awaitable twin (`x` → `ax`): on the calling thread if the driver has
blocking calls, else on the portal's loop. So everything is written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from taskharbor.client.handle import JobHandle
from taskharbor.client.request import JobRequest
from taskharbor.client.store_calls import StoreFace
from taskharbor.drivers.base import Driver
from taskharbor.model.bounds import check_name
from taskharbor.model.clock import Clock
from taskharbor.model.codec import Codec
from taskharbor.model.events import Observer
from taskharbor.model.job import DEFAULT_QUEUE
from taskharbor.model.lease import Enqueued
from taskharbor.model.times import Duration
from taskharbor.store.access import refuse_on_loop
from taskharbor.store.enqueue import EnqueueMiddleware
from taskharbor.store.session import CALL_TIMEOUT, Store, one_connection
from taskharbor.tasks.prepare import TaskCall, prepare_all
from taskharbor.tasks.signature import Signature


class Client(StoreFace):
    """Enqueues jobs and finds them again, by the names of their types. A `Harbor` has one: `harbor.client`.

    >>> with Client("memory://") as client:
    ...     job = client.enqueue(JobRequest(type="email:send", payload={"to": "ada"}))
    ...     print(job.status())
    ready

    Options:
        driver_or_dsn: The store: a DSN or a driver. Default: `$TASKHARBOR_DSN`, else the file taskharbor.db.
        codec: How payloads and results become bytes. Default: `JsonCodec()`.
        clock: What time it is. Default: the clock of the store.
        observers: Functions that receive the events of this client.
        enqueue_middleware: Context managers around the storing of jobs.
        default_queue: The queue of requests that name none. Default: "default".
        call_timeout: How long a call to the store may take, all its tries together; then it raises BackendUnavailable.
            Default: 10 seconds.
    """

    _called = "client"

    def __init__(
        self,
        driver_or_dsn: Driver | str | None = None,
        *,
        codec: Codec | None = None,
        clock: Clock | None = None,
        observers: Iterable[Observer] = (),
        enqueue_middleware: Iterable[EnqueueMiddleware] = (),
        default_queue: str = DEFAULT_QUEUE,
        call_timeout: Duration = CALL_TIMEOUT,
    ) -> None:
        self._store = Store(
            driver_or_dsn,
            codec=codec,
            clock=clock,
            observers=observers,
            enqueue_middleware=enqueue_middleware,
            default_queue=default_queue,
            call_timeout=call_timeout,
        )

    def __repr__(self) -> str:
        return f"Client({self._store.drivers!r})"

    # Enqueueing ----------------------------------------------------------------------------------------------

    def enqueue(self, request: JobRequest) -> JobHandle[Any]:
        """Store one job; blocks until it is stored."""
        return self._enqueue_calls([_to_call(request, self._store.codec)], "client.enqueue")[0]

    async def aenqueue(self, request: JobRequest) -> JobHandle[Any]:
        """The same, awaited."""
        return (await self._aenqueue_calls([_to_call(request, self._store.codec)]))[0]

    def enqueue_many(self, requests: Iterable[JobRequest]) -> list[JobHandle[Any]]:
        """Store many jobs in one round trip, all or none; blocks until they are stored."""
        return self._enqueue_calls(_to_calls(requests, self._store.codec), "client.enqueue_many")

    async def aenqueue_many(self, requests: Iterable[JobRequest]) -> list[JobHandle[Any]]:
        """Store many jobs in one round trip, all or none."""
        return await self._aenqueue_calls(_to_calls(requests, self._store.codec))

    def _enqueue_calls(self, calls: Sequence[TaskCall], method: str) -> list[JobHandle[Any]]:
        """Store calls of tasks. `method` is how errors name the blocking method, such as "client.enqueue"."""
        if not calls:
            refuse_on_loop(method)
            return []
        prepare = partial(prepare_all, calls, self._store.default_queue)
        connection = one_connection([call.options.connection for call in calls])
        return self._handles(calls, self._store.enqueue(prepare, connection, method))

    async def _aenqueue_calls(self, calls: Sequence[TaskCall]) -> list[JobHandle[Any]]:
        """Store calls of tasks."""
        if not calls:
            return []
        prepare = partial(prepare_all, calls, self._store.default_queue)
        connection = one_connection([call.options.connection for call in calls])
        return self._handles(calls, await self._store.aenqueue(prepare, connection))

    def _handles(self, calls: Sequence[TaskCall], results: list[Enqueued]) -> list[JobHandle[Any]]:
        return [
            JobHandle(self._store, result.id, result.existed, call.returns, call.type, call.signature)
            for call, result in zip(calls, results, strict=True)
        ]

    # Finding again -------------------------------------------------------------------------------------------

    def handle(self, id: str, returns: Any = Any) -> JobHandle[Any]:
        """The handle of a job enqueued earlier or elsewhere. `returns`: the type to read its result as."""
        check_name(id, "id")
        return JobHandle(self._store, id, True, returns)

    def _task_handle(self, id: str, type: str, signature: Signature) -> JobHandle[Any]:
        """The handle of a job of a task: its result is read as what the function returns."""
        check_name(id, "id")
        return JobHandle(self._store, id, True, signature.return_type, type, signature)


def _to_call(request: JobRequest, codec: Codec) -> TaskCall:
    if not isinstance(request, JobRequest):
        raise TypeError(f"expected a JobRequest(type=…, payload=…), got {type(request).__name__}")
    return request.call(codec)


def _to_calls(requests: Iterable[JobRequest], codec: Codec) -> list[TaskCall]:
    if not isinstance(requests, Iterable):
        raise TypeError(f"expected several JobRequest(type=…, payload=…), got {type(requests).__name__}")
    return [_to_call(request, codec) for request in requests]
