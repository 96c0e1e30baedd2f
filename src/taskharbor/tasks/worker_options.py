"""The options of a worker, explained once: for `harbor.worker(…)`, which imports the worker only when it is called, and
for `Worker` itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from taskharbor.model.times import Duration
from taskharbor.tasks.options import with_list

if TYPE_CHECKING:
    from taskharbor.model.clock import Clock
    from taskharbor.model.codec import Codec
    from taskharbor.model.events import Observer
    from taskharbor.policy.retry import RetryPolicy
    from taskharbor.tasks.lifespan import Lifespan
    from taskharbor.tasks.overrides import Overrides
    from taskharbor.worker.middleware import CallMiddleware, Middleware


class WorkerOptions(TypedDict, total=False):
    """The options of a worker. Durations are seconds or a timedelta.

    Options:
        queues: The queues to serve. Default: with `harbor.worker()` the queues of its tasks and schedules, the default
            queue, and those of `Harbor(queues=…)`; with `Worker` only "default".
        concurrency: How many jobs run at once. Default: 16.
        lease: For how long a reserved job belongs to this worker. After a crash it runs elsewhere when this time is
            over. Default: 30 seconds.
        heartbeat: How often leases are renewed; at most half the lease. Default: a third of the lease.
        poll_interval: How long an idle worker waits before it asks the store again. An enqueue wakes it sooner.
            Default: 1 second.
        shutdown_timeout: How long running jobs may take to end when the worker stops; then they are given back.
            Default: 30 seconds.
        max_lost: A job whose worker died this many times is not run again, but dead. Default: 3.
        retry: The retry policy of tasks that declare none. Default: `Exponential()`.
        middleware: Coroutines around every execution, on the event loop; the first is the outermost. Default: the
            harbor's.
        call_middleware: Context managers around every call, in the thread that the handler runs in. Default: the
            harbor's.
        observers: What receives the events of this worker. Default: the harbor's.
        codec: How arguments and results become bytes. Default: the harbor's, else JSON.
        clock: What time it is. Default: the harbor's, else the clock of the store.
        name: A label for this worker in the store. Process id and a random part are added. Default: the host's name.
        schedules: False: it neither stores what its code declares with `harbor.schedule`, nor fires schedules.
            Default: True.
        outbox: The address of a database of your own ("postgresql://…", "sqlite:///…") with an outbox in it, whose jobs
            this worker carries to the store. Default: none.
        lifespan: What opens the resources that handlers share, once for each run. Default: the harbor's.
        child_processes: False: a task with `process=True` runs in this process. Default: True.
        heart: "loop" renews leases on the event loop of the handlers, for simulations in one thread. Default: "thread".
        overrides: What `harbor.override` replaces. `harbor.worker()` sets it.
    """

    queues: Sequence[str] | None
    concurrency: int
    lease: Duration
    heartbeat: Duration | None
    poll_interval: Duration
    shutdown_timeout: Duration
    max_lost: int
    retry: RetryPolicy
    middleware: Sequence[Middleware]
    call_middleware: Sequence[CallMiddleware]
    observers: Sequence[Observer]
    codec: Codec | None
    clock: Clock | None
    name: str | None
    schedules: bool
    outbox: str | None
    lifespan: Lifespan | None
    child_processes: bool
    heart: str
    overrides: Overrides | None


F = TypeVar("F", bound=Callable[..., Any])


def lists_worker_options(function: F) -> F:
    """Add the list of options to the docstring of a function that takes them, so that `help` shows it."""
    return with_list(function, WorkerOptions.__doc__)
