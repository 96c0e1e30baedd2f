"""Events: what happened, as typed values, and their delivery to observers that can never break the loop.

An observer is any callable that takes an event; it is not awaited and must be quick. One with an attribute
`wants(event_type) -> bool` is asked first, so that unwanted events cost nothing.
Events carry the job record, whose repr shows no payload; what a handler's exception said is in `error`, and an
observer that writes it down decides to.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import ClassVar, TypeAlias

import msgspec

from taskharbor.model.audit import AuditEntry
from taskharbor.model.errors import TaskHarborError
from taskharbor.model.job import JobRecord
from taskharbor.model.naming import callable_name, class_name

logger = logging.getLogger("taskharbor.events")
COMPLAINS_AGAIN_S = 60  # after it was logged that an observer fails


class Event(msgspec.Struct, frozen=True, gc=False):
    """The root of all events. Its repr shows an error by its class alone, and nothing that may quote one."""

    quotes: ClassVar[frozenset[str]] = frozenset()
    """The fields in which a handler's own words may stand, and with them what it was given."""

    advice: ClassVar[str] = ""
    """What to check when this happens."""

    level: ClassVar[int] = logging.INFO
    """The level at which it is logged."""

    def __repr__(self) -> str:
        fields = []
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, BaseException):
                fields.append(f"{name}=<{type(value).__qualname__}>")
            elif name not in self.quotes:
                fields.append(f"{name}={value!r}")
        return f"{type(self).__qualname__}({', '.join(fields)})"


class JobEvent(Event, frozen=True, gc=False):
    """Something that happened to one job. `worker` is empty for what a client did."""

    job: JobRecord  # the job's record
    worker: str


class JobEnqueued(JobEvent, frozen=True, gc=False):
    """A job was stored; `existed`: it was there already, and `job.id` is the known one."""

    level = logging.DEBUG

    existed: bool = False


class KeyConflict(JobEvent, frozen=True, gc=False):
    """An enqueue with other arguments met a known idempotency key: `job.id` is the known job, which stays as it is."""

    level = logging.WARNING

    advice = "its idempotency key came with other arguments before: nothing was stored; should they be part of the key?"


class JobReserved(JobEvent, frozen=True, gc=False):
    """A worker took a job under a lease."""

    level = logging.DEBUG


class JobStarted(JobEvent, frozen=True, gc=False):
    """A handler was called."""

    level = logging.DEBUG


class JobProgress(JobEvent, frozen=True, gc=False):
    """A handler reported its progress."""

    level = logging.DEBUG

    done: float  # how much is done
    total: float | None  # of how much; None: not known
    note: str  # the handler's own words


class JobSucceeded(JobEvent, frozen=True, gc=False):
    """A handler returned and the store has recorded it."""

    seconds: float  # how long the handler ran


class JobFailed(JobEvent, frozen=True, gc=True):
    """A handler failed; JobRetried or JobDeadLettered reports what follows from it.

    `error_class` and `fingerprint` are what the record keeps: failures with the same cause share the fingerprint.
    """

    level = logging.WARNING

    error: BaseException  # what the handler raised
    seconds: float  # how long the handler ran
    error_class: str = ""
    fingerprint: str = ""


class JobRetried(JobEvent, frozen=True, gc=False):
    """A failure was recorded; the job runs again at `run_at` (None: at once)."""

    attempts: int  # failures by now
    run_at: datetime | None


class JobDeadLettered(JobEvent, frozen=True, gc=False):
    """A job went to the dead letter queue."""

    level = logging.ERROR

    quotes = frozenset({"reason"})

    attempts: int  # failures by now
    reason: str  # why it is dead


class JobSnoozed(JobEvent, frozen=True, gc=False):
    """A handler asked to be run again later; no failure was recorded."""

    run_at: datetime | None  # when it runs again


class JobGivenBack(JobEvent, frozen=True, gc=False):
    """A job went back without a failure: at shutdown, or because this worker cannot run it now."""

    reason: str  # why it went back
    run_at: datetime | None  # not before this moment; None: at once


