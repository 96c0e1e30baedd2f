"""The executions of a job, and the trail in which a record keeps the earlier ones.

A worker writes the trail with the outcome that ends an execution, so keeping it costs no call. Most jobs have none: the
newest execution reads from the record itself (`began_at`, `ran_on`, `finished_at`, `last_error`).

    Retry, Fail, Cancelled   the execution that ends is the last entry of the trail
    Ack                      the trail stays as it is; an execution that was lost before is added
    no outcome (a crash)     written by the next execution, which learns of it from `Reserved.lost_by`

Each entry has the number of its delivery. So an execution without an entry leaves a gap in the numbers: it was lost
and so was the next one, or it was left out of a long trail.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from taskharbor.model.bounds import MAX_NAME_BYTES, MAX_TRAIL_BYTES
from taskharbor.model.job import JobInfo, JobRecord, State
from taskharbor.model.safe_repr import shows
from taskharbor.model.times import from_ms, to_ms

FIRST_KEPT, LAST_KEPT = 3, 22
MAX_TRAIL_ERROR_BYTES = 2 * 1024


class AttemptKind(StrEnum):
    """How an execution ended. Members are strings: `AttemptKind.DONE == "done"`."""

    DONE = "done"
    """The handler returned."""
    FAILED = "failed"
    """The handler raised, or its result could not be stored."""
    TIMEOUT = "timeout"
    """It ran past its timeout."""
    SNOOZED = "snoozed"
    """The handler raised `Snooze`."""
    GIVEN_BACK = "given_back"
    """The worker stopped, or could not run it."""
    LOST = "lost"
    """The worker died, or its lease ended."""
    CANCELLED = "cancelled"
    """It was cancelled while it ran."""
    RUNNING = "running"
    """It has not ended."""


@shows("number", "kind", "worker", "began_at", "ended_at", "error_class")
class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a job. `number` counts deliveries from 1; `ended_at` is None while it runs, and where a lost
    one's end is not known.

    >>> Attempt(number=1, kind=AttemptKind.FAILED, error_class="ValueError").kind
    <AttemptKind.FAILED: 'failed'>
    """

    number: int
    kind: AttemptKind  # how it ended
    worker: str = ""  # the worker that ran it
    began_at: datetime | None = None  # when it was reserved
    ended_at: datetime | None = None
    error_class: str = ""  # the class of what it raised
    error: str = ""  # class and text of what it raised, and its frames
    fingerprint: str = ""  # failures with the same one have the same cause


@shows("number", "kind", "worker")
class _Entry(msgspec.Struct, array_like=True, omit_defaults=True):
    number: int
    kind: str
    worker: str
    began_ms: int | None
    ended_ms: int | None
    error_class: str = ""
    error: str = ""
    fingerprint: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Entry]).decode


def read_trail(trail: bytes) -> list[Attempt]:
    """The executions in a trail, oldest first; none for a trail that another program damaged."""
    if not trail:
        return []
    try:
        return [_execution(entry) for entry in _decode(trail)]
    except (msgspec.MsgspecError, ValueError, OverflowError):
        return []


def write_trail(executions: Sequence[Attempt]) -> bytes:
    """Executions as a trail: the first 3 and the last 22, with 2 KiB of error text each and 16 KiB in all.

    Over that, the texts of older executions go first, then executions between the first and the newest.

    >>> [attempt.number for attempt in read_trail(write_trail([Attempt(number=1, kind=AttemptKind.LOST)]))]
    [1]
    """
    kept = [*executions[:FIRST_KEPT], *executions[FIRST_KEPT:][-LAST_KEPT:]]
    entries = [_entry(each) for each in kept]
    data = _encode(entries)
    for entry in entries[:-1]:
        if len(data) <= MAX_TRAIL_BYTES:
            return data
        entry.error = ""
        data = _encode(entries)
    while len(data) > MAX_TRAIL_BYTES and len(entries) > 1:
        del entries[min(FIRST_KEPT, len(entries) - 2)]
        data = _encode(entries)
    return data


def known_executions(info: JobInfo) -> list[Attempt]:
    """Every execution of a job that is known, oldest first. What is missing shows as a gap in the numbers."""
    job = info.job
    found = read_trail(job.trail)
    if not job.deliveries or (found and found[-1].number >= job.deliveries):
        return found
    kind = _newest_kind(info, found)
    failed = kind is AttemptKind.FAILED
    ended = None if kind in (AttemptKind.RUNNING, AttemptKind.LOST) else job.finished_at
    newest = Attempt(
        number=job.deliveries,
        kind=kind,
        worker=job.ran_on,
        began_at=job.began_at,
        ended_at=ended,
        error_class=job.error_class if failed else "",
        error=job.last_error if failed else "",
        fingerprint=job.fingerprint if failed else "",
    )
    return [*found, newest]


def _newest_kind(info: JobInfo, found: Sequence[Attempt]) -> AttemptKind:
    """How the newest delivery stands, of which the trail does not tell."""
    if info.state is State.INFLIGHT:
        return AttemptKind.RUNNING
    if info.state is State.DONE:
        return AttemptKind.DONE
    if info.state is State.DLQ:
        return AttemptKind.FAILED
    if info.state is State.CANCELLED and info.job.deliveries - len(found) > _unwritten_losses(info.job, found):
        return AttemptKind.CANCELLED
    return AttemptKind.LOST


def _unwritten_losses(job: JobRecord, found: Sequence[Attempt]) -> int:
    """How many of the losses that the record counts are not in the trail. A recorded failure starts that count anew."""
    written = 0
    for attempt in reversed(found):
        if attempt.kind in (AttemptKind.FAILED, AttemptKind.TIMEOUT):
            break
        written += attempt.kind is AttemptKind.LOST
    return max(0, job.lost - written)


def _execution(entry: _Entry) -> Attempt:
    return Attempt(
        number=entry.number,
        kind=AttemptKind(entry.kind),
        worker=entry.worker,
        began_at=None if entry.began_ms is None else from_ms(entry.began_ms),
        ended_at=None if entry.ended_ms is None else from_ms(entry.ended_ms),
        error_class=entry.error_class,
        error=entry.error,
        fingerprint=entry.fingerprint,
    )


def _entry(attempt: Attempt) -> _Entry:
    return _Entry(
        attempt.number,
        attempt.kind.value,
        _cut(attempt.worker, MAX_NAME_BYTES),
        None if attempt.began_at is None else to_ms(attempt.began_at),
        None if attempt.ended_at is None else to_ms(attempt.ended_at),
        _cut(attempt.error_class, MAX_NAME_BYTES),
        _cut(attempt.error, MAX_TRAIL_ERROR_BYTES),
        _cut(attempt.fingerprint, MAX_NAME_BYTES),
    )


def _cut(text: str, most: int) -> str:
    """The text, cut between characters to this many bytes; lone surrogates, which UTF-8 cannot hold, are replaced."""
    return text.encode(errors="replace")[:most].decode(errors="ignore")
