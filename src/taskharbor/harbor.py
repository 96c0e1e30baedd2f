"""The harbor: it declares tasks, enqueues jobs and makes workers.

The composition root: DSN or driver → client, task registry, worker. Making one opens nothing and reads no store, so a
module can make one when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from taskharbor.client.client import Client
from taskharbor.client.handle import JobHandle
from taskharbor.client.store_calls import StoreCalls
from taskharbor.client.twins import both
from taskharbor.drivers.base import Driver
from taskharbor.model.clock import Clock
from taskharbor.model.codec import Codec
from taskharbor.model.events import Observer
from taskharbor.model.job import DEFAULT_QUEUE
from taskharbor.model.times import Duration
from taskharbor.model.validation import callables, explains_unknown
from taskharbor.store.access import StoreCall
from taskharbor.store.enqueue import EnqueueMiddleware
from taskharbor.store.flows import flow
from taskharbor.store.session import CALL_TIMEOUT, Store
from taskharbor.tasks.declared_queues import Queues
from taskharbor.tasks.decorator import TaskRegistry
from taskharbor.tasks.lifespan import Lifespan, check_lifespan
from taskharbor.tasks.migration_hints import OF_HARBOR_OPTIONS, OF_HARBORS, missing
from taskharbor.tasks.overrides import Overrides
from taskharbor.tasks.prepare import TaskCall
from taskharbor.tasks.task import Step
from taskharbor.tasks.worker_options import WorkerOptions, lists_worker_options
from taskharbor.tasks.workflow import Workflow

if TYPE_CHECKING:
    from taskharbor.client.outbox import TransactionalOutbox
    from taskharbor.flow.run import FlowRun
    from taskharbor.outbox.once import Once
    from taskharbor.worker import CallMiddleware, Middleware, Worker


class Harbor(TaskRegistry, StoreCalls):
    """A store, the tasks that use it, and both ends of it: enqueueing and running. A program has one.

    Declare tasks with `@harbor.task`, store jobs with `task.enqueue(…)`, run them with `harbor.worker().run()`, or
    from a shell with `taskharbor worker run --app module:harbor`. Making a harbor opens nothing and reads no store.

    >>> harbor = Harbor("memory://")
    >>> @harbor.task(name="send_email", queue="mail")
    ... def send_email(to: str) -> str:
    ...     return f"sent to {to}"
    >>> job = send_email.enqueue("ada")
    >>> harbor.worker().run(until_empty=True)
    >>> job.result()
    'sent to ada'

    Options:
        dsn_or_driver: The store: "sqlite:///jobs.db", "postgresql://…", "redis://…", "memory://", or a driver.
            Default: `$TASKHARBOR_DSN`, else the file taskharbor.db in this folder.
        codec: How arguments and results become bytes. Default: `JsonCodec()`.
        clock: What time it is. Default: the clock of the store.
        middleware: Coroutines `(context, call_next)` around every execution, on the worker's event loop.
        call_middleware: Functions of the context that return a context manager, entered in the handler's own thread.
        observers: Functions that receive every event of the client and of the workers.
        enqueue_middleware: Context managers around the storing of jobs.
        default_queue: The queue of tasks that name none. Default: "default".
        queues: All queues of this program. A task or a call that names another one is refused, and `worker()` serves
            all of these. Default: any queue.
        call_timeout: How long a call to the store may take, retries included. Default: 10 seconds.
        lifespan: An async generator function, decorated with `asynccontextmanager`, that opens what the handlers of a
            worker process share.
    """

    _called = "harbor"

    @explains_unknown("Harbor", OF_HARBOR_OPTIONS)
    def __init__(
        self,
        dsn_or_driver: Driver | str | None = None,
        *,
        codec: Codec | None = None,
        clock: Clock | None = None,
        middleware: Iterable[Middleware] = (),
        call_middleware: Iterable[CallMiddleware] = (),
        observers: Iterable[Observer] = (),
        enqueue_middleware: Iterable[EnqueueMiddleware] = (),
        default_queue: str = DEFAULT_QUEUE,
        queues: Iterable[str] | None = None,
        call_timeout: Duration = CALL_TIMEOUT,
        lifespan: Lifespan | None = None,
    ) -> None:
        self._lifespan = check_lifespan(lifespan)
        self._overrides = Overrides()
        self.observers: tuple[Observer, ...] = callables(observers, "observers")
        self.middleware = callables(middleware, "middleware")
        self.call_middleware = callables(call_middleware, "call_middleware")
        self._store = self._make_store(
            dsn_or_driver,
            codec=codec,
            clock=clock,
            observers=self.observers,
            enqueue_middleware=enqueue_middleware,
            default_queue=default_queue,
            call_timeout=call_timeout,
        )
        self.client = Client._of(self._store)
        super().__init__(self.client, self._store.codec, Queues(queues, self._declared_queues))
        self._store.enqueuer.on_stored = self._queues.warn_of_undeclared

    def _make_store(self, dsn_or_driver: Driver | str | None, **options: Any) -> Store:
        return Store(dsn_or_driver, **options)

    def __repr__(self) -> str:
        return f"Harbor({self._store.drivers!r})"

    if not TYPE_CHECKING:  # with it, a type checker would accept any attribute

        def __getattr__(self, name: str) -> Any:
            raise missing("a harbor", name, OF_HARBORS, "")

    @property
    def driver(self) -> Driver:
        """The driver that was given, or the one the DSN (argument, $TASKHARBOR_DSN, a SQLite file) names."""
        return self._store.driver

    @property
    def clock(self) -> Clock:
        """The clock of the client and of the workers."""
        return self._store.clock

    @property
    def codec(self) -> Codec:
        """How arguments and results become bytes."""
        return self._store.codec

    @property
    def declared_queues(self) -> tuple[str, ...]:
        """The queues of all tasks and schedules, the default queue, and those of `Harbor(queues=…)`: what `worker()`
        serves."""
        return tuple(sorted(self._declared_queues() | (self._queues.listed or frozenset())))

    def _declared_queues(self) -> frozenset[str]:
        default = self._store.default_queue
        scheduled = (each.definition.queue for each in self.handlers.schedules.values())
        return frozenset({default, *scheduled, *(task.queue or default for task in self.tasks.values())})

    def _default_queue(self) -> str:
        return self._store.default_queue

    def observe(self, observer: Observer) -> None:
        """Add a function that receives the events of the client, and of the workers that are made from now on."""
        self.observers += (observer,)
        self._store.observers.add(observer)

    @lists_worker_options
    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """A worker for the tasks declared here: `harbor.worker(concurrency=4).run()`.

        By default it serves the queues of the tasks and of the schedules, the default queue, and those of
        `Harbor(queues=…)`. A queue that only a call names, with `.options(queue=…)`, is not among them.
        """
        from taskharbor.worker import Worker

        options.setdefault("middleware", self.middleware)
        options.setdefault("call_middleware", self.call_middleware)
        options.setdefault("observers", self.observers)
        options.setdefault("codec", self.codec)
        options.setdefault("clock", self.clock)
        options.setdefault("lifespan", self._lifespan)
        options.setdefault("overrides", self._overrides)
        options.setdefault("child_processes", not self._store.is_isolated)
        if options.get("queues") is None:
            options["queues"] = self.declared_queues
        worker = Worker(self.driver, handlers=self.handlers, **options)
        worker._declared_lifespan = self._lifespan
        return worker

    def _lifespans(self) -> list[Lifespan]:
        """The lifespans that `override` may replace."""
        return [] if self._lifespan is None else [self._lifespan]

    def override(self, replacements: Mapping[Callable[..., Any], Callable[..., Any]]) -> AbstractContextManager[None]:
        """Replace dependencies, or the lifespan, by other functions: `with harbor.override({session: fake}):`.

        For tests. It holds for all jobs of this process that begin within the block.
        """
        known: list[Callable[..., Any]] = [*self._lifespans()]
        for handler in self.handlers:
            if handler.injection is not None:
                known += [node.function for node in handler.injection.nodes]
        return self._overrides.replaced(replacements, known)

    def schedule(
        self,
        name: str,
        step: Step[Any] | Workflow,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str = "UTC",
        start_at: datetime | date | None = None,
        end_at: datetime | date | None = None,
        jitter: Duration = 0,
        catch_up: Literal["latest", "none", "all"] = "latest",
        overlap: Literal["skip", "allow"] = "skip",
    ) -> None:
        """Declare that a step, or a workflow, runs again and again: by a cron expression, or at an interval.

        Reads no store: the declaration is stored when a worker of this code starts, and its workers fire it. A date
        stands for its midnight in `tz`. Give `cron` or `every`, not both.

        >>> harbor = Harbor("memory://")
        >>> @harbor.task(name="report")
        ... def report(region: str) -> None: ...
        >>> harbor.schedule("nightly-eu", report.s(region="eu"), cron="30 2 * * *", tz="Europe/Zurich")
        >>> harbor.schedule("hourly-eu", report.s(region="eu"), every=3600, jitter=60, overlap="allow")
        >>> harbor.declared_schedules
        ('hourly-eu', 'nightly-eu')

        Options:
            cron: Five fields (minute, hour, day, month, weekday), or a name such as "@daily".
            every: The interval between two slots, from `start_at` or from the first declaration on.
            tz: The time zone of `cron` and of dates. Default: "UTC".
            start_at: No slot before this moment.
            end_at: No slot from this moment on.
            jitter: A job runs up to this much later than its slot, each time by another amount. Default: 0.
            catch_up: What becomes of slots that passed while no worker ran. "latest": one job, for the newest of them.
                "all": a job for each. "none": only one that is at most a minute late. Default: "latest".
            overlap: "skip": no job while that of an earlier slot has not ended. "allow": one all the same. Default:
                "skip".
        """
        from taskharbor.client.scheduled_step import declared
        from taskharbor.schedules.rule import checked_rule

        rule = checked_rule(
            cron=cron,
            every=every,
            tz=tz,
            start_at=start_at,
            end_at=end_at,
            jitter=jitter,
            catch_up=catch_up,
            overlap=overlap,
        )
        given = declared(self._store, name, step, rule)
        known = self.handlers.schedules.setdefault(name, given)
        if known.hash != given.hash:
            raise ValueError(f"two schedules named {name!r}, which differ; give one another name")

    @property
    def declared_schedules(self) -> tuple[str, ...]:
        """The names of the schedules that `schedule` declared, in order."""
        return tuple(sorted(self.handlers.schedules))

    def enqueue_many(self, steps: Iterable[Step[Any]]) -> list[JobHandle[Any]]:
        """Store many jobs in one round trip, all or none; blocks until they are stored."""
        return self.client._enqueue_calls(_calls(steps), "harbor.enqueue_many")

    async def aenqueue_many(self, steps: Iterable[Step[Any]]) -> list[JobHandle[Any]]:
        """Store many jobs in one round trip, all or none."""
        return await self.client._aenqueue_calls(_calls(steps))

    @both
    async def flow(self, call: StoreCall, id: str) -> FlowRun:
        """A flow by its id, with its nodes and edges, and a handle; blocks for one read of the store."""
        from taskharbor.flow.handle import FlowHandle
        from taskharbor.flow.run import flow_run

        return flow_run(await flow(call, id), FlowHandle(self._store, id))

    aflow = flow.awaited

    @property
    def outbox(self) -> TransactionalOutbox:
        """The tables of TaskHarbor in a database of your own, and the relay of the jobs in it."""
        from taskharbor.client.outbox import TransactionalOutbox

        return TransactionalOutbox(self._store)

    def once(self, connection: Any, key: str) -> Once:
        """A block that learns whether it is the first one for a key: `with harbor.once(connection, key) as first:`.

        The key becomes a row in your own transaction on `connection`, of any kind that `connection=` takes (`async
        with` for an asynchronous one), so it is kept if and only if you commit. A second transaction with the same key
        waits for the first one to end. If the block raises, the key is forgotten together with what the block wrote.

        >>> import sqlite3
        >>> harbor, database = Harbor("memory://"), sqlite3.connect(":memory:")
        >>> harbor.outbox.create(database)
        >>> for _ in range(2):
        ...     with harbor.once(database, "invoice 7") as first:
        ...         print("charge" if first else "charged before")
        charge
        charged before
        """
        from taskharbor.outbox.once import Once

        return Once(connection, key, self.clock)

    def within(self, seconds: Duration) -> Self:
        """This harbor with another time limit for each call to the store, retries included.

        >>> with Harbor("memory://") as harbor:
        ...     harbor.within(3).counts()
        ...     with harbor.within(0.5):
        ...         harbor.is_paused("mail")
        {}
        False

        As a `with` block it holds for every call that is made in the block: also of tasks, handles and schedules.
        """
        other = super().within(seconds)
        other.client = Client._of(other._store)
        return other


def _calls(steps: Iterable[Step[Any]]) -> list[TaskCall]:
    calls = []
    if not isinstance(steps, Iterable):
        raise TypeError(f"expected a list of steps such as send_email.s(to=…), got {type(steps).__name__}")
    for step in steps:
        if not isinstance(step, Step):
            raise TypeError(f"expected steps such as send_email.s(to=…), got {type(step).__name__}")
        calls.append(step._call())
    return calls