class JobUnknown(JobEvent, frozen=True, gc=False):
    """No handler here knows the job's type; it was given back with a delay. `known`: the types that this worker runs,
    the first of them where there are many."""

    level = logging.WARNING

    advice = "is the module that declares it imported? worker run --app imports one, --import more"

    known: tuple[str, ...] = ()


class JobCancelled(JobEvent, frozen=True, gc=False):
    """A job was cancelled: by its handler, or from outside while it ran."""

    quotes = frozenset({"reason"})

    reason: str  # why it was cancelled


class LeaseLost(JobEvent, frozen=True, gc=True):
    """The lease on a running job ended: another worker may run it now. Its handler was asked to stop."""

    level = logging.WARNING

    error: TaskHarborError  # what the store returned


class OutcomeRefused(JobEvent, frozen=True, gc=True):
    """The store refused an outcome, so it was thrown away: the newest reservation decides."""

    level = logging.WARNING

    error: TaskHarborError  # why the store refused it


class ResultChanged(JobEvent, frozen=True, gc=False):
    """A handler returned a value that its readers will not get as it was: what JSON and its annotation hold is stored.

    `place` is where in the result, `what` is what would be lost there; neither quotes a value.
    """

    level = logging.WARNING

    advice = "annotate the handler with the type that it returns, and return nothing that is not written"

    place: str
    what: str


class PolicyFailed(JobEvent, frozen=True, gc=True):
    """A retry policy raised; the job is retried after a minute."""

    level = logging.ERROR

    error: BaseException  # what the policy raised


class HandlerBlocked(Event, frozen=True, gc=False):
    """The event loop has not turned for `seconds`; `job` is what holds it, `where` the line it is at."""

    level = logging.WARNING

    worker: str  # the worker that it happened at
    job: JobRecord | None
    seconds: float
    where: str


class HandlerStuck(JobEvent, frozen=True, gc=False):
    """A handler goes on although its job was decided without it: its slot stays taken until it ends.

    `reason` is why it was asked to stop; `stuck` of the worker's `slots` are held like this now.
    """

    level = logging.WARNING

    reason: str
    stuck: int
    slots: int


class HandlerFreed(JobEvent, frozen=True, gc=False):
    """A handler that was stuck has ended after all, `seconds` after its start."""

    seconds: float
    stuck: int  # how many slots of the worker are still held by such handlers


class WorkerStuck(Event, frozen=True, gc=False):
    """Every slot of a worker is held by a handler that does not end: it can run nothing any more."""

    level = logging.ERROR

    worker: str  # the worker that it happened at
    slots: int  # how many slots it has


class StoreLost(Event, frozen=True, gc=True):
    """A call to the store failed; it is tried again, for ever. Emitted once for each outage."""

    level = logging.ERROR

    worker: str  # the worker that it happened at
    doing: str  # which call failed
    error: BaseException  # how it failed


class StoreBack(Event, frozen=True, gc=False):
    """The store is available again after `seconds`."""

    worker: str  # the worker that it happened at
    seconds: float


class WorkerStarted(Event, frozen=True, gc=False):
    """A worker begins to serve its queues."""

    worker: str  # the worker that it happened at
    queues: tuple[str, ...]  # the queues that it serves


class WorkerStopping(Event, frozen=True, gc=False):
    """A worker takes no more jobs and lets `running` finish."""

    worker: str  # the worker that it happened at
    running: int


class WorkerStopped(Event, frozen=True, gc=False):
    """A worker has settled or given back everything it held."""

    worker: str  # the worker that it happened at


class JobsRelayed(Event, frozen=True, gc=False):
    """A relay carried jobs from an outbox to the store. `seconds`: how long the first of them had waited there."""

    level = logging.DEBUG

    worker: str  # the worker that did it; empty for `harbor.outbox.relay`
    jobs: int  # how many
    seconds: float


class RelayRefused(Event, frozen=True, gc=False):
    """A relay set a row of an outbox aside: it cannot be read, or the store refuses its jobs."""

    level = logging.ERROR

    advice = "mend what is wrong, then set its problem to '' in taskharbor_outbox, or delete the row"

    worker: str  # the worker that did it; empty for `harbor.outbox.relay`
    row: int  # its id in the table taskharbor_outbox
    reason: str  # what is wrong with it


