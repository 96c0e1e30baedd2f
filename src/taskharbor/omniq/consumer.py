"""What a consumer does next: every decision of `consume`, without I/O, threads or tasks.

    idle ──reserve──► running ──handler ended──► ack ──► idle
                        │ lease lost: interrupt, no ack ──► idle
                        │ stop, drain: wait until it ended, ack ──► out
                        └ stop without drain, or a second stop: interrupt, give back ──► out

`consumer_steps` is a generator: it yields effects and receives their results. `consumer_runs.py` carries them out. It
reads no clock of its own; it is given one.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Generator
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, TypeAlias

from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.safe_repr import shows
from taskharbor.omniq import operations
from taskharbor.omniq.operations import OmniqCall
from taskharbor.omniq.values import Job, JobContext, OmniQError, Paused

log = logging.getLogger("taskharbor.omniq")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0  # between two attempts while the server cannot be reached
HEARTBEATS = 3  # in the time of a lease: two may fail

Handler: TypeAlias = Callable[[JobContext], object]


class LeaseLost(BaseException):
    """Raised into a handler whose lease was lost: another consumer may have the job already.

    Not an Exception, like KeyboardInterrupt: a handler's own `except Exception` does not stop it.
    """


class Stopped(BaseException):
    """Raised into a handler whose consumer stops without draining: its job is given back. Also a BaseException."""


@shows("queue")
@dataclass(frozen=True)
class ConsumeCall:
    """Run `handler(ctx)` for one job after the other until TERM, INT or `stop()`.

    With `drain` the current job is finished first; without it, or at the second signal, the handler is interrupted
    and its job given back. A handler whose lease is lost is interrupted, and nothing is acked.

    Options:
        drain: Whether to finish the current job when the consumer stops.
        poll_interval_s: How long to wait before an empty queue is asked again.
        promote_interval_s: How often due jobs are made ready.
        promote_batch: How many of them at a time.
        reap_interval_s: How often leases that are over are ended.
        reap_batch: How many of them at a time.
        heartbeat_interval_s: How often the lease is renewed. Default: a third of it.
        grace_s: How long a handler that was interrupted may take to end.
    """

    queue: str
    handler: Handler
    _: KW_ONLY
    drain: bool = True
    poll_interval_s: float = 0.05
    promote_interval_s: float = 1.0
    promote_batch: int = 1000
    reap_interval_s: float = 1.0
    reap_batch: int = 1000
    heartbeat_interval_s: float | None = None
    grace_s: float = 1.0

    def __post_init__(self) -> None:
        # A job must not be reserved and acked for nothing.
        if not callable(self.handler):
            raise TypeError(f"handler: expected a function that takes the context, got {type(self.handler).__name__}")
        for name in ("poll_interval_s", "promote_interval_s", "reap_interval_s", "heartbeat_interval_s", "grace_s"):
            value = getattr(self, name)
            if name == "heartbeat_interval_s" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name}: expected seconds, got {type(value).__name__}")
            if not 0 <= value <= 86_400 or (value == 0 and name != "grace_s"):
                raise ValueError(f"{name}: expected more than 0 and at most 86400 seconds, got {value}")


# Effects


class RunOperation(NamedTuple):
    """Run this operation: its result is sent, its error thrown."""

    operation: OmniqCall[Any]


class Start(NamedTuple):
    """Begin the handler. Nothing is sent."""

    context: JobContext


class Wait(NamedTuple):
    """Wait for `seconds` for something to happen: Ended or STOP is sent, or None."""

    seconds: float


@shows()
class Interrupt(NamedTuple):
    """Ask the handler to end now, as hard as possible, with this. Nothing is sent."""

    error: BaseException


# Events


@shows()
class Ended(NamedTuple):
    """The handler returned (None) or raised."""

    error: BaseException | None


class Stop:
    """A signal, or `stop()`."""


STOP = Stop()

Effect: TypeAlias = RunOperation | Start | Wait | Interrupt
Happened: TypeAlias = Ended | Stop | None
Steps: TypeAlias = Generator[Effect, Any, Any]


class _Over(Exception):
    """The consumer has stopped."""


class _Consumer:
    def __init__(self, settings: ConsumeCall, monotonic: Callable[[], float]) -> None:
        self.settings = settings
        self.monotonic = monotonic
        self.stops = 0
        self.promote_at = self.reap_at = monotonic()

    def steps(self) -> Steps:
        try:
            pause = FIRST_PAUSE_S
            while True:
                asked = self.monotonic()
                try:
                    yield from self.upkeep()
                    if self.stops:
                        return
                    asked = self.monotonic()
                    got = yield RunOperation(operations.reserve(self.settings.queue, 0))
                except BackendUnavailable as error:
                    log.warning("the server cannot be reached: %s; retrying in %.1f s", type(error).__name__, pause)
                    yield from self.idle(pause)
                    pause = min(2 * pause, LONGEST_PAUSE_S)
                    continue
                pause = FIRST_PAUSE_S
                if isinstance(got, Job):
                    yield from self.job(got, asked)
                else:
                    poll = self.settings.poll_interval_s
                    yield from self.idle(max(0.25, 10 * poll) if isinstance(got, Paused) else poll)
        except _Over:
            return

    def idle(self, seconds: float) -> Steps:
        if isinstance((yield Wait(seconds)), Stop):
            raise _Over

    def upkeep(self) -> Steps:
        """Promote and reap when that is due."""
        now, settings = self.monotonic(), self.settings
        if now >= self.promote_at:
            self.promote_at = now + settings.promote_interval_s
            yield RunOperation(operations.promote_delayed(settings.queue, settings.promote_batch, 0))
        if now >= self.reap_at:
            self.reap_at = now + settings.reap_interval_s
            yield RunOperation(operations.reap_expired(settings.queue, settings.reap_batch, 0))

    def job(self, job: Job, asked: float) -> Steps:
        """One job, from its reserve to its end. `asked`: before its lease was granted."""
        if isinstance((yield Wait(0)), Stop):  # it came during the reserve: the handler has not begun
            yield from self.give_back(job)
            raise _Over
        ends = asked + job.lease_ms / 1000
        try:
            context = JobContext(self.settings.queue, job, job.json())
        except ValueError as error:
            yield from self.settle(job, error, ends)
            return
        yield Start(context)
        ends, ended = yield from self.watch(job, context, ends)
        if ended is not None:
            yield from self.settle(job, ended.error, ends)

    def watch(self, job: Job, context: JobContext, ends: float) -> Generator[Effect, Any, tuple[float, Ended | None]]:
        """Keep the lease while the handler runs. None: the job is no longer ours."""
        every = self.settings.heartbeat_interval_s or max(job.lease_ms, 1) / 1000 / HEARTBEATS
        beat_at = self.monotonic() + every
        while True:
            due = min(beat_at, self.promote_at, self.reap_at)
            happened = yield Wait(max(0.0, due - self.monotonic()))
            if isinstance(happened, Ended):
                return ends, happened
            if isinstance(happened, Stop):
                self.stops += 1
                if self.stops > 1 or not self.settings.drain:
                    yield from self.interrupt(Stopped("the consumer stops; the job was given back"))
                    yield from self.give_back(job)
                    raise _Over
            now = self.monotonic()
            if now >= beat_at:
                beat_at = now + every
                try:
                    context.lock_until_ms = yield RunOperation(
                        operations.heartbeat(self.settings.queue, job.job_id, job.lease_token, 0)
                    )
                    ends = now + job.lease_ms / 1000
                except (OmniQError, BackendUnavailable) as error:
                    lost = isinstance(error, OmniQError) or self.monotonic() >= ends
                    log.warning("job %s: no heartbeat: %s", job.job_id, type(error).__name__)
                    if lost:
                        yield from self.interrupt(LeaseLost("another consumer may have the job; stop"))
                        return ends, None
            try:
                yield from self.upkeep()
            except BackendUnavailable:
                pass  # retried when it is due again; what matters here is the lease

    def interrupt(self, error: BaseException) -> Steps:
        """Interrupt the handler and give it a moment to end. Its result is ignored."""
        yield Interrupt(error)
        until = self.monotonic() + self.settings.grace_s
        while (left := until - self.monotonic()) > 0:
            happened = yield Wait(left)
            if isinstance(happened, Ended):
                return
            self.stops += isinstance(happened, Stop)

    def settle(self, job: Job, error: BaseException | None, ends: float) -> Steps:
        """Ack; retry while the server cannot be reached and the lease lasts."""
        queue, pause = self.settings.queue, FIRST_PAUSE_S
        if error is None:
            operation: OmniqCall[Any] = operations.ack_success(queue, job.job_id, job.lease_token, 0)
        else:
            log.info("job %s failed: %s", job.job_id, type(error).__name__)
            operation = operations.ack_fail(queue, job.job_id, job.lease_token, 0, described(error))
        while True:
            try:
                yield RunOperation(operation)
                return
            except OmniQError as refused:
                log.warning("job %s: the ack was refused: %s", job.job_id, refused.code)
                return
            except BackendUnavailable as unavailable:
                if self.monotonic() + pause >= ends:
                    log.warning(
                        "job %s: not acked in the time of its lease: %s", job.job_id, type(unavailable).__name__
                    )
                    return
            self.stops += isinstance((yield Wait(pause)), Stop)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def give_back(self, job: Job) -> Steps:
        try:
            yield RunOperation(operations.give_back(self.settings.queue, job.job_id, job.lease_token, 0))
        except (OmniQError, BackendUnavailable) as error:
            log.warning("job %s was not given back: %s; its lease ends by itself", job.job_id, type(error).__name__)


def consumer_steps(call: ConsumeCall, monotonic: Callable[[], float]) -> Steps:
    """The steps of a consumer, until it is stopped."""
    return _Consumer(call, monotonic).steps()


def is_coroutine_function(handler: Handler) -> bool:
    """Whether calling it makes a coroutine. An object may be called too."""
    return any(map(inspect.iscoroutinefunction, (handler, getattr(handler, "__call__", None))))  # noqa: B004 - the method itself is asked


def refuse_coroutine_function(handler: Handler) -> None:
    """A plain consumer would ack a job for which nothing was awaited."""
    if is_coroutine_function(handler):
        raise TypeError("handler: expected a plain function, got a coroutine function, which is never awaited here; "
                        "use AsyncOmniQ")  # fmt: skip


def described(error: BaseException) -> str:
    """An exception as `last_error` keeps it."""
    try:
        text = str(error)
    except Exception:
        text = "(its text could not be read)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
