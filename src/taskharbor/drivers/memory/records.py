"""One job in the store: its record, where it stands, and what ties it to other jobs.

`standing` is relative to the moment its queue was last moved to (see queue.py); `state_at` tells the state of the
contract for any moment, from the record, the lease and `now` alone:

    BLOCKED    open dependencies          INFLIGHT   leased                  DONE, DLQ, CANCELLED   terminal
    SCHEDULED  run_at lies ahead          EXPIRED    lease over, in line     UNKNOWN                damaged
    READY      in line

Moments are whole microseconds since 1970 (`ticks`): exact for any datetime, and cheaper than one to compare.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from taskharbor.drivers.contract import DAMAGED_PREFIX
from taskharbor.model.bounds import check_record
from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import EPOCH, JobRecord, State
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

_MICROSECOND = timedelta(microseconds=1)
_EMPTY = JobRecord(id="", type="")


def ticks(moment: datetime) -> int:
    """A moment as whole microseconds since 1970. The last one is remembered: a worker's calls share their `now`."""
    global _last
    known, found = _last
    if known is not moment:
        found = (moment - EPOCH) // _MICROSECOND
        _last = (moment, found)
    return found


_last: tuple[datetime, int] = (EPOCH, 0)


class Entry(msgspec.Struct, eq=False, gc=False):
    """A job as the store keeps it: a struct, which is made in 0.1 µs, and a key of dicts by identity.

    The garbage collector does not look at entries: with a hundred thousand of them its full passes cost a third of
    the throughput. So nothing that an entry refers to may refer back to it, except its queue, whose lines `Store`
    empties when it goes.
    """

    record: JobRecord
    queue: JobQueue
    stored: int  # the number of its enqueue: dependents released together join in this order
    standing: int = UNKNOWN
    time: int = 0  # when it joined the line
    arrival: int = 0  # its place among those that joined at that time
    moment: int | None = None  # what the queue's calendar holds it under: the end of its lease, else its run_at
    place: int | None = None  # the ticket of the item in a line that stands for it; any other item is stale
    lease: Lease | None = None  # the last one, until it is settled or given back: also after it has ended
    worker: str = ""  # who holds that lease
    settled: str | None = None  # the token of its last outcome, until it is reserved again
    settled_as: type = Ack  # the kind of that outcome
    open: int = 0  # how many dependencies are not done, while it is blocked
    dependents: dict[Entry, bool] | None = None  # who depends on it → whether that one is unfinished
    holds: int = 0  # how many of its dependents are unfinished
    parked: bool = False  # finished, but something unfinished keeps it from being pruned
    tampered: bool = False  # somebody was at its record (see damage.py): look whether it is sound before it is run

    def __repr__(self) -> str:
        return shown(self, "record", "standing", "worker", "lease")


def finished(entry: Entry) -> bool:
    """Done or cancelled: nothing is to be expected of it. A dead job is unfinished, somebody may requeue it."""
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
    try:
        check_record(entry.record)
    except InvalidJob as error:  # its text begins with the field; no value is told, which may be anything
        return f"{str(error).partition(':')[0].partition(' ')[0]} is missing or wrong"
    return "unknown state" if entry.standing == UNKNOWN else None


def outward(record: JobRecord) -> JobRecord:
    """The record as a caller gets it: the dict inside an immutable record is not immutable, so it is a copy."""
    return replace(record, metadata=dict(record.metadata)) if record.metadata else record


def readable(entry: Entry) -> JobRecord:
    """A damaged record as it can be shown: every field of the right kind. The store keeps it as it was found."""
    record = entry.record
    shown = replace(_EMPTY, id=record.id, queue=record.queue)
    for name in JobRecord.__struct_fields__:
        one = replace(shown, **{name: getattr(record, name)})
        try:
            check_record(one, shown=True)
        except InvalidJob:
            continue
        shown = one
    if entry.standing == UNKNOWN:
        shown = replace(shown, reason=damaged(entry))
    return outward(shown)


def damaged(entry: Entry) -> str:
    """The reason of a damaged record."""
    return f"{DAMAGED_PREFIX}: {damage_of(entry)}"
