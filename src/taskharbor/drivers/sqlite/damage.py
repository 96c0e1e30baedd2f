"""Rows that another program damaged: what is wrong with one, and how it is shown. Not on the hot path.

SQLite stores any value in any column, and Python refuses to read text that is not UTF-8. A call that meets such text is
repeated with `reading_any_text`, which marks it with a NUL: no text of ours holds one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import msgspec

from taskharbor.drivers.damage import damaged_reason
from taskharbor.drivers.sqlite.records import STATES, WAITING, JobRow, is_moment, record_of
from taskharbor.model.bounds import INT_MAX, check_name, check_record
from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import JobRecord


def is_undecodable(error: Exception) -> bool:
    """Whether a statement met text that is not UTF-8."""
    return isinstance(error, sqlite3.OperationalError) and str(error).startswith("Could not decode to UTF-8")


@contextmanager
def reading_any_text(connection: sqlite3.Connection) -> Iterator[None]:
    """Read any text within the block."""
    connection.text_factory = decode_any
    try:
        yield
    finally:
        connection.text_factory = str


def decode_any(raw: bytes) -> str:
    """Text as it is; bytes that are not UTF-8 with a NUL before them."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "\0" + raw.decode(errors="replace")


def is_name(value: Any) -> bool:
    """Whether it is a name as we store them."""
    try:
        check_name(value, "")
    except InvalidJob:
        return False
    return True


def is_number(value: Any) -> bool:
    """Whether it is a count as we store them."""
    return type(value) is int and 0 <= value <= INT_MAX


# The columns of a record, in the order in which damage is looked for.
_NAMES = """type payload attempts max_attempts deliveries lost priority group_limit run_at timeout idempotency_key grp
depends_on flow_id handed_to metadata last_error failed_at reason created_at finished_at result trail error_class
fingerprint note edits keep_for"""
_COLUMNS = tuple(_NAMES.split())
_values = attrgetter(*_COLUMNS)
_REWRITTEN = ("began_at", "worker")  # by every reservation, so that it stops no worker
_FIELDS: dict[str, Any] = (
    dict.fromkeys(JobRow.__struct_fields__)
    | dict.fromkeys(("attempts", "max_attempts", "deliveries", "lost", "priority", "group_limit", "created_at"), 0)
    | dict.fromkeys(("last_error", "reason", "worker"), "")
    | {"id": "a", "queue": "q", "type": "t", "payload": b"", "state": WAITING}
)
_SOUND = JobRow(**_FIELDS)
_NOT_A_RECORD = (InvalidJob, OverflowError, msgspec.MsgspecError, TypeError, ValueError, AttributeError)


def _check(job: JobRow) -> None:
    """Raise one of _NOT_A_RECORD unless the record of this row is sound, apart from what a reservation rewrites."""
    for value in _values(job):
        if type(value) is float or (type(value) is str and "\0" in value):
            raise ValueError("expected no fraction and no NUL")
    check_record(record_of(msgspec.structs.replace(job, began_at=None, worker="")))


def _is_valid(column: str, value: Any) -> bool:
    """Whether a sound row can have this value."""
    if column == "began_at":
        return value is None or is_moment(value)
    if column == "worker":
        return type(value) is str and "\0" not in value
    try:
        _check(msgspec.structs.replace(_SOUND, **{column: value}))
    except _NOT_A_RECORD:
        return False
    return True


def damage_of(job: JobRow) -> str | None:
    """What another program did to a row that would stop a worker, or None. Shows no value: it may be anything."""
    try:
        _check(job)
    except _NOT_A_RECORD:
        column = next((column for column in _COLUMNS if not _is_valid(column, getattr(job, column))), "a field")
        return f"{'group' if column == 'grp' else column} is missing or wrong"
    return None if job.state in STATES else "unknown state"


def readable_record(job: JobRow) -> JobRecord:
    """The record of any row: a damaged one is shown with values of the right types."""
    damage = damage_of(job)
    if damage is None and all(_is_valid(column, getattr(job, column)) for column in _REWRITTEN):
        return record_of(job)
    shown = msgspec.structs.replace(job)
    if job.state not in STATES:
        shown.reason = damaged_reason(damage or "")
    for column in (*_COLUMNS, *_REWRITTEN):
        if not _is_valid(column, getattr(shown, column)):
            setattr(shown, column, "" if column == "type" else getattr(_SOUND, column))
    return record_of(shown)
