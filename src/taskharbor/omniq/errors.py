"""What an operation of OmniQ refuses, with the code that every OmniQ client gives it.

    OmniQError                  .code says which
    ├── NotActive               NOT_ACTIVE: no client holds a lease on the job
    └── TokenMismatch           TOKEN_MISMATCH: another client holds it

A server that cannot be reached is `taskharbor.BackendUnavailable`, as everywhere.
"""

from __future__ import annotations

from taskharbor.model.errors import TaskHarborError

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
