"""What operations return and refuse, and what a handler receives. Values only.

    OmniQError                  .code says which
    ├── NotActive               NOT_ACTIVE: no client holds a lease on the job
    └── TokenMismatch           TOKEN_MISMATCH: another client holds it

A server that cannot be reached is `taskharbor.BackendUnavailable`, as everywhere.
"""

from __future__ import annotations

import threading
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

import msgspec

from taskharbor.model.errors import TaskHarborError
from taskharbor.model.safe_repr import shows


@shows("job_id", "gid", "attempt", "max_attempts", "lock_until_ms")
class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was reserved. `payload` is its JSON text, as published; `gid` is empty when it is in no group."""

    status: Literal["JOB"] = "JOB"  # tells a job from `PAUSED`
    job_id: str  # its id
    payload: str
    lock_until_ms: int  # when the lease ends, in milliseconds since 1970
    attempt: int  # which attempt this is, from 1
    gid: str
    lease_token: str  # the secret of this lease, for every call about the job
    max_attempts: int = 0  # the attempt that is the last one
    lease_ms: int = 0
    """How long the lease lasts from the moment it was granted: `lock_until_ms` without the server's clock."""

    def json(self) -> Any:
        """The payload as a value; ValueError if it is not JSON."""
        return parsed(self.payload)


class Paused:
    """The result of `reserve` for a paused queue. There is one, `PAUSED`."""

    status: ClassVar[Literal["PAUSED"]] = "PAUSED"

    def __repr__(self) -> str:
        return "PAUSED"

    def __reduce__(self) -> str:
        return "PAUSED"


PAUSED: Final = Paused()
"""What `reserve` returns for a paused queue."""

ReserveResult: TypeAlias = Job | Paused | None
"""What `reserve` returns: a job, `PAUSED`, or None for an empty queue."""
AckFailResult: TypeAlias = tuple[Literal["RETRY"], int] | tuple[Literal["FAILED"], None]
"""What `ack_fail` returns: `("RETRY", due_ms)` or `("FAILED", None)`."""
Lane: TypeAlias = Literal["wait", "gwait", "delayed", "failed", "completed"]
"""Where a job without a lease is: "wait", "gwait" (waiting in a group), "delayed", "failed" or "completed"."""
LANES: tuple[Lane, ...] = ("wait", "gwait", "delayed", "failed", "completed")


class JobContext:
    """What a handler receives.

    `cancelled` is set when the lease is lost, or when a consumer that does not drain stops: the handler should end
    then. A coroutine is cancelled as well, and a plain function gets `LeaseLost` or `Stopped` raised into it.
    """

    __slots__ = ("attempt", "cancelled", "gid", "job_id", "lease_token", "lock_until_ms", "max_attempts", "payload",
                 "payload_raw", "queue")  # fmt: skip

    def __init__(self, queue: str, job: Job, payload: Any) -> None:
        self.queue = queue
        self.job_id = job.job_id
        self.payload_raw = job.payload
        self.payload = payload
        self.attempt = job.attempt
        self.max_attempts = job.max_attempts
        self.lock_until_ms = job.lock_until_ms
        self.lease_token = job.lease_token
        self.gid = job.gid
        self.cancelled = threading.Event()

    def __repr__(self) -> str:
        return f"JobContext(queue={self.queue!r}, job_id={self.job_id!r}, attempt={self.attempt}, gid={self.gid!r})"


class BatchItem(NamedTuple):
    """What became of one id of a batch: `error` is None, or the code of its refusal."""

    job_id: str  # the id
    error: str | None


def parsed(payload: str) -> Any:
    """JSON text as a value; ValueError if it is none. The text itself is never quoted."""
    try:
        return msgspec.json.decode(payload.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the payload is not JSON: {type(error).__name__}") from None


# Refusals, with the codes that every OmniQ client gives them


MEANINGS = {
    "NOT_ACTIVE": "no client holds a lease on the job: it ended, was reaped, or is not known",
    "TOKEN_MISMATCH": "another lease holds the job; stop working on it",
    "TOKEN_REQUIRED": "expected the lease_token of a reserve, got an empty one",
    "NO_JOB": "no job of that id is in the queue",
    "NOT_FAILED": "only a failed job can be retried",
    "ACTIVE": "the job is being worked on; only a job without a lease can be removed",
    "BAD_LANE": "expected wait, gwait, delayed, failed or completed",
    "LANE_MISMATCH": "the job is in another lane",
    "NOT_IN_LANE": "the job's record names this lane, but the lane does not hold it",
    "NEEDED": "an unfinished job depends on this one",
    "BATCH_TOO_LARGE": "expected at most 100 ids",
    "BAD_ARGS": "expected at least one id",
    "BAD_JOB_ID": "expected an id, got an empty one",
    "NO_EXPECTED": "expected the number of children",
    "BAD_EXPECTED": "expected one child or more",
    "ALREADY_INIT": "this counter counts already; finish it, or take another key",
    "CHILD_REQUIRED": "expected the id of a child",
    "NO_COUNTER": "no counter of that key was begun, or it ended long ago",
}


class OmniQError(TaskHarborError):
    """An operation was refused; nothing was changed. `code` is the contract's word for it, `where` the operation."""

    code: str = ""

    def __init__(self, code: str, where: str = "") -> None:
        super().__init__(f"{code}{f' ({where})' if where else ''}: {MEANINGS.get(code, 'refused')}")
        self.code = code


class NotActive(OmniQError):
    """No client holds a lease on the job."""


class TokenMismatch(OmniQError):
    """Another lease holds the job: a handler that gets this should stop."""


_CLASSES: dict[str, type[OmniQError]] = {"NOT_ACTIVE": NotActive, "TOKEN_MISMATCH": TokenMismatch}


def refusal(code: str, where: str = "") -> OmniQError:
    """The error of a code."""
    return _CLASSES.get(code, OmniQError)(code, where)
