"""One job in the store: its record, its state, and what ties it to other jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from msgspec.structs import replace

from taskharbor.drivers import damage
from taskharbor.model.job import EPOCH, JobRecord, State
from taskharbor.model.lease import Lease
from taskharbor.model.memo import Memo
from taskharbor.model.outcome import Outcome
from taskharbor.model.safe_repr import shown


@dataclass(eq=False, slots=True, repr=False)
class Entry:
    """A job as the store keeps it.

    `state` changes by calls alone. It is READY for a scheduled job too, and INFLIGHT for one whose lease has expired:
    `state_at` returns the state of the contract for any moment.
    """

    record: JobRecord
    stored: int  # the number of its enqueue: dependents that are released together join in this order
    state: State | str = State.BLOCKED  # a plain str: another program (a test) wrote it
    due_at: datetime = EPOCH  # since when it is due, unless it comes back by the end of its lease
    arrival: int = 0  # its place among those that are due since the same moment
    lease: Lease | None = None  # the last one until it is settled or given back, also after it has ended
    worker: str = ""  # the worker that has that lease
    settled: tuple[str, type[Outcome]] | None = None  # token and kind of its last outcome, until it is reserved again
    lost_at: datetime | None = None  # when it was released, until it is reserved or requeued
    open: set[Entry] = field(default_factory=set)  # its dependencies that are not done
    dependents: set[Entry] = field(default_factory=set)  # the jobs that name it in their `depends_on`
    memos: dict[str, Memo] = field(default_factory=dict)

    def __repr__(self) -> str:
        return shown(self, "record", "state", "worker", "lease")

    @property
    def finished(self) -> bool:
        """Done or cancelled: it will never run again. A dead job is unfinished, because it may be requeued."""
        return self.state is State.DONE or self.state is State.CANCELLED

    @property
    def moment(self) -> datetime | None:
        """When it becomes ready by time alone: at the end of its lease, else at its `run_at`."""
        return self.record.run_at if self.lease is None else self.lease.expires_at

    @property
    def waits_since(self) -> datetime:
        """Since when it is due."""
        return self.due_at if self.lease is None else self.lease.expires_at

    def state_at(self, now: datetime) -> State:
        """The state of the contract: it follows from the entry and `now` alone."""
        if not isinstance(self.state, State):
            return State.DLQ
        is_ahead = self.moment is not None and self.moment > now
        if self.state is State.INFLIGHT:
            return State.INFLIGHT if is_ahead else State.READY
        if self.state is State.READY:
            return State.SCHEDULED if is_ahead else State.READY
        return self.state


def damage_of(entry: Entry) -> str | None:
    """What another program did to the entry that would stop a worker, or None."""
    return damage.damage_of(entry.record) or (None if isinstance(entry.state, State) else "unknown state")


def readable(entry: Entry) -> JobRecord:
    """The record as a caller gets it, every field of the right kind. The store keeps a damaged one as it was found.

    The dict inside an immutable record is not immutable, so it is a copy.
    """
    record, found = entry.record, damage_of(entry)
    if found is not None:
        record = damage.readable(record)
        if not isinstance(entry.state, State):
            record = replace(record, reason=damage.damaged_reason(found))
    return replace(record, metadata=dict(record.metadata))
