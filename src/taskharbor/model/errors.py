"""The tree of errors, drawn once.

    TaskHarborError
    ├── InvalidJob (ValueError)         the job cannot be stored; nothing was stored
    ├── WrongConnection (ValueError)    a job cannot be stored through this connection of the caller's
    ├── BlockingCall (RuntimeError)     a call that would block what it waits for
    ├── LifespanFailed                  a worker cannot begin, or did not end, with what its handlers need
    ├── JobDead                         the awaited job is in the dead letter queue
    ├── JobCancelled                    the awaited job was cancelled
    └── DriverError
        ├── JobNotFound                 no record of that id
        ├── ScheduleNotFound            no schedule of that name
        ├── JobNotInflight              there is no lease on it
        ├── LeaseMismatch               another worker has the lease
        ├── LeaseExpired                the lease was the caller's, and has expired
        ├── WrongState                  the operation does not apply to its state
        ├── FeatureMissing              the driver of this store does not offer what the call needs
        ├── StoreMissing                there is no store yet, and this call does not create one
        ├── TransactionFailed           a handler's transaction was rolled back instead of committed
        └── BackendUnavailable          the store cannot be reached; try again

`HandlerSignal` and its subclasses are not errors: a handler raises them to choose how its job ends.
All of them can be pickled, whatever their `__init__` takes: handlers also run in child processes.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

_LONGEST = 300  # characters of a handler's error in the text of another


def _again(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    error = kind.__new__(kind)
    error.args = args
    return error


def because(reason: str, text: str) -> str:
    """Why a job ended, from its recorded reason and the first line of its last error, where that says more."""
    if reason and reason in text:  # the text of an Unrecoverable is both
        return text
    return f"{reason}: {text}" if reason and text and text not in reason else reason or text


class TaskHarborError(Exception):
    """The root of everything this package raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Python's own way calls `__init__` with the text: the wrong arguments for half of these.
        return _again, (type(self), self.args), vars(self)


class InvalidJob(TaskHarborError, ValueError):
    """A job cannot be stored as it was given; nothing of the call was stored."""


class WrongConnection(TaskHarborError, ValueError):
    """The connection given as `connection=` cannot store a job together with the caller's own writes: it commits each
    statement by itself, or leads to another database than the one the jobs are kept in. Nothing was stored."""


class BlockingCall(TaskHarborError, RuntimeError):
    """A call would block what it waits for: on a running event loop (the message names the awaitable twin), or in a
    handler that would wait without a limit for another job and keep its slot meanwhile, or for the lock of its own
    transaction."""


class LifespanFailed(TaskHarborError):
    """The lifespan of a worker raised, or did not give what a task asks for with `Given()`. The worker ends."""


class JobDead(TaskHarborError):
    """The job whose result was asked for is in the dead letter queue.

    `last_error` is what its handler raised last (class, text, frames; empty if it raised nothing). Handles leave the
    values of the job's payload out of it. `error_class` is that of the record: the name of the class of its last error,
    `taskharbor.Crashed` if it took its workers down, `taskharbor.Lost` if its leases ended too often, and empty if none
    was recorded.

    >>> raise JobDead("01J", "failed 3 of 3 attempts", "ConnectionError: the bank does not answer")
    Traceback (most recent call last):
    ...
    taskharbor.model.errors.JobDead: job 01J is dead: failed 3 of 3 attempts: ConnectionError: the bank does not answer
    """

    def __init__(self, job_id: str, reason: str, last_error: str = "", error_class: str = "") -> None:
        text = next((line.strip() for line in last_error.splitlines() if line.strip()), "")
        shown = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
        super().__init__(f"job {job_id} is dead: {because(reason, shown)}")
        self.job_id = job_id
        self.reason = reason
        self.last_error = last_error
        self.error_class = error_class


class JobCancelled(TaskHarborError):
    """The job whose result was asked for was cancelled."""

    def __init__(self, job_id: str, reason: str) -> None:
        super().__init__(f"job {job_id} was cancelled: {reason}")
        self.job_id = job_id
        self.reason = reason


class DriverError(TaskHarborError):
    """A driver refused an operation, or could not perform it."""


class JobNotFound(DriverError):
    """The store has no record of that id."""


class ScheduleNotFound(DriverError):
    """The store has no schedule of that name."""


class JobNotInflight(DriverError):
    """There is no lease on the job: it was settled, cancelled, given back or never reserved."""


class LeaseMismatch(DriverError):
    """The job was reserved again: its lease has another token now."""


class LeaseExpired(DriverError):
    """The lease was this caller's, but has expired."""


class WrongState(DriverError):
    """The operation does not apply to a job in this state."""


class FeatureMissing(DriverError):
    """The driver of this store has only the verbs that every driver has, and the call needs one more."""


class StoreMissing(DriverError):
    """There is no store at this address yet: no file, or a database without our tables. Nothing was created."""


class TransactionFailed(DriverError):
    """The store refused to commit the transaction of `ctx.transaction()`, and rolled it back: nothing of it is stored.
    The client library's own exception is the cause, and becomes the failure of the job."""


class BackendUnavailable(DriverError):
    """The store cannot be reached. The client library's own exception is the cause.

    `lasting`: waiting will not help (a wrong password, a file that is not a database), so a worker does not start.
    `passing`: the store answered that it is busy with another call, so a call is tried again until its time is over.
    """

    lasting: bool = False
    passing: bool = False


class HandlerSignal(Exception):
    """How a handler ends its job other than by returning or failing. Raise one of its subclasses."""

    __reduce__ = TaskHarborError.__reduce__


class Unrecoverable(HandlerSignal):
    """Send the job to the dead letter queue now, whatever attempts it has left. `reason` stays with it.

    >>> raise Unrecoverable("the account was closed")
    Traceback (most recent call last):
    ...
    taskharbor.model.errors.Unrecoverable: the account was closed
    """

    def __init__(self, reason: str = "unrecoverable") -> None:
        super().__init__(reason)
        self.reason = reason


class StepRefused(Unrecoverable):
    """The value of a step cannot be stored, or a stored one cannot be read: it is too large, there are too many, it
    cannot be encoded, or it does not fit the annotation of its function. `reason` names the step, and quotes no value.
    """


class RetryLater(HandlerSignal):
    """Count a failure and run the job again after `delay`; without one the retry policy decides. `reason` becomes its
    error.

    `raise RetryLater(60) from error`: the failure is recorded as that error, with its class and its text.

    >>> RetryLater("5m")
    Traceback (most recent call last):
    TypeError: RetryLater: delay: expected seconds or a timedelta, got str
    """

    def __init__(self, delay: float | timedelta | None = None, reason: str = "retry later") -> None:
        if delay is not None:
            _check_delay(delay, "RetryLater")
        super().__init__(reason)
        self.delay = delay
        self.reason = reason


class Snooze(HandlerSignal):
    """Run the job again after `delay` without counting a failure, as often as it is raised."""

    def __init__(self, delay: float | timedelta) -> None:
        _check_delay(delay, "Snooze")
        super().__init__(f"snoozed for {delay}")
        self.delay = delay


class Cancel(HandlerSignal):
    """End the job as cancelled, with this `reason`. That is not a failure."""

    def __init__(self, reason: str = "cancelled by its handler") -> None:
        super().__init__(reason)
        self.reason = reason


def _check_delay(delay: object, signal: str) -> None:
    """Here, in the handler's line that is wrong, not where the delay is used."""
    from taskharbor.model.times import duration  # which imports the job, and that these errors

    duration(delay, f"{signal}: delay")  # type: ignore[arg-type]  # checked just there