class OperatorActed(Event, frozen=True, gc=False):
    """A person or a program changed jobs from outside: what the audit of the store keeps, too."""

    entry: AuditEntry  # who did what, as the audit keeps it


class ScheduleEvent(Event, frozen=True, gc=False):
    """Something that happened to a schedule, at a worker."""

    worker: str  # the worker that it happened at
    schedule: str  # the name of the schedule
    queue: str  # the queue of its jobs


class ScheduleFired(ScheduleEvent, frozen=True, gc=False):
    """A slot got its job, `late` seconds after its moment."""

    level = logging.DEBUG

    slot: datetime  # the moment for which it was made
    job_id: str  # the job
    late: float


class ScheduleMissed(ScheduleEvent, frozen=True, gc=False):
    """Slots passed without a job, because no worker noticed them in time; `catch_up` says what to do then."""

    level = logging.WARNING

    missed: int  # how many slots


class ScheduleSkipped(ScheduleEvent, frozen=True, gc=False):
    """Slots got no job, because a job of an earlier one has not ended."""

    skipped: int  # how many slots


class ScheduleChanged(ScheduleEvent, frozen=True, gc=False):
    """A declaration in code was stored: a new one (`new`), or one that differs from what was stored. Or a schedule that
    lay ahead of the clock began anew."""

    new: bool


class ScheduleEditDropped(ScheduleEvent, frozen=True, gc=False):
    """The code declares a schedule differently than before, so what was edited at run time is gone."""

    level = logging.WARNING

    advice = "edit it again if it is still needed"


class ScheduleRefused(ScheduleEvent, frozen=True, gc=False):
    """A worker leaves a schedule alone that it cannot read, or whose job cannot be stored. Emitted once for each
    version of the schedule."""

    level = logging.ERROR

    reason: str  # what is wrong with it


Observer: TypeAlias = Callable[[Event], None]
"""A function that receives every event. It is not awaited and must be quick; it may be called from any thread. One with
a method `wants(event_type) -> bool` is asked first, so that unwanted events cost nothing."""


class Observers:
    """Delivers events. What an observer raises is logged, each kind once a minute, and never reaches the caller.

    Only a KeyboardInterrupt does: it is the user's, not the observer's. `interruptible` False: that neither. A worker
    takes its signals by other means, and outcomes of many jobs would be lost with its loop.
    """

    def __init__(self, observers: Iterable[Observer] = (), *, interruptible: bool = True) -> None:
        self._asked = tuple((observer, getattr(observer, "wants", None)) for observer in observers)
        self._passed_on: tuple[type[BaseException], ...] = (KeyboardInterrupt,) if interruptible else ()
        self._silent_until: dict[tuple[int, str], float] = {}

    def add(self, observer: Observer) -> None:
        """Add an observer of what happens from now on."""
        self._asked = (*self._asked, (observer, getattr(observer, "wants", None)))

    def wants(self, event_type: type[Event]) -> bool:
        """Whether any observer wants events of this type: ask before building many."""
        for observer, wants in self._asked:
            if wants is None:
                return True
            try:
                if wants(event_type):
                    return True
            except self._passed_on:
                raise
            except BaseException as error:
                self._complain(observer, error)
        return False

    def emit(self, event: Event) -> None:
        """Hand the event to every observer that wants its type."""
        kind = type(event)
        for observer, wants in self._asked:
            try:
                if wants is None or wants(kind):
                    observer(event)
            except self._passed_on:
                raise
            except BaseException as error:
                self._complain(observer, error)

    def _complain(self, observer: Observer, error: BaseException) -> None:
        kind = (id(observer), class_name(error))
        now = time.monotonic()
        if now < self._silent_until.get(kind, now):
            return
        self._silent_until[kind] = now + COMPLAINS_AGAIN_S
        try:
            # By name: the repr of a partial shows its arguments. And a log handler may fail, too.
            logger.error(
                "observer %s failed with %s; the next %d s of this are not reported",
                callable_name(observer),
                kind[1],
                COMPLAINS_AGAIN_S,
            )
        except Exception:
            return
