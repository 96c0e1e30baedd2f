"""What a bulk operation does, and how far it is: plain values, and the arithmetic of its pace.

An operation is a flow on the queue `taskharbor`. Each job of it (a slice) changes some of the jobs that fit, and its
ack stores the next slice in the same transaction. The payload of a slice is an `OperationState`, and nothing else is
kept anywhere: so any worker can go on where another one was killed.

    choose ──► canary ──► await the canary ──► count ──► act ──► act ──► … ──► ended
    (limit=)   (only with canary=)             (only with spread=)       └► a canary that fails too often: held

The filter is frozen when the operation is made: `until` is then set, so a job that ends or is enqueued later never
fits. A job that changed between the listing and the change is skipped, and counted as that.
"""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from taskharbor.model.audit import AuditEntry
from taskharbor.model.error_class import stored_error_name
from taskharbor.model.job import OPERATIONS_QUEUE, JobInfo, JobRecord, State

OPERATION_TYPE = "taskharbor.operation"
SLICES_KEPT_FOR = timedelta(days=7)  # after their end: the audit keeps what an operation did for longer
SLICE_MAX_ATTEMPTS = 20

MAX_CANARY_JOBS = 100
MAX_COUNTED_JOBS = 1_000_000
"""`spread` needs the number of jobs: counted are at most this many. More of them take longer than `spread`."""

WINDOWS = 20  # how many slices a spread is divided into
MIN_WINDOW_S, MAX_WINDOW_S = 1.0, 30.0
STEPS_OF_WINDOW = 20  # how many moments the jobs of one slice are spread over


class Action(StrEnum):
    """What an operation does with each job."""

    REQUEUE = "requeue"
    CANCEL = "cancel"
    DELETE = "delete"


class Phase(StrEnum):
    """What the next slice of an operation does."""

    CHOOSE = "choose"
    CANARY = "canary"
    AWAIT = "await"
    COUNT = "count"
    ACT = "act"


class OperationStatus(StrEnum):
    """How an operation stands. Members are strings: `OperationStatus.HELD == "held"`."""

    RUNNING = "running"
    """It has not ended."""
    DONE = "done"
    """It has acted on every job that fitted."""
    HELD = "held"
    """Too many jobs of the canary died again: the others were not touched."""
    STOPPED = "stopped"
    """`stop()` ended it."""
    FAILED = "failed"
    """A slice failed again and again; its job says why."""

    @property
    def ended(self) -> bool:
        """Whether it does nothing any more."""
        return self is not OperationStatus.RUNNING


class FrozenFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which jobs: the arguments of `harbor.jobs(…)`, as they are stored. None stands for any.

    A field that only a later version knows is an error, here and in the plan: without it other jobs would fit. A
    version that adds one gives its slices another type, so that workers of this one leave them alone.
    """

    state: State | None = None
    queue: str | None = None
    type: str | None = None
    group: str | None = None
    flow: str | None = None
    error: str | None = None
    fingerprint: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def query(self) -> dict[str, Any]:
        """The arguments of `Driver.list`."""
        return {
            "state": self.state,
            "queue": self.queue,
            "type": self.type,
            "group": self.group,
            "flow_id": self.flow,
            "error_class": None if self.error is None else stored_error_name(self.error),
            "fingerprint": self.fingerprint,
            "since": self.since,
            "until": self.until,
        }

    def given(self) -> dict[str, str]:
        """What was given, as text, by name.

        >>> FrozenFilter(state=State.DLQ, queue="mail").given()
        {'state': 'dlq', 'queue': 'mail'}
        """
        values = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {
            name: value.isoformat() if isinstance(value, datetime) else str(value)
            for name, value in values
            if value is not None
        }


class OperationPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What an operation does, decided once. `spread_s` and `canary` are for requeue alone; `limit` 0: all."""

    action: Action
    filter: FrozenFilter
    by: str
    reset_attempts: bool = True
    spread_s: float = 0.0
    canary: int = 0
    max_failures: int = 0
    limit: int = 0

    def options(self) -> dict[str, str]:
        """The options that differ from their defaults, as text, by name."""
        given: dict[str, str] = {}
        if self.action is Action.REQUEUE and not self.reset_attempts:
            given["reset_attempts"] = "no"
        for name, value in (("spread", self.spread_s), ("canary", self.canary), ("limit", self.limit)):
            if value:
                given[name] = str(value) if isinstance(value, int) else f"{value:.15g}"
        if self.canary:
            given["max_failures"] = str(self.max_failures)
        return given


