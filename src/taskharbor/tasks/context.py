"""What a handler knows about the job it runs: `JobContext`, and the signal to stop.

A handler receives it in a parameter that is annotated with `JobContext`. Nothing here calls the store itself.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

import msgspec

from taskharbor.model.bounds import check_name
from taskharbor.model.errors import Cancel, Snooze
from taskharbor.model.job import JobRecord
from taskharbor.model.naming import callable_name, class_name
from taskharbor.model.safe_repr import shows
from taskharbor.model.schedule import slot_of
from taskharbor.model.times import Duration

if TYPE_CHECKING:
    from taskharbor.tasks.step_transaction import StepTransaction
    from taskharbor.tasks.steps import Steps

P = ParamSpec("P")
T = TypeVar("T")
logger = logging.getLogger("taskharbor.job")

_making = threading.Lock()


class Shutdown(Snooze):
    """Raised by `ctx.cancelled.check()` while the worker stops: the job is given back."""

    def __init__(self) -> None:
        super().__init__(0)


class CancelSignal:
    """The signal `ctx.cancelled`: set when a handler should stop. Call `ctx.cancelled.check()` between the steps of
    long work: it raises the right exception for the reason, so that at a shutdown the job is given back and runs again
    from its beginning.

    A handler that only tests it (`if ctx.cancelled`, `ctx.cancelled.wait(5)`, `await ctx.cancelled.hit()`) and then
    returns has ended: at a shutdown its job is recorded as done, with whatever it returned.

    Its threading.Event is made only when a handler waits: one for each job would cost more than reserving the job.
    """

    __slots__ = ("_callbacks", "_event", "_job", "_reason", "_seen")

    def __init__(self, job: JobRecord | None = None) -> None:
        self._job = job  # whose signal it is, for the log
        self._reason: str | None = None
        self._seen = False  # whether the handler has tested it since it was set
        self._event: threading.Event | None = None
        self._callbacks: list[Callable[[], object]] = []

    def __bool__(self) -> bool:
        return self.is_set()

    def is_set(self) -> bool:
        """Whether the handler should stop."""
        if self._reason is None:
            return False
        self._seen = True
        return True

    def check(self) -> None:
        """Raise if the handler should stop: an exception that fits the reason; otherwise do nothing.

        At a shutdown a kind of `Snooze(0)`: the job is given back at once and spends no attempt. At the timeout
        TimeoutError, otherwise `Cancel`: by then the job's outcome is decided, and what the handler raises does not
        change it.
        """
        if self._reason is None:
            return
        if self._reason == "shutdown":
            raise Shutdown
        if self._reason == "timeout":
            raise TimeoutError("the job's timeout is over")
        raise Cancel(self._reason)

    @property
    def reason(self) -> str | None:
        """Why: `timeout`, `cancelled`, `lease lost` or `shutdown`; None while there is no reason to stop."""
        self._seen = self._reason is not None
        return self._reason

    def set(self, reason: str) -> None:
        """Ask the handler to stop. The first reason stays."""
        with _making:
            if self._reason is not None:
                return
            self._reason = reason
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call(callback)

    def wait(self, timeout: float | None = None) -> bool:
        """For plain functions: block until the signal, or for `timeout` seconds; True if it is set."""
        if self._event is None:
            event = self._event = threading.Event()
            self.subscribe(event.set)
        self._event.wait(timeout)
        return self.is_set()

    async def hit(self) -> str:
        """Wait for the signal in a coroutine; returns its reason."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                return  # the loop that waited is closed by now

        self.subscribe(wake)
        try:
            await event.wait()
        finally:
            with _making:
                if wake in self._callbacks:
                    self._callbacks.remove(wake)
        self._seen = True
        return self._reason or ""

    def subscribe(self, callback: Callable[[], object]) -> None:
        """Call a quick function when the signal is set, in the thread that sets it; immediately if it is set already.

        That is mostly the worker's own thread, so an error of the function is not raised: its class is logged.
        """
        with _making:
            if self._reason is None:
                self._callbacks.append(callback)
                return
        self._call(callback)

    def _call(self, callback: Callable[[], object]) -> None:
        try:
            callback()
        except BaseException as error:  # the thread that sets the signal has other handlers to stop
            message = "the callback of ctx.cancelled.subscribe(), %s, failed with %s"
            log_about(self._job, logging.ERROR, message, callable_name(callback), class_name(error))


