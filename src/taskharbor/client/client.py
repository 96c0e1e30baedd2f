"""The client: requests and calls in, handles out. It owns the drivers that it opened, one for each event loop.

Every method that blocks runs its awaitable twin (`x` → `ax`) on the portal, so that the I/O is written once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from taskharbor.client import polling
from taskharbor.client.budget import CALL_TIMEOUT, Budget, in_doubt, seconds_of
from taskharbor.client.driver_per_loop import LoopDrivers
from taskharbor.client.enqueue_middleware import EnqueueMiddleware, Make, around
from taskharbor.client.external_jobs import look_at_flow, stuck, waits_outside
from taskharbor.client.handle import JobHandle
from taskharbor.client.portal import Portal, refuse_on_loop
from taskharbor.client.request import JobRequest
from taskharbor.client.sent_keys import SentKeys
from taskharbor.drivers.contract import Driver
from taskharbor.model.bounds import check_name
from taskharbor.model.clock import CLOCK_METHODS, Clock, StoreClock
from taskharbor.model.codec import Codec, JsonCodec, type_name
from taskharbor.model.errors import BackendUnavailable, JobNotFound
from taskharbor.model.events import JobEnqueued, KeyConflict, Observer, Observers
from taskharbor.model.job import DEFAULT_QUEUE, FlowInfo, JobInfo, JobRecord, State, replace
from taskharbor.model.lease import Enqueued
from taskharbor.model.times import Duration
from taskharbor.model.validation import callables, with_methods
from taskharbor.observe.log import logged
from taskharbor.tasks.flow_metadata import JOIN_TYPE
from taskharbor.tasks.options import Options
from taskharbor.tasks.payload_errors import describe
from taskharbor.tasks.prepare import Call, prepare
from taskharbor.tasks.results import Results, compose

T = TypeVar("T")

TRIES = 5
FIRST_BACKOFF = 0.05  # doubled each time, plus up to as much again: about 1.5 seconds in all
SLACK = 1.0  # seconds for a call whose budget is spent to end by itself, before whoever blocks for it stops waiting


class Client:
    """Enqueues jobs and finds them again."""

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
        """`call_timeout`: how long any call to the store may take, all its tries together, unless the call says
        otherwise; then it is BackendUnavailable."""
        check_name(default_queue, "default_queue")
        self._call_timeout = seconds_of(call_timeout, 0)
        self.codec: Codec = JsonCodec() if codec is None else with_methods(codec, "codec", "encode", "decode")
        self.clock: Clock = StoreClock() if clock is None else with_methods(clock, "clock", *CLOCK_METHODS)
        self.default_queue = default_queue
        self.enqueue_middleware = callables(enqueue_middleware, "enqueue_middleware")
        self.portal = Portal()
        self.on_stored: Callable[[Sequence[JobRecord]], None] | None = None  # looks at what was stored
        self._keys = SentKeys()
        self._drivers = LoopDrivers(driver_or_dsn, self.clock)
        self._observers = Observers(logged(callables(observers, "observers")))

    def __repr__(self) -> str:
        return f"Client({self._drivers!r})"

    @property
    def driver(self) -> Driver:
        """The driver that was given, or the one the DSN names."""
        return self._drivers.driver

    @property
    def dsn(self) -> str | None:
        """The address of the store, password and all; None if a driver was given."""
        return self._drivers.dsn

    def use(self, driver_or_dsn: Driver | str) -> None:
        """Talk to another store from now on. For programs that run an application's tasks on a store of their choice,
        before its first call: what was opened before stays open."""
        self._drivers = LoopDrivers(driver_or_dsn, self.clock)

    def observe(self, observer: Observer) -> None:
        """Have one more observer hear what this client does."""
        self._observers.add(observer)

    # Enqueueing ----------------------------------------------------------------------------------------------

    def enqueue(self, request: JobRequest, *, call_timeout: Duration | None = None) -> JobHandle[Any]:
        """Store one job; blocks until it is stored."""
        return self.enqueue_calls([self._asked(request)], "client.enqueue", call_timeout)[0]

    async def aenqueue(self, request: JobRequest, *, call_timeout: Duration | None = None) -> JobHandle[Any]:
        """Store one job."""
        return (await self.aenqueue_calls([self._asked(request)], call_timeout))[0]

    def enqueue_many(
        self, requests: Iterable[JobRequest], *, call_timeout: Duration | None = None
    ) -> list[JobHandle[Any]]:
        """Store many jobs in one round trip, all or none; blocks until they are stored."""
        return self.enqueue_calls(self._all_asked(requests), "client.enqueue_many", call_timeout)

    async def aenqueue_many(
        self, requests: Iterable[JobRequest], *, call_timeout: Duration | None = None
    ) -> list[JobHandle[Any]]:
        """Store many jobs in one round trip, all or none."""
        return await self.aenqueue_calls(self._all_asked(requests), call_timeout)

    def _asked(self, request: JobRequest) -> Call:
        if not isinstance(request, JobRequest):
            raise TypeError(f"expected a JobRequest(type=…, payload=…), got {type(request).__name__}")
        return request.call(self.codec)

    def _all_asked(self, requests: Iterable[JobRequest]) -> list[Call]:
        if not isinstance(requests, Iterable):
            raise TypeError(f"expected several JobRequest(type=…, payload=…), got {type(requests).__name__}")
        return [self._asked(request) for request in requests]

    def enqueue_calls(
        self, calls: Sequence[Call], who: str, call_timeout: Duration | None = None
    ) -> list[JobHandle[Any]]:
        """Store calls of tasks. With `connection=`, on that connection, in this thread and without a loop."""
        if not calls:
            refuse_on_loop(who)
            return []
        options = [call.options for call in calls]
        answers = self.enqueue_made(self._maker(calls), one_connection(options), who, longest(options, call_timeout))
        return self._handles(calls, answers)

    async def aenqueue_calls(self, calls: Sequence[Call], call_timeout: Duration | None = None) -> list[JobHandle[Any]]:
        """Store calls of tasks."""
        if not calls:
            return []
        options = [call.options for call in calls]
        answers = await self.aenqueue_made(self._maker(calls), one_connection(options), longest(options, call_timeout))
        return self._handles(calls, answers)

    def _maker(self, calls: Sequence[Call]) -> Make:
        return lambda now: [prepare(call, now, self.default_queue) for call in calls]

    def _handles(self, calls: Sequence[Call], answers: list[Enqueued]) -> list[JobHandle[Any]]:
        return [JobHandle(self, a.id, a.existed, call.returns) for call, a in zip(calls, answers, strict=True)]

    def enqueue_made(
        self, make: Make, connection: Any, who: str, call_timeout: Duration | None = None
    ) -> list[Enqueued]:
        """Store the records that `make` gives for a moment; blocks until they are stored."""
        if connection is None:
            return self.blocking(lambda: self.aenqueue_made(make, None, call_timeout), who, call_timeout)
        refuse_on_loop(who)
        store = _offers(self._drivers.unopened(), "enqueue_on_sync")
        now = self.clock.now()
        with around(self.enqueue_middleware, make) as make:
            records = make(now)
            answers = store(connection, records, now)
        return self._told(records, answers)

    async def aenqueue_made(self, make: Make, connection: Any, call_timeout: Duration | None = None) -> list[Enqueued]:
        """The same, awaited. On the caller's own connection the caller's own limits hold."""
        if connection is not None:
            store = _offers(self._drivers.unopened(), "enqueue_on")
            now = self.clock.now()
            with around(self.enqueue_middleware, make) as make:
                records = make(now)
                answers = await store(connection, records, now)
            return self._told(records, answers)
        records = []
        sent = False
        budget = self.budget(call_timeout, "enqueue", lambda: in_doubt(records))

        async def send(driver: Driver) -> list[Enqueued]:
            nonlocal sent
            now = self.clock.now()
            if not records:  # made once: sent again, the same ids are the same jobs
                records.extend(make(now))
            again, sent = sent, True
            answers = await driver.enqueue(records, now)
            if again:  # a job found under its own id is the one whose answer was lost, not one that existed
                pairs = zip(answers, records, strict=True)
                answers = [Enqueued(a.id, False) if a.existed and a.id == record.id else a for a, record in pairs]
            return answers

        with around(self.enqueue_middleware, make) as make:
            answers = await self._steadily(send, budget)
        return self._told(records, answers)

    def _told(self, records: list[JobRecord], answers: list[Enqueued]) -> list[Enqueued]:
        if self.on_stored is not None:
            self.on_stored(records)
        for record, id in self._keys.conflicts(records, answers):
            self._observers.emit(KeyConflict(replace(record, id=id), ""))
        if self._observers.hears(JobEnqueued):
            for record, answer in zip(records, answers, strict=True):
                known = replace(record, id=answer.id) if answer.id != record.id else record
                self._observers.emit(JobEnqueued(known, "", answer.existed))
        return answers

    # Finding again -------------------------------------------------------------------------------------------

    def handle(self, id: str, returns: Any = Any) -> JobHandle[Any]:
        """The handle of a job enqueued earlier or elsewhere. `returns`: the type to read its result as."""
        check_name(id, "id")
        return JobHandle(self, id, True, returns)

    async def look(self, id: str, budget: Budget | None = None) -> JobInfo:
        """A job as it reads now, or the one that took its place.

        Of a workflow that took its place and has failed, or was cancelled, the job that is to blame: the one whose
        result stands for the whole would be blocked for ever.
        """

        async def look(driver: Driver) -> JobInfo:
            own, last = await self._follow(driver, id)
            if last.state.terminal or not _is_own(own.job, last.job):
                return last
            return await self._trouble(driver, last.job.flow_id or "") or last

        return await self._steadily(look, budget)

    async def look_in_flow(
        self, id: str, flow_id: str, outside: Sequence[str] = (), budget: Budget | None = None
    ) -> JobInfo:
        """A job of a flow as it reads now, or the one that took its place; or the one that made the flow fail.

        `outside`: jobs that are no part of the flow, and that it may wait for.
        """

        async def look(driver: Driver) -> JobInfo:
            _, last = await self._follow(driver, id)
            for flow in {flow_id: None, last.job.flow_id: None}:  # they differ if it was known by its key
                if not last.state.terminal and flow is not None:
                    last = await self._trouble(driver, flow) or last
            if outside and not last.state.terminal:
                last = next(iter(await stuck(driver, outside, self.clock.now())), last)
            return last

        return await self._steadily(look, budget)

    async def stuck(self, ids: Sequence[str]) -> list[JobInfo]:
        """Those of these jobs, and of those that they wait for, that are dead or cancelled; the dead ones first."""
        return await self._steadily(lambda driver: stuck(driver, ids, self.clock.now()))

    async def _follow(self, driver: Driver, id: str) -> tuple[JobInfo, JobInfo]:
        own = last = await driver.inspect(id, self.clock.now())
        while last.job.handed_to is not None:
            last = await driver.inspect(last.job.handed_to, self.clock.now())
        return own, last

    async def _trouble(self, driver: Driver, flow_id: str) -> JobInfo | None:
        for state in (State.DLQ, State.CANCELLED):
            page = await driver.list(flow_id=flow_id, state=state, limit=1, now=self.clock.now())
            if page.items:
                return page.items[0]
        return None

    async def read(self, job: JobRecord, returns: Any, budget: Budget | None = None) -> Any:
        """What a job that is done returned, as that type; of a join, the list of what its jobs returned."""
        if job.type != JOIN_TYPE:
            return None if job.result is None else self._read(job.id, job.result, returns)
        results = Results()
        members = results.join(job)
        await self._steadily(lambda driver: results.load(driver, members, self.clock.now(), job.flow_id), budget)
        data = compose(self.codec, results.of(job.id))
        try:
            return self.codec.decode(data, returns)
        except ValueError:  # a job among them handed over to one that returns something else
            return self.codec.decode(data)

    def _read(self, id: str, result: bytes, returns: Any) -> Any:
        try:
            return self.codec.decode(result, returns)
        except ValueError as error:
            raise ValueError(
                f"job {id}: its result cannot be read as {type_name(returns)}: {describe(error, ())}; its function "
                "returned something else than its annotation says; client.handle(id).result() gives it as it is"
            ) from error

    async def is_served(self, queue: str) -> bool:
        """Whether a worker that was heard in the last minute serves this queue. One try: who asks has waited enough."""
        workers = await (await self._drivers.get()).workers(self.clock.now())
        return any(queue in worker.queues for worker in workers)

    async def cancel_job(self, id: str, call_timeout: Duration | None = None) -> None:
        """Cancel a job, or the workflow that took its place, also one that takes it at this moment."""

        async def cancel(driver: Driver) -> None:
            while True:
                own, last = await self._follow(driver, id)
                if _is_own(own.job, last.job):
                    await driver.cancel_flow(last.job.flow_id or "", self.clock.now())
                    return
                error = (await driver.cancel([last.job.id], self.clock.now()))[0]
                if error is None:
                    return
                if (await driver.inspect(last.job.id, self.clock.now())).job.handed_to is None:
                    raise error

        await self._steadily(cancel, self.budget(call_timeout, "cancel", lambda: CANCEL_IN_DOUBT))

    async def cancel_flow(self, id: str, call_timeout: Duration | None = None) -> int:
        """Cancel what has not ended in a flow, and what is being spawned into it; answers how many jobs."""
        budget = self.budget(call_timeout, "cancel", lambda: CANCEL_IN_DOUBT)
        return await self._steadily(lambda driver: driver.cancel_flow(id, self.clock.now()), budget)

    async def requeue_flow(self, id: str, call_timeout: Duration | None = None) -> int:
        """Bring the dead jobs of a flow back, with all their attempts; answers how many. It goes on exactly there.

        Also those outside of it that it waits for, because a step of it was found to be one of them by its key.
        """

        async def requeue(driver: Driver) -> int:
            now = self.clock.now()
            dead: list[str] = []
            cursor: str | None = None
            while True:
                page = await driver.list(flow_id=id, state=State.DLQ, cursor=cursor, limit=1000, now=now)
                dead += [info.job.id for info in page.items]
                cursor = page.cursor
                if cursor is None:
                    break
            try:
                outside = await stuck(driver, waits_outside(await driver.flow(id, now)), now)
            except JobNotFound:
                outside = []
            dead += [info.job.id for info in outside if info.state is State.DLQ]
            answers = await driver.requeue(dead, now, reset_attempts=True)
            return sum(answer is None for answer in answers)

        return await self._steadily(requeue, self.budget(call_timeout, "requeue", lambda: REQUEUE_IN_DOUBT))

    def flow(self, id: str, *, call_timeout: Duration | None = None) -> FlowInfo:
        """A workflow run by its id; blocks for one look at the store."""
        return self.blocking(lambda: self.aflow(id, call_timeout=call_timeout), "client.flow", call_timeout)

    async def aflow(self, id: str, *, call_timeout: Duration | None = None) -> FlowInfo:
        """A workflow run by its id."""
        return await self.look_at_flow(id, self.budget(call_timeout, "flow"))

    async def look_at_flow(self, id: str, budget: Budget) -> FlowInfo:
        """The same within the budget of a longer call."""
        return await self._steadily(lambda driver: look_at_flow(driver, id, self.clock.now()), budget)

    # Beginning and end ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close what blocking calls opened, and end their thread. The next call opens it again."""
        refuse_on_loop("client.close")
        if self.portal.loop is not None:
            self.portal.call(self._close_drivers, "client.close", self._call_timeout + SLACK)
        self.portal.stop()

    async def aclose(self) -> None:
        """Close what this event loop opened, and what blocking calls did."""
        await self._close_drivers()
        if self.portal.loop is not None:
            await asyncio.to_thread(self.close)

    async def _close_drivers(self) -> None:
        """A store that stands still must not keep a program from ending: it is left after the time of any call."""
        try:
            async with asyncio.timeout(self._call_timeout) as limit:
                await self._drivers.close()
        except TimeoutError:
            if not limit.expired():
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # Within a budget -----------------------------------------------------------------------------------------

    def budget(self, call_timeout: Duration | None, what: str, doubt: Callable[[], str] | None = None) -> Budget:
        """The time that a call has from now on, on the running loop."""
        return Budget(seconds_of(call_timeout, self._call_timeout), what, doubt)

    def blocking(self, make: Callable[[], Coroutine[Any, Any, T]], who: str, call_timeout: Duration | None = None) -> T:
        """Run an awaitable twin for a caller that blocks. It ends by its own budget, or, if a driver does not let go of
        it, a moment later without it."""
        return self.portal.call(make, who, seconds_of(call_timeout, self._call_timeout) + SLACK)

    async def _steadily(self, call: Callable[[Driver], Awaitable[T]], budget: Budget | None = None) -> T:
        """Make a call that may be repeated; while the store cannot be reached, again with growing, jittered pauses."""
        budget, closings = budget or self.budget(None, "call"), self._drivers.closings()
        limit = asyncio.timeout_at(budget.until)
        try:
            async with limit:
                for tried in range(1, TRIES + 1):
                    budget.tries += 1
                    try:
                        driver = await self._drivers.get()
                        budget.reached = True
                        return await call(driver)
                    except BackendUnavailable as error:
                        budget.last = error
                        if tried == TRIES or self._drivers.closings() != closings:
                            raise budget.refused(error) from (error.__cause__ or error)
                    pause = FIRST_BACKOFF * 2 ** (tried - 1)
                    await polling.sleep(pause + pause * random.random())
                    if self._drivers.closings() != closings:
                        raise budget.refused(budget.last)
        except TimeoutError:
            if not limit.expired():
                raise
        last = budget.last
        raise budget.spent() from (None if last is None else last.__cause__ or last)


