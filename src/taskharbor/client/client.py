"""The client: requests and calls in, handles out.

A blocking method runs the same coroutine as its awaitable twin (`x` → `ax`): on the calling thread if the driver has
blocking calls, else on the portal's loop. So everything is written once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from copy import copy
from functools import partial
from typing import Any, Self, TypeVar

from taskharbor.client.access import AwaitedAccess, StoreAccess, run_on_this_thread
from taskharbor.client.budget import CALL_TIMEOUT, Budget, seconds_of
from taskharbor.client.closing import ClosedAfterBlock, limited_by_block
from taskharbor.client.driver_per_loop import DriverPerLoop
from taskharbor.client.enqueue import Enqueuer
from taskharbor.client.enqueue_middleware import EnqueueMiddleware, PrepareRecords
from taskharbor.client.handle import JobHandle
from taskharbor.client.lookup import JobLookup
from taskharbor.client.portal import Portal, refuse_on_loop
from taskharbor.client.request import JobRequest
from taskharbor.client.store_calls import StoreCalls
from taskharbor.client.twins import both
from taskharbor.drivers.base import Driver
from taskharbor.model.bounds import check_name
from taskharbor.model.clock import CLOCK_METHODS, Clock, StoreClock
from taskharbor.model.codec import Codec, JsonCodec
from taskharbor.model.events import Event, Observer, Observers
from taskharbor.model.job import DEFAULT_QUEUE, FlowInfo
from taskharbor.model.lease import Enqueued
from taskharbor.model.times import Duration
from taskharbor.model.validation import callables, with_methods
from taskharbor.observe.log import logged
from taskharbor.tasks.options import Options
from taskharbor.tasks.prepare import TaskCall, prepare_all
from taskharbor.tasks.signature import Signature

T = TypeVar("T")

OF_A_STORE = ("clock", "enqueuer", "lookup", "is_isolated", "_drivers", "awaited")
"""What a client has for one store and one clock."""

PORTAL_SLACK_S = 1.0  # for a call whose budget is spent to end by itself, before its caller stops waiting for it


class Client(StoreCalls, ClosedAfterBlock):
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
        check_name(default_queue, "default_queue")
        self._call_timeout = seconds_of(call_timeout, "call_timeout")
        self.codec: Codec = JsonCodec() if codec is None else with_methods(codec, "codec", "encode", "decode")
        self.clock: Clock = StoreClock() if clock is None else with_methods(clock, "clock", *CLOCK_METHODS)
        self.default_queue = default_queue
        self._put_aside: list[dict[str, Any]] = []  # by each block of `isolated` that runs
        self.is_isolated = False  # within a block of `taskharbor.testing.isolated`
        self._observers = Observers(logged(callables(observers, "observers")))
        self.enqueuer = Enqueuer(self.clock, callables(enqueue_middleware, "enqueue_middleware"), self._observers)
        self.lookup = JobLookup(self.clock, self.codec)
        self.portal = Portal()
        self.use(driver_or_dsn)

    def __repr__(self) -> str:
        return f"Client({self._drivers!r})"

    @property
    def _client(self) -> Client:
        return self

    @property
    def enqueue_middleware(self) -> Sequence[EnqueueMiddleware]:
        """The context managers around every enqueue, outermost first. May be replaced, as OpenTelemetry does."""
        return self.enqueuer.middleware

    @enqueue_middleware.setter
    def enqueue_middleware(self, middleware: Sequence[EnqueueMiddleware]) -> None:
        self.enqueuer.middleware = middleware

    @property
    def driver(self) -> Driver:
        """The driver that was given, or the one the DSN names."""
        return self._drivers.driver

    @property
    def dsn(self) -> str | None:
        """The address of the store, with its password; None if a driver was given."""
        return self._drivers.dsn

    def use(self, driver_or_dsn: Driver | str | None) -> None:
        """Use another store from now on. For programs that run an application's tasks on a store of their choice,
        before its first call: what was opened before stays open."""
        self._drivers = DriverPerLoop(driver_or_dsn, self.clock)
        self.awaited: StoreAccess = AwaitedAccess(self._drivers)

    def isolate(self, driver_or_dsn: Driver | str, clock: Clock | None) -> dict[str, Any]:
        """Use an empty store and another clock until `restore`; returns what to restore. For tests: see
        `taskharbor.testing.isolated`."""
        before = {name: getattr(self, name) for name in OF_A_STORE}
        if clock is not None:
            self.clock = with_methods(clock, "clock", *CLOCK_METHODS)
        elif type(self.clock) is StoreClock:  # which follows the other store
            self.clock = StoreClock()
        self.enqueuer = self.enqueuer.on_clock(self.clock)
        self.lookup = JobLookup(self.clock, self.codec)
        self.is_isolated = True
        self.use(driver_or_dsn)
        self._put_aside.append(before)
        return before

    def restore(self, before: dict[str, Any]) -> DriverPerLoop:
        """Use the former store and clock again; returns the drivers that were used meanwhile, for closing.

        A block that began later and still runs, as where tests run at once, keeps its own: the real store must not come
        back before the last block has ended.
        """
        place = next(index for index, each in enumerate(self._put_aside) if each is before)
        del self._put_aside[place]
        if place < len(self._put_aside):
            later = self._put_aside[place]  # has put aside what this block used
            drivers: DriverPerLoop = later["_drivers"]
            later.update(before)
            return drivers
        drivers = self._drivers
        for name, value in before.items():
            setattr(self, name, value)
        return drivers

    def close_isolated(self, drivers: DriverPerLoop) -> None:
        """Close what blocking calls have opened within a block."""
        drivers.close_blocking()
        if self.portal.loop is not None:
            self.portal.call(drivers.close, "isolated", self._call_timeout + PORTAL_SLACK_S)

    @property
    def observers(self) -> Observers:
        """The observers of what this client does."""
        return self._observers

    def observe(self, observer: Observer) -> None:
        """Add an observer of what this client does."""
        self._observers.add(observer)

    def emit(self, event: Event) -> None:
        """Tell the observers of something that this client did."""
        self._observers.emit(event)

    # Enqueueing ----------------------------------------------------------------------------------------------

    def enqueue(self, request: JobRequest) -> JobHandle[Any]:
        """Store one job; blocks until it is stored."""
        return self.enqueue_calls([_to_call(request, self.codec)], "client.enqueue")[0]

    async def aenqueue(self, request: JobRequest) -> JobHandle[Any]:
        """The same, awaited."""
        return (await self.aenqueue_calls([_to_call(request, self.codec)]))[0]

    def enqueue_many(self, requests: Iterable[JobRequest]) -> list[JobHandle[Any]]:
        """Store many jobs in one round trip, all or none; blocks until they are stored."""
        return self.enqueue_calls(_to_calls(requests, self.codec), "client.enqueue_many")

    async def aenqueue_many(self, requests: Iterable[JobRequest]) -> list[JobHandle[Any]]:
        """Store many jobs in one round trip, all or none."""
        return await self.aenqueue_calls(_to_calls(requests, self.codec))

    def enqueue_calls(self, calls: Sequence[TaskCall], method: str) -> list[JobHandle[Any]]:
        """Store calls of tasks. `method` is how errors name the blocking method, such as "client.enqueue"."""
        if not calls:
            refuse_on_loop(method)
            return []
        options = [call.options for call in calls]
        prepare = partial(prepare_all, calls, self.default_queue)
        results = self.store(prepare, one_connection(options), method)
        return self._handles(calls, results)

    async def aenqueue_calls(self, calls: Sequence[TaskCall]) -> list[JobHandle[Any]]:
        """Store calls of tasks."""
        if not calls:
            return []
        options = [call.options for call in calls]
        prepare = partial(prepare_all, calls, self.default_queue)
        results = await self.astore(prepare, one_connection(options))
        return self._handles(calls, results)

    def store(self, prepare: PrepareRecords, connection: Any, method: str) -> list[Enqueued]:
        """Store the records that `prepare` returns; blocks until they are stored. With a `connection` of the caller's,
        on that one and within its transaction."""
        if connection is None:
            return self.blocking(lambda access: self._store(access, prepare), method)
        refuse_on_loop(method)
        return self.enqueuer.store_on_sync(connection, self._drivers.unopened(), prepare)

    async def astore(self, prepare: PrepareRecords, connection: Any) -> list[Enqueued]:
        """The same, awaited."""
        if connection is None:
            return await self._store(self.awaited, prepare)
        return await self.enqueuer.store_on(connection, self._drivers.unopened(), prepare)

    async def _store(self, access: StoreAccess, prepare: PrepareRecords) -> list[Enqueued]:
        return await self.enqueuer.store(prepare, self.budget(access, "enqueue"))

    def _handles(self, calls: Sequence[TaskCall], results: list[Enqueued]) -> list[JobHandle[Any]]:
        pairs = zip(calls, results, strict=True)
        return [
            JobHandle(self, result.id, result.existed, call.returns, call.type, call.signature)
            for call, result in pairs
        ]

    # Finding again -------------------------------------------------------------------------------------------

    def handle(self, id: str, returns: Any = Any) -> JobHandle[Any]:
        """The handle of a job enqueued earlier or elsewhere. `returns`: the type to read its result as."""
        check_name(id, "id")
        return JobHandle(self, id, True, returns)

    def task_handle(self, id: str, type: str, signature: Signature) -> JobHandle[Any]:
        """The handle of a job of a task: its result is read as what the function returns."""
        check_name(id, "id")
        return JobHandle(self, id, True, signature.return_type, type, signature)

    @both
    async def flow(self, budget: Budget, id: str) -> FlowInfo:
        """A workflow run by its id; blocks for one read of the store."""
        return await self.lookup.flow(id, budget)

    aflow = flow.awaited

    # Calling the store ---------------------------------------------------------------------------------------

    def budget(self, access: StoreAccess, what: str) -> Budget:
        """The time that a call has from now on."""
        return Budget(access, self._seconds(), what)

    def _seconds(self) -> float:
        limited = limited_by_block(self) if self._original is None else None
        return self._call_timeout if limited is None else limited

    def within(self, seconds: Duration) -> Self:
        """This client with another time limit for each call, retries included: `client.within(3).handle(id).status()`.
        As a `with` block it holds for every call that is made through this client in the block."""
        other = copy(self)
        other._original = self._original or self
        other._call_timeout = other._limit_of_block = seconds_of(seconds, "within")
        return other

    def is_same(self, other: Client) -> bool:
        """Whether the other one is this client, perhaps with another time limit."""
        return (self._original or self) is (other._original or other)

    def blocking(
        self,
        call: Callable[[StoreAccess], Coroutine[Any, Any, T]],
        method: str,
        *,
        polls: bool = False,
        instead: str = "",
    ) -> T:
        """Run a call for a caller that blocks: on this thread if the driver can, otherwise on the portal.

        The call ends by its own budget. If a driver on the portal does not end then, the caller stops waiting for it
        shortly afterwards. For a call that `polls` there is no such limit. `instead`: what to use on
        an event loop, if it is not the awaitable twin.
        """
        refuse_on_loop(method, instead)
        access = self._drivers.blocking()
        if access is not None:
            return run_on_this_thread(call, access)
        limit = None if polls else self._seconds() + PORTAL_SLACK_S
        return self.portal.call(lambda: call(self.awaited), method, limit)

    # Closing -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close what blocking calls opened, and end their thread if there is one. The next call opens it again."""
        refuse_on_loop("client.close")
        self._drivers.close_blocking()
        if self.portal.loop is not None:
            self.portal.call(self._close_drivers, "client.close", self._call_timeout + PORTAL_SLACK_S)
        self.portal.stop()

    async def aclose(self) -> None:
        """Close what this event loop opened, and what blocking calls did."""
        await self._close_drivers()
        if self.portal.loop is not None or self._drivers.is_blocking():
            await asyncio.to_thread(self.close)

    async def _close_drivers(self) -> None:
        """Close the running loop's driver. A store that does not respond must not keep a program from ending: it is
        left after the time of any call."""
        try:
            async with asyncio.timeout(self._call_timeout) as limit:
                await self._drivers.close()
        except TimeoutError:
            if not limit.expired():
                raise


def one_connection(all_options: Sequence[Options]) -> Any:
    """The connection that all calls share; ValueError if they differ, for one transaction has one connection."""
    first = all_options[0].connection if all_options else None
    for options in all_options:
        if options.connection is not first:
            raise ValueError(
                "expected one connection= for all jobs of a call, got different ones; enqueue them separately"
            )
    return first


def _to_call(request: JobRequest, codec: Codec) -> TaskCall:
    if not isinstance(request, JobRequest):
        raise TypeError(f"expected a JobRequest(type=…, payload=…), got {type(request).__name__}")
    return request.call(codec)


def _to_calls(requests: Iterable[JobRequest], codec: Codec) -> list[TaskCall]:
    if not isinstance(requests, Iterable):
        raise TypeError(f"expected several JobRequest(type=…, payload=…), got {type(requests).__name__}")
    return [_to_call(request, codec) for request in requests]