def report_early_end(context: JobContext) -> None:
    """Warn if a handler returned after it saw that its worker was stopping: it may have left its work half done, but
    its job is recorded as done."""
    signal = context._cancelled
    if signal is None or not signal._seen or signal._reason != "shutdown":
        return
    log_about(
        context.job,
        logging.WARNING,
        "job %s returned after it had seen ctx.cancelled at a shutdown, and is recorded as done. If it left work "
        "undone, call ctx.cancelled.check() instead: it gives the job back at no cost",
        context.job.id,
    )


def log_about(job: JobRecord | None, level: int, message: str, *args: str) -> None:
    """Log a line with the facts of a job. Nothing is raised: a log handler may fail, and the job must go on.

    `args`: of an exception its class alone, because its text may quote a payload.
    """
    facts = {} if job is None else {"job_id": job.id, "job_type": job.type, "queue": job.queue}
    try:
        logger.log(level, message, *args, extra=facts)
    except Exception:
        return


class _JobLog(logging.LoggerAdapter[logging.Logger]):
    """Adds the facts of a job to the `extra` of a call. (LoggerAdapter itself would drop the call's own.)"""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, {**kwargs, "extra": {**(kwargs.get("extra") or {}), **(self.extra or {})}}


@shows("job", "deadline")
class JobContext(msgspec.Struct, eq=False, weakref=True):
    """The job a handler runs, its deadline, and what the handler may do about it.

    A parameter that is annotated with it receives it. `fence` grows with every delivery of the job: pass it to stores
    that can refuse an older writer.

    >>> from taskharbor import Harbor
    >>> with Harbor("memory://") as harbor:
    ...     @harbor.task(name="pages")
    ...     def pages(ctx: JobContext, n: int) -> str:
    ...         for page in range(n):
    ...             ctx.cancelled.check()
    ...             ctx.progress(page + 1, n, "pages")
    ...         return f"delivery {ctx.fence}"
    ...     job = pages.enqueue(3)
    ...     harbor.worker().run(until_empty=True)
    ...     print(job.result())
    delivery 1
    """

    job: JobRecord  # the record as it was reserved
    worker: str = ""  # the id of the worker that runs it
    deadline: datetime | None = None  # when its timeout is over; None without one
    _progress: Callable[[JobRecord, float, float | None, str], None] | None = None
    _transaction: Callable[[], Any] | None = None
    _open_steps: Callable[[], Steps] | None = None
    _opened_steps: Steps | None = None  # made at the first use, as what follows
    _cancelled: CancelSignal | None = None  # made at the first use: most handlers never use it
    _log: logging.LoggerAdapter[logging.Logger] | None = None

    @property
    def cancelled(self) -> CancelSignal:
        """Set at the timeout, on cancel, on a lost lease and at shutdown."""
        if self._cancelled is None:
            with _making:
                if self._cancelled is None:
                    self._cancelled = CancelSignal(self.job)
        return self._cancelled

    @property
    def fence(self) -> int:
        """An integer that grows with every delivery of this job."""
        return self.job.deliveries

    def key(self, name: str) -> str:
        """A key for one effect of this job: the same in every execution of it, also after a requeue, and another one
        for every job and every name. `name` has 1 to 255 bytes.

        Give it to a service that takes idempotency keys, or to `harbor.once`.

        >>> from taskharbor.testing import context
        >>> ctx = context()
        >>> ctx.key("charge") == f"{ctx.job.id}:charge"
        True
        """
        check_name(name, "key")
        return f"{self.job.id.replace('%', '%25').replace(':', '%3A')}:{name}"  # so that no two pairs become one text

    @property
    def slot(self) -> datetime | None:
        """The moment that this run stands for, aware and in UTC: the slot of its schedule; None if no schedule made it.

        The jobs of a scheduled workflow stand for its slot, too. For a run that a person asked for it is the moment of
        that call.
        """
        return slot_of(self.job.metadata) if self.job.metadata else None

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry the job's id, type, queue and attempt."""
        if self._log is None:
            job = self.job
            extra = {"job_id": job.id, "job_type": job.type, "queue": job.queue, "attempt": job.attempts + 1}
            self._log = _JobLog(logger, extra)
        return self._log

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report how far this job is: to observers at once, to the store within about two seconds.

        `total`: of how many, if that is known. `note`: a few words, which are shown beside the numbers.

        It costs no call of its own, however often it is called: a heartbeat takes the newest along. What is not a
        finite number, or not text, is left out of the store.
        """
        if self._progress is not None:
            self._progress(self.job, done, total, note)

    # Steps: the value of one that was stored is not computed again in a later execution of the job

    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """In a plain function: `fn(*args, **kwargs)`, unless an earlier execution of this job has done that and stored
        the value. Then that value is returned, and `fn` is not called.

        The value is stored before this returns, so a worker that ends later loses nothing of it. If it ends between
        the call and the storing, `fn` is called again. A value is always what the codec gives back.

        >>> from taskharbor.testing import context
        >>> ctx = context()
        >>> ctx.step("add", lambda a, b: a + b, 1, 2)
        3
        """
        value: T = self._steps.run(name, fn, args, kwargs)
        return value

    @overload
    def astep(
        self, name: str, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]: ...

    @overload
    def astep(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...

    def astep(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """The same in a coroutine. `fn` may be a coroutine function; a plain one runs in a thread."""
        return self._steps.arun(name, fn, args, kwargs)

    def sleep(self, name: str, seconds: Duration) -> None:
        """In a plain function: give the job back, to go on behind this line after `seconds`, in a new execution.

        It holds no slot, no lease and no attempt meanwhile. It raises a kind of `Snooze`, which the handler must let
        pass, and every later call for a step raises it again.
        """
        self._steps.sleep(name, seconds)

    def asleep(self, name: str, seconds: Duration) -> Awaitable[None]:
        """The same in a coroutine."""
        return self._steps.asleep(name, seconds)

    def checkpoint(self, value: Any) -> None:
        """In a plain function: store a value in place of the one before, for `last_checkpoint` of later executions."""
        self._steps.checkpoint(value)

    def acheckpoint(self, value: Any) -> Awaitable[None]:
        """The same in a coroutine."""
        return self._steps.acheckpoint(value)

    @property
    def last_checkpoint(self) -> Any:
        """The value of the last `checkpoint` of this job, as plain data; None before the first.

        >>> from taskharbor.testing import context
        >>> ctx = context()
        >>> ctx.checkpoint({"page": 12})
        >>> ctx.last_checkpoint
        {'page': 12}
        """
        return self._steps.last_checkpoint

    def step_transaction(self, name: str, type: Any = Any) -> StepTransaction:
        """A step whose memo and writes are committed together, in the job's own store: SQLite or Postgres.

        `with ctx.step_transaction("book") as step:` in a plain function, `async with …` in a coroutine. Unless
        `step.done`, `step.connection` is in a transaction that commits at the end of the block, and `step.result`, if
        it is set, is stored with it. When it was done before, `step.value` is that, as `type` says.
        """
        return self._steps.transaction(name, type)

    @property
    def _steps(self) -> Steps:
        if self._opened_steps is None:
            if self._open_steps is None:
                raise RuntimeError("steps need a worker, or the context of taskharbor.testing; this one has none")
            with _making:
                if self._opened_steps is None:
                    self._opened_steps = self._open_steps()
        return self._opened_steps

    def transaction(self) -> Any:
        """A connection whose writes commit together with this job's completion. Only on SQL drivers.

        `async with ctx.transaction() as connection:` in a coroutine, `with …` in a plain function.
        """
        if self._transaction is None:
            raise RuntimeError(
                "ctx.transaction() needs a driver on a SQL store (sqlite:// or postgresql://) and a handler that "
                "runs in its worker's own process; this job has none"
            )
        return self._transaction()
