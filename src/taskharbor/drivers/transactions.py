"""A transaction that a handler's own writes share with the job's Ack: see `SqlDriver.transaction`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

from taskharbor.model.errors import TaskHarborError
from taskharbor.model.lease import Lease
from taskharbor.model.memo import SaveStep
from taskharbor.model.outcome import Ack


class Transaction(Protocol):
    """One transaction on the store, for a handler's own writes: `async with transaction as connection`.

    Leaving the block does not commit. Core calls `commit` when the handler has returned, or `rollback`.
    """

    async def __aenter__(self) -> Any:
        """Begin, and return the connection."""

    async def __aexit__(self, *raised: object) -> None:
        """The handler's block has ended; the transaction stays open."""

    async def commit(self, ack: Ack | SaveStep, now: datetime) -> TaskHarborError | None:
        """Apply the Ack, or store the step, on the same connection and commit both. A refusal rolls both back and is
        returned; so is a commit that the store refuses for good, as TransactionFailed. After any other error, which is
        raised, it may have been committed or not."""

    async def rollback(self) -> None:
        """Undo everything and return the connection to its pool. Without effect when it has ended."""

    async def abort(self, why: str) -> None:
        """Undo everything now, though the handler still runs, and free every lock. If it has not begun, it never
        will. What the handler does with the connection later is refused with `why`. Without effect when it has
        ended."""


class TransactionSync(Protocol):
    """The same for a plain function: `with transaction as connection`. Calls other than `abort` never overlap, but may
    come from different threads: the handler's and another one for its end."""

    def __enter__(self) -> Any:
        """Begin, and return the connection."""

    def __exit__(self, *raised: object) -> None:
        """The handler's block has ended; the transaction stays open."""

    def commit(self, ack: Ack | SaveStep, now: datetime) -> TaskHarborError | None:
        """Apply the Ack, or store the step, on the same connection and commit both. A refusal rolls both back and is
        returned; so is a commit that the store refuses for good, as TransactionFailed. After any other error, which is
        raised, it may have been committed or not."""

    def rollback(self) -> None:
        """Undo everything and return the connection to its pool. Without effect when it has ended."""

    def abort(self, why: str) -> None:
        """Undo everything now, though the handler still runs in its own thread, and free every lock. If it has not
        begun, it never will. What the handler does with the connection later is refused with `why`. Without effect
        when it has ended. May be called from any thread at any moment."""


def aborted(lease: Lease, why: str) -> str:
    """The text of the error that a handler gets if it uses a transaction that is over."""
    return (
        f"the transaction of job {lease.job_id} was rolled back, because {why}: "
        "nothing more can be read or written through it"
    )