CANCEL_IN_DOUBT = "It may or may not be cancelled; cancel it again: that does no harm"
REQUEUE_IN_DOUBT = "Some of its jobs may be back already; requeue it again: that does no harm"


def longest(all_options: Sequence[Options], call_timeout: Duration | None) -> Duration | None:
    """How long a call may take: what was said for it, or the longest of what its jobs' options say."""
    given = [options.call_timeout for options in all_options if options.call_timeout is not None]
    return call_timeout if call_timeout is not None else max(given, default=None)


def _is_own(own: JobRecord, last: JobRecord) -> bool:
    """Whether the flow that took a job's place is all its own, not one that the job was a part of."""
    return last.flow_id is not None and last.flow_id != own.flow_id


def one_connection(all_options: Sequence[Options]) -> Any:
    """The connection that all calls share; ValueError if they disagree, for one transaction has one connection."""
    first = all_options[0].connection if all_options else None
    for options in all_options:
        if options.connection is not first:
            raise ValueError(
                "expected one connection= for all jobs of a call, got different ones; enqueue them separately"
            )
    return first


def _offers(driver: Driver, name: str) -> Any:
    method = getattr(driver, name, None)
    if method is None:
        raise TypeError(
            f"connection= needs a driver on a SQL store (sqlite:// or postgresql://), got {type(driver).__name__}; "
            "leave it out, or keep the jobs in that database"
        )
    return method
