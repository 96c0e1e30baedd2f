"""Rows that another program damaged: what is wrong with one, and how it is shown. Not on the hot path.

SQLite stores any value in any column, and Python refuses to read text that is not UTF-8. A call that meets such text is
repeated with `reading_any_text`, which marks it with a NUL: no text of ours holds one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from taskharbor.drivers.base import DAMAGED_PREFIX
from taskharbor.drivers.sqlite.records import (
    MAX_KEEP_FOR_US,
    MAX_TIMEOUT_US,
    MIN_TIMEOUT_US,
    STATES,
    JobRow,
    is_moment,
    record_of,
)
from taskharbor.model.bounds import INT_MAX, INT_MIN, check_name, check_record
from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import EPOCH, JobRecord

_ids = msgspec.json.Decoder(list[str]).decode
_metadata = msgspec.json.Decoder(dict[str, str]).decode


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


def _is_text(value: Any) -> bool:
    return type(value) is str and "\0" not in value


def _is_key(value: Any) -> bool:
    try:
        return type(value) is bytes and bool(value) and value.decode() is not None
    except UnicodeDecodeError:
        return False


def _is_bytes(value: Any) -> bool:
    return type(value) is bytes


def _is_timeout(value: Any) -> bool:
    return type(value) is int and MIN_TIMEOUT_US <= value <= MAX_TIMEOUT_US


def _is_keep_for(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_KEEP_FOR_US


def _decodes(decode: Callable[[str], Any]) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        try:
            return type(value) is str and decode(value) is not None
        except (msgspec.MsgspecError, UnicodeError):
            return False

    return check


def _or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


# The column, its name for a person, the check, and what is shown instead of a value that fails it.
_COLUMNS: tuple[tuple[str, str, Callable[[Any], bool], Any], ...] = (
    ("type", "type", is_name, ""),
    ("payload", "payload", _is_bytes, b""),
    ("attempts", "attempts", is_number, 0),
    ("max_attempts", "max_attempts", is_number, 0),
    ("deliveries", "deliveries", is_number, 0),
    ("lost", "lost", is_number, 0),
    ("priority", "priority", lambda value: type(value) is int and INT_MIN <= value <= INT_MAX, 0),
    ("group_limit", "group_limit", is_number, 0),
    ("run_at", "run_at", _or_none(is_moment), None),
    ("timeout", "timeout", _or_none(_is_timeout), None),
    ("idempotency_key", "idempotency_key", _or_none(_is_key), None),
    ("grp", "group", _or_none(is_name), None),
    ("depends_on", "depends_on", _or_none(_decodes(_ids)), None),
    ("flow_id", "flow_id", _or_none(is_name), None),
    ("handed_to", "handed_to", _or_none(is_name), None),
    ("metadata", "metadata", _or_none(_decodes(_metadata)), None),
    ("last_error", "last_error", _is_text, ""),
    ("failed_at", "failed_at", _or_none(is_moment), None),
    ("reason", "reason", _is_text, ""),
    ("created_at", "created_at", is_moment, 0),
    ("finished_at", "finished_at", _or_none(is_moment), None),
    ("result", "result", _or_none(_is_bytes), None),
    ("trail", "trail", _or_none(_is_bytes), None),
    ("error_class", "error_class", _or_none(_is_text), None),
    ("fingerprint", "fingerprint", _or_none(_is_text), None),
    ("note", "note", _or_none(_is_bytes), None),
    ("edits", "edits", _or_none(is_number), None),
    ("keep_for", "keep_for", _or_none(_is_keep_for), None),
)
# What every reservation writes anew, so that it stops no worker.
_REWRITTEN: tuple[tuple[str, Callable[[Any], bool], Any], ...] = (
    ("began_at", _or_none(is_moment), None),
    ("worker", _is_text, ""),
)


def damage_of(job: JobRow) -> str | None:
    """What another program did to a row that would stop a worker, or None. Shows no value: it may be anything."""
    for column, name, is_valid, _ in _COLUMNS:
        value = getattr(job, column)
        if not is_valid(value):
            return f"{name} is missing" if value in (None, "") else f"{name} is invalid"
    if job.state not in STATES:
        return "unknown state"
    try:
        check_record(record_of(job, reserved=(EPOCH, "")))
    except InvalidJob as error:  # too large for its field
        return str(error).partition(":")[0] + " is out of bounds"
    return None


def damage_reason(job: JobRow) -> str:
    """The `reason` under which a damaged job is set aside."""
    return f"{DAMAGED_PREFIX}: {damage_of(job)}"


def readable_record(job: JobRow) -> JobRecord:
    """The record of any row: a damaged one is shown with values of the right types."""
    damage = damage_of(job)
    if damage is None and all(is_valid(getattr(job, column)) for column, is_valid, _ in _REWRITTEN):
        return record_of(job)
    shown = msgspec.structs.replace(job)
    if job.state not in STATES:
        shown.reason = f"{DAMAGED_PREFIX}: {damage}"
    for column, _, is_valid, instead in _COLUMNS:
        if not is_valid(getattr(shown, column)):
            setattr(shown, column, instead)
    for column, is_valid, instead in _REWRITTEN:
        if not is_valid(getattr(shown, column)):
            setattr(shown, column, instead)
    return record_of(shown)
