"""Bounds of jobs, names and outcomes, the same on every driver: checked before anything is stored.

`check_job` raises InvalidJob with what was expected, what was given and how to mend it; it never quotes a payload.
`clean_error` is the other half: error text is never refused, only made storable.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from taskharbor.model.amendment import Amend
from taskharbor.model.audit import MAX_AUDIT_BYTES, StoredAudit
from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import Figures, JobRecord, replace
from taskharbor.model.memo import MAX_MEMO_BYTES
from taskharbor.model.outcome import Ack, Cancelled, Fail, Outcome, Retry
from taskharbor.model.schedule import MAX_JOBS_OF_A_CHANGE, MAX_SCHEDULE_BYTES, ScheduleChange, StoredSchedule

MAX_NAME_BYTES = 255
MAX_KEY_BYTES = 512
MAX_METADATA_ENTRIES = 64
MAX_METADATA_BYTES = 16 * 1024
MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_RESULT_BYTES = 64 * 1024
MAX_ERROR_BYTES = 8 * 1024
MAX_TRAIL_BYTES = 16 * 1024
MAX_NOTE_BYTES = 1024
MAX_FIGURES_PER_MINUTE = 64
MAX_DEPENDENCIES = 20_000
MAX_SPAWN_JOBS = 10_000
MAX_ENQUEUED_JOBS = 50_000  # in one call, which is atomic: one script, statement or transaction holds up the others
MAX_KEEP_FOR = timedelta(days=3650)
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
_MAX_TIMEOUT = timedelta(milliseconds=INT_MAX)
_MILLISECOND = timedelta(milliseconds=1)

_BAD_IN_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f{}]")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.:/\-]{1,255}").fullmatch  # the common case, decided by one match
_SEEN: set[str] = set()  # names that were found plain: a program has few of them, and gives them with every job
_MAX_SEEN_NAMES = 1_000
_ZERO = 0  # the interpreter has only one zero: the quickest check of what nearly every new record has
_EXACT = (bytes, tuple, dict)
_BAD_IN_ERROR = re.compile("[\x00\ud800-\udfff]")


def _expect(value: object, kind: type, what: str, expected: str) -> None:
    """InvalidJob unless a value is of this type; of a builtin one exactly: a subclass may return anything."""
    if type(value) is not kind and (kind in _EXACT or not isinstance(value, kind)):
        raise InvalidJob(f"{what}: expected {expected}, got {type(value).__name__}")


def check_name(value: object, what: str) -> None:
    """An id or a queue, type, group or worker name: 1 to 255 bytes of UTF-8, no control characters, no braces."""
    if type(value) is str:
        if value in _SEEN:
            return
        if _PLAIN_NAME(value):
            if len(_SEEN) < _MAX_SEEN_NAMES:
                _SEEN.add(value)
            return
    size = _text_bytes(value, what)
    if not 1 <= size <= MAX_NAME_BYTES:
        mend = "shorten it" if size else "give it a name"
        raise InvalidJob(f"{what}: expected 1 to {MAX_NAME_BYTES} bytes of text, got {size}; {mend}")
    bad = _BAD_IN_NAME.search(str(value))
    if bad is not None:  # not the whole of it: it may be a payload that was given in the wrong place
        raise InvalidJob(f"{what}: expected no control characters and no braces, got {bad.group()!r}; remove it")


def check_number(value: object, what: str, minimum: int = INT_MIN) -> None:
    """A whole number that fits in 32 bits."""
    if type(value) is not int:
        raise InvalidJob(f"{what}: expected a whole number, got {type(value).__name__}")
    if not minimum <= value <= INT_MAX:
        got = value if value.bit_length() <= 64 else f"one of {value.bit_length()} bits"  # a long one cannot be printed
        raise InvalidJob(f"{what}: expected {minimum} to {INT_MAX}, got {got}")


def check_moment(value: object, what: str) -> None:
    """An aware moment from 1970 to 9999, both as UTC counts them.

    >>> check_moment(datetime(2026, 1, 1), "run_at")
    Traceback (most recent call last):
    taskharbor.model.errors.InvalidJob: run_at: expected a datetime with a time zone, got a naive one; add tzinfo=UTC
    """
    if not isinstance(value, datetime):
        raise InvalidJob(f"{what}: expected a datetime, got {type(value).__name__}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidJob(f"{what}: expected a datetime with a time zone, got a naive one; add tzinfo=UTC")
    try:
        year = value.year if value.tzinfo is UTC else value.astimezone(UTC).year
    except OverflowError:  # no moment in UTC
        year = 0 if value.year < 1970 else 10000
    if not 1970 <= year <= 9999:
        raise InvalidJob(f"{what}: expected a year from 1970 to 9999 in UTC, got {year}")


def check_job(job: JobRecord, max_payload: int = MAX_PAYLOAD_BYTES) -> None:
    """Raise InvalidJob unless every field of the record may be stored."""
    if not isinstance(job, JobRecord):
        raise InvalidJob(f"job: expected a JobRecord, got {type(job).__name__}")
    if type(job.id) is not str or not _PLAIN_NAME(job.id):
        check_name(job.id, "id")
    check_name(job.type, "type")
    check_name(job.queue, "queue")
    if type(job.payload) is not bytes:
        raise InvalidJob(f"payload: expected bytes, got {type(job.payload).__name__}; encode it with a codec")
    if len(job.payload) > max_payload:
        raise InvalidJob(
            f"payload of {job.type}: expected at most {max_payload} bytes, got {len(job.payload)}; "
            "keep the data elsewhere and send a reference"
        )
    if job.priority != 0 or type(job.priority) is not int:
        check_number(job.priority, "priority")
    if type(job.max_attempts) is not int or not 0 <= job.max_attempts <= INT_MAX:
        check_number(job.max_attempts, "max_attempts", 0)
    if not (job.attempts is _ZERO and job.group_limit is _ZERO and job.deliveries is _ZERO and job.lost is _ZERO):
        for name in ("attempts", "group_limit", "deliveries", "lost"):
            check_number(getattr(job, name), name, 0)
    if job.run_at is not None:
        check_moment(job.run_at, "run_at")
    check_moment(job.created_at, "created_at")
    if job.timeout is not None:
        _check_span(
            job.timeout, "timeout", _MILLISECOND, _MAX_TIMEOUT, "1 ms to 24 days, got {}; use None for no limit"
        )
    if job.keep_for is not None:
        _check_span(job.keep_for, "keep_for", timedelta(), MAX_KEEP_FOR, f"0 to {MAX_KEEP_FOR.days} days, got {{}}")
    if job.idempotency_key is not None:
        size = _text_bytes(job.idempotency_key, "idempotency_key")
        if not 1 <= size <= MAX_KEY_BYTES:
            mend = "hash it if it must be longer" if size else "use None for no key"
            raise InvalidJob(f"idempotency_key: expected 1 to {MAX_KEY_BYTES} bytes of text, got {size}; {mend}")
    if job.group is not None:
        check_name(job.group, "group")
    if job.flow_id is not None:
        check_name(job.flow_id, "flow_id")
    if job.depends_on:
        _check_dependencies(job.depends_on)
    if job.metadata:
        _check_metadata(job.metadata)
    elif type(job.metadata) is not dict:
        raise InvalidJob(f"metadata: expected a dict of text to text, got {type(job.metadata).__name__}")


def check_record(job: JobRecord, *, shown: bool = False) -> None:
    """Raise InvalidJob unless every field of a record that a store returns could have been stored.

    `shown`: as `inspect` and `list` show it, where a field that cannot be read is left empty.
    """
    check_job(replace(job, type=job.type or "unknown") if shown else job, INT_MAX)
    for name in ("failed_at", "finished_at", "began_at"):
        if getattr(job, name) is not None:
            check_moment(getattr(job, name), name)
    for name in ("last_error", "reason", "ran_on", "error_class", "fingerprint"):
        _text_bytes(getattr(job, name), name)
    for name in ("trail", "note"):
        _expect(getattr(job, name), bytes, name, "bytes")
    check_number(job.edits, "edits", 0)
    _expect(job.has_memos, bool, "has_memos", "a bool")
    if job.handed_to is not None:
        check_name(job.handed_to, "handed_to")
    if job.result is not None:
        _expect(job.result, bytes, "result", "bytes")


def check_enqueue(jobs: Sequence[JobRecord], max_payload: int = MAX_PAYLOAD_BYTES) -> None:
    """Raise InvalidJob if one call enqueues too many jobs, or one of them is out of bounds."""
    if len(jobs) > MAX_ENQUEUED_JOBS:
        raise InvalidJob(
            f"enqueue: expected at most {MAX_ENQUEUED_JOBS} jobs in one call, got {len(jobs)}; nothing is stored: "
            "divide them among several calls"
        )
    for job in jobs:
        check_job(job, max_payload)


def check_spawn(spawn: Sequence[JobRecord]) -> None:
    """Raise InvalidJob if one outcome spawns too many jobs."""
    if len(spawn) > MAX_SPAWN_JOBS:
        raise InvalidJob(
            f"spawn: expected at most {MAX_SPAWN_JOBS} jobs, got {len(spawn)}; spawn a job that spawns the rest"
        )


def check_outcome(outcome: Outcome, max_payload: int = MAX_PAYLOAD_BYTES) -> None:
    """Raise InvalidJob if an outcome cannot be applied, whatever the store holds. `max_payload` is in bytes.

    >>> from taskharbor.model.lease import Lease
    >>> lease = Lease("01J", "mail", "token", datetime(2026, 1, 1, tzinfo=UTC))
    >>> check_outcome(Ack(lease, "text"))
    Traceback (most recent call last):
    taskharbor.model.errors.InvalidJob: result: expected bytes or None, got str; encode it with a codec
    """
    if isinstance(outcome, Ack):
        if outcome.result is not None and type(outcome.result) is not bytes:
            raise InvalidJob(
                f"result: expected bytes or None, got {type(outcome.result).__name__}; encode it with a codec"
            )
    elif isinstance(outcome, Retry | Fail):
        check_number(outcome.attempts, "attempts", 0)
        if outcome.failed_at is not None:
            check_moment(outcome.failed_at, "failed_at")
        if isinstance(outcome, Retry) and outcome.run_at is not None:
            check_moment(outcome.run_at, "run_at")
        for name in ("error_class", "fingerprint"):
            if getattr(outcome, name):
                check_label(getattr(outcome, name), name)
    else:
        _expect(outcome, Cancelled, "outcome", "Ack, Retry, Fail or Cancelled")
    if outcome.trail:
        check_bytes(outcome.trail, "trail", MAX_TRAIL_BYTES)
    if isinstance(outcome, Ack | Fail) and outcome.spawn:
        check_spawn(outcome.spawn)
        for job in outcome.spawn:
            check_job(job, max_payload)


def check_amend(change: Amend, max_payload: int = MAX_PAYLOAD_BYTES) -> None:
    """Raise InvalidJob unless every new value may be stored; the job may still refuse it. `max_payload` is in bytes.

    >>> check_amend(Amend(id="01J", deliveries=0, edits=0, priority=5))
    """
    _expect(change, Amend, "amend", "an Amend")
    check_name(change.id, "id")
    check_number(change.deliveries, "deliveries", 0)
    check_number(change.edits, "edits", 0)
    changes = change.changes()
    if not changes:
        raise InvalidJob("amend: expected at least one change, got none; name the fields to change")
    check_job(replace(_ANY_JOB, **changes), max_payload)
    for name in ("last_error", "reason"):
        if name in changes and (not isinstance(text := changes[name], str) or clean_error(text) != text):
            raise InvalidJob(f"{name}: expected at most {MAX_ERROR_BYTES} bytes of text without NUL")
    check_bytes(changes.get("trail", b""), "trail", MAX_TRAIL_BYTES)
    check_bytes(changes.get("note", b""), "note", MAX_NOTE_BYTES)


_ANY_JOB = JobRecord(id="any", type="any")


def check_figures(rows: Sequence[Figures]) -> None:
    """Raise InvalidJob unless the rows may be added to what a store holds.

    >>> check_figures([Figures(datetime(2026, 1, 1, tzinfo=UTC), "mail", {"done": 3})])
    """
    for row in rows:
        check_moment(row.minute, "minute")
        if row.minute.second or row.minute.microsecond:
            raise InvalidJob(f"minute: expected a whole minute, got {row.minute}")
        check_name(row.queue, "queue")
        if len(row.counts) > MAX_FIGURES_PER_MINUTE:
            raise InvalidJob(f"counts: expected at most {MAX_FIGURES_PER_MINUTE} names, got {len(row.counts)}")
        for name, number in row.counts.items():
            if type(name) is not str or not _FIGURE_NAME(name):
                raise InvalidJob("counts: expected names of 1 to 32 small letters, digits and _")
            check_number(number, name, 0)


_FIGURE_NAME = re.compile(r"[a-z0-9_]{1,32}").fullmatch


def check_audit(entries: Sequence[StoredAudit]) -> None:
    """Raise InvalidJob unless the entries may be stored.

    >>> check_audit([StoredAudit(id="01J", at=datetime(2026, 1, 1, tzinfo=UTC), by="ada", data=b"{}")])
    """
    for entry in entries:
        _expect(entry, StoredAudit, "audit", "a StoredAudit")
        check_name(entry.id, "id")
        check_name(entry.by, "by")
        check_moment(entry.at, "at")
        check_bytes(entry.data, "data", MAX_AUDIT_BYTES)


def check_schedule_changes(changes: Sequence[ScheduleChange], max_payload: int = MAX_PAYLOAD_BYTES) -> None:
    """Raise InvalidJob unless the changes and their jobs may be stored. `max_payload` is in bytes.

    >>> check_schedule_changes([ScheduleChange(name="nightly", expect="r1", to=None)])
    """
    for change in changes:
        _expect(change, ScheduleChange, "schedules", "a ScheduleChange")
        check_name(change.name, "name")
        if change.expect is not None:
            check_name(change.expect, "expect")
        if change.to is not None:
            _check_schedule(change.to, change.name)
        _check_jobs_of_schedule(change, max_payload)


def _check_schedule(row: StoredSchedule, name: str) -> None:
    _expect(row, StoredSchedule, "to", "a StoredSchedule")
    if row.name != name:
        raise InvalidJob(f"to: expected the schedule {name!r}, got {row.name!r}")
    check_name(row.queue, "queue")
    check_name(row.revision, "revision")
    if row.next_at is not None:
        check_moment(row.next_at, "next_at")
    check_bytes(row.body, "body", MAX_SCHEDULE_BYTES)


def _check_jobs_of_schedule(change: ScheduleChange, max_payload: int) -> None:
    if len(change.jobs) > MAX_JOBS_OF_A_CHANGE:
        raise InvalidJob(f"jobs: expected at most {MAX_JOBS_OF_A_CHANGE}, got {len(change.jobs)}")
    for job in change.jobs:
        check_job(job, max_payload)
        if change.to is None or job.queue != change.to.queue:
            raise InvalidJob("jobs: expected jobs of the schedule's own queue, got one of another")
        if job.depends_on or job.flow_id is not None or job.idempotency_key is not None:
            raise InvalidJob("jobs: expected jobs without dependencies, flow or idempotency key")


def check_bytes(value: object, what: str, most: int) -> None:
    """Bytes of at most this size."""
    if type(value) is not bytes:
        raise InvalidJob(f"{what}: expected bytes, got {type(value).__name__}")
    if len(value) > most:
        raise InvalidJob(f"{what}: expected at most {most} bytes, got {len(value)}")


def check_memo(name: object, value: object) -> None:
    """Raise InvalidJob unless a step's memo may be stored.

    >>> check_memo("charge", b"42")
    """
    check_name(name, "step")
    check_bytes(value, "value", MAX_MEMO_BYTES)


def check_label(value: object, what: str) -> None:
    """The class or the fingerprint of an error: at most 255 bytes of text without NUL."""
    size = _text_bytes(value, what)
    if size > MAX_NAME_BYTES or "\x00" in str(value):
        raise InvalidJob(f"{what}: expected at most {MAX_NAME_BYTES} bytes of text without NUL, got {size}")


def clean_error(text: str) -> str:
    """Error text as every store can keep it: NUL and lone surrogates replaced, cut to 8 KiB between characters.

    >>> clean_error("a\\x00b")
    'a\\ufffdb'
    """
    text = str.__str__(text)  # a subclass of str may return anything when it is measured or cut
    if len(text) > MAX_ERROR_BYTES:
        text = text[:MAX_ERROR_BYTES]
    text = replace_unstorable(text)
    data = text.encode()
    return text if len(data) <= MAX_ERROR_BYTES else data[:MAX_ERROR_BYTES].decode(errors="ignore")


def replace_unstorable(text: str) -> str:
    """The text with NUL and lone surrogates, which not every store can keep, replaced."""
    return _BAD_IN_ERROR.sub("\ufffd", text)


def _text_bytes(value: object, what: str) -> int:
    if type(value) is not str:
        raise InvalidJob(f"{what}: expected text, got {type(value).__name__}")
    try:
        return len(value.encode())
    except UnicodeEncodeError:
        raise InvalidJob(f"{what}: expected text that UTF-8 can hold, got a lone surrogate") from None


def _check_span(span: timedelta, what: str, least: timedelta, most: timedelta, expected: str) -> None:
    _expect(span, timedelta, what, "a timedelta")
    if not least <= span <= most:
        raise InvalidJob(f"{what}: expected {expected.format(span)}")


def _check_dependencies(depends_on: Sequence[str]) -> None:
    _expect(depends_on, tuple, "depends_on", "a tuple of ids")
    if len(depends_on) > MAX_DEPENDENCIES:
        raise InvalidJob(
            f"depends_on: expected at most {MAX_DEPENDENCIES} ids, got {len(depends_on)}; join them in steps"
        )
    for dependency in depends_on:
        check_name(dependency, "depends_on")


def _check_metadata(metadata: dict[str, str]) -> None:
    _expect(metadata, dict, "metadata", "a dict of text to text")
    if len(metadata) > MAX_METADATA_ENTRIES:
        raise InvalidJob(f"metadata: expected at most {MAX_METADATA_ENTRIES} entries, got {len(metadata)}")
    total = sum(
        _text_bytes(key, "metadata key") + _text_bytes(value, "metadata value") for key, value in metadata.items()
    )
    if total > MAX_METADATA_BYTES:
        raise InvalidJob(
            f"metadata: expected at most {MAX_METADATA_BYTES} bytes together, got {total}; put it into the payload"
        )