class OperationState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far an operation is: the payload of its next slice."""

    plan: OperationPlan
    began_at: datetime
    phase: Phase = Phase.ACT
    number: int = 0  # of this slice
    cursor: str | None = None
    done: int = 0
    skipped: int = 0
    total: int = 0  # how many fit, as far as they are counted; 0: not counted
    counted_to: str | None = None  # the cursor of the count
    chosen: int = 0  # how many jobs were found, of those that a limit allows
    last: str = ""  # the id of the last job that a limit allows: a slice that runs twice goes no further
    canaries: tuple[str, ...] = ()
    failures: int = 0  # canaries that died again, or were cancelled

    @property
    def met(self) -> int:
        """How many jobs were changed or skipped."""
        return self.done + self.skipped

    def left(self) -> int | None:
        """How many more jobs may be changed; None: any number."""
        return max(0, self.plan.limit - self.done) if self.plan.limit else None

    def after_choice(self) -> Phase:
        """The phase that begins when the limit is known to end at a job, or at once without one."""
        return Phase.CANARY if self.plan.canary else self.after_canary()

    def after_canary(self) -> Phase:
        """The phase that begins when the canary is over, or at once without one."""
        return Phase.COUNT if self.plan.spread_s else Phase.ACT

    def with_next(self, **changes: Any) -> OperationState:
        """The state of the next slice."""
        return msgspec.structs.replace(self, number=self.number + 1, **changes)


class OperationResult(msgspec.Struct, frozen=True, kw_only=True):
    """How an operation ended: the result of its last slice."""

    status: OperationStatus
    done: int
    skipped: int
    failures: int = 0


def first_state(plan: OperationPlan, now: datetime) -> OperationState:
    """The state of an operation that begins now."""
    state = OperationState(plan=plan, began_at=now)
    return msgspec.structs.replace(state, phase=Phase.CHOOSE if plan.limit else state.after_choice())


_SLICE_ID = re.compile(r".+\.\d{6,}").fullmatch
_encode = msgspec.json.Encoder().encode
read_state = msgspec.json.Decoder(OperationState).decode
"""The state that a slice carries, or ValueError."""
read_result = msgspec.json.Decoder(OperationResult).decode
"""What `write_result` wrote, or ValueError."""


def slice_id(operation_id: str, number: int = 0) -> str:
    """The id of a slice, by its number."""
    return f"{operation_id}.{number:06}"


def slice_record(operation_id: str, state: OperationState, now: datetime, run_at: datetime | None = None) -> JobRecord:
    """The job of a slice. Its id follows from the operation and its number, so the ids are in the order of slices."""
    return JobRecord(
        id=slice_id(operation_id, state.number),
        type=OPERATION_TYPE,
        queue=OPERATIONS_QUEUE,
        payload=_encode(state),
        run_at=run_at,
        max_attempts=SLICE_MAX_ATTEMPTS,
        flow_id=operation_id,
        created_at=now,
        keep_for=SLICES_KEPT_FOR,
    )


def write_result(state: OperationState, status: OperationStatus) -> bytes:
    """The result of the last slice."""
    return _encode(OperationResult(status=status, done=state.done, skipped=state.skipped, failures=state.failures))


def may_be_slice(id: str) -> bool:
    """Whether this may be the id of a slice. A caller may choose any id, so only the type of the record is certain."""
    return _SLICE_ID(id) is not None


def is_operation(info: JobInfo) -> bool:
    """Whether a job is a slice of an operation: no operation ever changes one."""
    return info.job.type == OPERATION_TYPE


def window_s(spread_s: float) -> float:
    """Over how many seconds one slice spreads its jobs.

    >>> window_s(600), window_s(3), window_s(86_400)
    (30.0, 1.0, 30.0)
    """
    return min(max(spread_s / WINDOWS, MIN_WINDOW_S), MAX_WINDOW_S)


def jobs_of_window(total: int, spread_s: float) -> int:
    """How many jobs one slice requeues, so that all of them take `spread_s`.

    >>> jobs_of_window(1_000, 100), jobs_of_window(3, 600)
    (50, 1)
    """
    return max(1, math.ceil(total * window_s(spread_s) / spread_s))


def starts_in_window(count: int, seconds: float) -> list[tuple[int, float]]:
    """How `count` jobs are spread over a window: pairs of a number of jobs and the second at which they start.

    >>> starts_in_window(3, 30.0)
    [(1, 0.0), (1, 10.0), (1, 20.0)]
    >>> starts_in_window(45, 20.0)[:3]
    [(2, 0.0), (2, 1.0), (2, 2.0)]
    """
    steps = min(count, STEPS_OF_WINDOW)
    bounds = [count * step // steps for step in range(steps + 1)] if steps else []
    return [(bounds[step + 1] - bounds[step], seconds * step / steps) for step in range(steps)]


def entry_of(id: str, plan: OperationPlan, at: datetime, status: OperationStatus) -> AuditEntry:
    """The entry of an operation in the audit, under its id, replaced when it ends. `at`: when it began."""
    given, options = plan.filter.given(), plan.options()
    return AuditEntry(id=id, at=at, by=plan.by, action=plan.action, filter=given, options=options, status=status)


def ended_entry(id: str, state: OperationState, status: OperationStatus) -> AuditEntry:
    """The entry of an operation that has ended."""
    entry = entry_of(id, state.plan, state.began_at, status)
    return msgspec.structs.replace(entry, done=state.done, refused=state.skipped)
