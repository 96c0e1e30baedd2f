"""One job in the store: its record, its standing, and what ties it to other jobs.

`standing` is true at the moment to which its queue was last moved (see queue.py); `state_at` returns the state of the
contract for any moment, from the record, the lease and `now` alone:

    BLOCKED    open dependencies          INFLIGHT   leased                  DONE, DLQ, CANCELLED   terminal
    SCHEDULED  run_at lies ahead          EXPIRED    lease over, due again   UNKNOWN                damaged
    READY      due

Moments are whole microseconds since 1970 (`to_us`): exact for any datetime, and cheaper than one to compare.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from taskharbor.drivers import damage
from taskharbor.model.job import JobRecord, State
from taskharbor.model.lease import Lease
from taskharbor.model.outcome import Ack
from taskharbor.model.safe_repr import shown

if TYPE_CHECKING:
    from taskharbor.drivers.memory.queue import JobQueue

BLOCKED, SCHEDULED, READY, EXPIRED, INFLIGHT, DONE, DLQ, CANCELLED, UNKNOWN = STANDINGS = range(9)

STATES = {
    BLOCKED: State.BLOCKED,
    SCHEDULED: State.SCHEDULED,
    READY: State.READY,
    EXPIRED: State.READY,
    INFLIGHT: State.INFLIGHT,
    DONE: State.DONE,
    DLQ: State.DLQ,
    CANCELLED: State.CANCELLED,
    UNKNOWN: State.DLQ,
}

DUE = frozenset({READY, EXPIRED})
LEASED = frozenset({INFLIGHT, EXPIRED})
WAITING = frozenset({READY, SCHEDULED})
_FINISHED = frozenset({DONE, CANCELLED})

LISTED = (BLOCKED, DLQ, CANCELLED)

MICROSECOND = timedelta(microseconds=1)


class Entry(msgspec.Struct, eq=False, gc=False):
    """A job as the store keeps it: a struct, which is made in 0.1 µs, and a key of dicts by identity.

    The garbage collector does not see entries: with a hundred thousand of them its full passes cost a third of the
    throughput. So nothing that an entry refers to may refer back to it, except its queue, which `MemoryStore` empties
    when it goes.
    """

    record: JobRecord
    queue: JobQueue
    stored: int  # the number of its enqueue: dependents released together join in this order
    standing: int = UNKNOWN
    time: int = 0  # since when it is due
    arrival: int = 0  # its place among those that are due since then
    moment: int | None = None  # where it is in the queue's calendar: the end of its lease, else its run_at
    place: int | None = None  # the ticket of its item in a heap; an item with any other ticket is stale
    lease: Lease | None = None  # the last one until it is settled or given back, also after it has ended
    worker: str = ""  # the worker that has that lease
    settled: str | None = None  # the token of its last outcome, until it is reserved again
    settled_as: type = Ack  # the kind of that outcome
    lost_at: datetime | None = None  # when it was released, until it is reserved or requeued
    open: int = 0  # how many dependencies are not done, while it is blocked
    dependents: dict[Entry, bool] | None = None  # each job that depends on it → whether that one is unfinished
    holds: int = 0  # how many of its dependents are unfinished
    parked: bool = False  # finished, but something unfinished keeps it from being pruned
    plain: bool = True  # no group, flow, dependencies or keep_for: nothing but its queue cares how it ends
    tampered: bool = False  # a test damaged its record: check it before it is run

    def __repr__(self) -> str:
        return shown(self, "record", "standing", "worker", "lease")


def finished(entry: Entry) -> bool:
    """Done or cancelled: it will never run again. A dead job is unfinished, because it may be requeued."""
    return entry.standing in _FINISHED


def state_at(entry: Entry, now: int) -> State:
    """The state of the contract at a moment."""
    standing, moment = entry.standing, entry.moment
    if standing in LEASED:
        return State.INFLIGHT if moment is not None and moment > now else State.READY
    if standing in WAITING:
        return State.SCHEDULED if moment is not None and moment > now else State.READY
    return STATES[standing]


def damage_of(entry: Entry) -> str | None:
    """What another program did to the record that would stop a worker, or None."""
    if not entry.tampered:
        return None
    return damage.damage_of(entry.record) or ("unknown state" if entry.standing == UNKNOWN else None)


def outward(record: JobRecord) -> JobRecord:
    """The record as a caller gets it: the dict inside an immutable record is not immutable, so it is a copy."""
    return replace(record, metadata=dict(record.metadata)) if record.metadata else record


def readable(entry: Entry) -> JobRecord:
    """A damaged record as it can be shown: every field of the right kind. The store keeps it as it was found."""
    shown = damage.readable(entry.record)
    if entry.standing == UNKNOWN:
        shown = replace(shown, reason=damaged_reason(entry))
    return outward(shown)


def damaged_reason(entry: Entry) -> str:
    """The reason of a damaged record."""
    return damage.damaged_reason(damage_of(entry) or "")
