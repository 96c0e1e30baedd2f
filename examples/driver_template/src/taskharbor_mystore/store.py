"""A toy store in this process: rows, and one lock that makes each call a transaction. This file is what you replace.

A database has its own rows, indexes and transactions. Here every search walks over all rows, so that the other files
show what the contract asks for and nothing else.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import datetime

from taskharbor.drivers import JobRecord, Lease, State, WorkerInfo, replace
from taskharbor.drivers.damage import damage_of, damaged_reason

_STORES: dict[str, Store] = {}


@dataclass(eq=False)
class Row:
    """A job as it is stored. `state` is READY for a scheduled job too, and INFLIGHT for one whose lease has expired:
    `state_at` reads the clock out of it."""

    record: JobRecord
    stored: int  # the number of its enqueue
    state: State | str = State.BLOCKED  # a plain str: another program wrote it
    due_at: datetime | None = None
    arrival: int = 0
    lease: Lease | None = None
    worker: str = ""
    settled: tuple[str, type] | None = None  # the token and the kind of its last outcome
    edges: dict[str, int] = field(default_factory=dict)  # dependency → `stored` of the row that had this id then

    @property
    def unfinished(self) -> bool:
        return self.state is not State.DONE and self.state is not State.CANCELLED

    def state_at(self, now: datetime) -> State:
        """The state of the contract: it follows from the row and `now` alone."""
        if not isinstance(self.state, State):
            return State.DLQ
        if self.lease is not None:
            return State.INFLIGHT if self.lease.expires_at > now else State.READY
        run_at = self.record.run_at
        return State.SCHEDULED if self.state is State.READY and run_at is not None and run_at > now else self.state

    def place(self) -> tuple[int, datetime, int]:
        """Its place in the order of its queue, or of its group, where priority does not count."""
        due_at = self.lease.expires_at if self.lease is not None else self.due_at
        assert due_at is not None
        return (0 if self.record.group is not None else -self.record.priority, due_at, self.arrival)


class Store:
    """All rows, and what outlives them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rows: dict[str, Row] = {}
        self.group_limits: dict[tuple[str, str], int] = {}
        self.served: dict[tuple[str, str | None] | str, int] = {}  # a queue, or a group of it → its last turn
        self.arrived: dict[str, int] = {}  # queue → the last time at which a reserve may have found more than before
        self.paused: set[str] = set()
        self.cancelled_flows: set[str] = set()
        self.workers: dict[str, WorkerInfo] = {}
        self.number = 0

    def next_number(self) -> int:
        self.number += 1
        return self.number

    # Transitions: every call is made of these

    def make_ready(self, row: Row, now: datetime, **changes: object) -> None:
        """Ready or scheduled, at the end of the order."""
        self._end_lease(row)
        row.record = replace(row.record, **changes)
        run_at = row.record.run_at
        row.state, row.arrival = State.READY, self.next_number()
        row.due_at = now if run_at is None else max(run_at, now)
        if row.due_at == now:
            self.arrived[row.record.queue] = self.number

    def finish(self, row: Row, state: State, now: datetime, **changes: object) -> None:
        """To a terminal state."""
        self._end_lease(row)
        row.record = replace(row.record, finished_at=now, **changes)
        row.state = state

    def set_aside(self, row: Row, now: datetime) -> bool:
        """Move a damaged row to the dead letter queue; False if it is sound."""
        damage = damage_of(row.record) or (None if isinstance(row.state, State) else "unknown state")
        if damage is not None:
            self.finish(row, State.DLQ, now, reason=damaged_reason(damage))
        return damage is not None

    def forget(self, row: Row) -> None:
        self._end_lease(row)
        flow_id = row.record.flow_id
        del self.rows[row.record.id]
        if flow_id is not None and not any(other.record.flow_id == flow_id for other in self.rows.values()):
            self.cancelled_flows.discard(flow_id)

    def _end_lease(self, row: Row) -> None:
        if row.lease is not None and row.record.group is not None:  # the group has capacity again
            self.arrived[row.record.queue] = self.next_number()
        row.lease, row.worker = None, ""


def connect(address: str) -> Store:
    """The store at an address, which exists as long as this process."""
    return _STORES.setdefault(address, Store())
