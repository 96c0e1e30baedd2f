"""Rows that another program damaged: what is wrong with one, and how it is shown. Nothing here is on a worker's way.

SQLite holds any value in any column, and Python refuses to read text that is no UTF-8. So whoever reads such a row does
it again with `legible`, which marks such text with a NUL, where no text of ours has one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from taskharbor.drivers.contract import DAMAGED_PREFIX
from taskharbor.drivers.sqlite.records import LONGEST, SHORTEST, STATES, is_moment, record_of
from taskharbor.model.bounds import INT_MAX, INT_MIN, check_name, check_record
from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import JobRecord

_ids = msgspec.json.Decoder(list[str]).decode
_metadata = msgspec.json.Decoder(dict[str, str]).decode


def is_illegible(error: Exception) -> bool:
    """Whether a row was met that holds text which is no UTF-8."""
    return isinstance(error, sqlite3.OperationalError) and str(error).startswith("Could not decode to UTF-8")


@contextmanager
def legible(connection: sqlite3.Connection) -> Iterator[None]:
    """Read any text for the time of the block."""
    connection.text_factory = read_any
    try:
        yield
    finally:
        connection.text_factory = str


def read_any(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "\0" + raw.decode(errors="replace")


def _a_name(value: Any) -> bool:
    try:
        check_name(value, "")
    except InvalidJob:
        return False
    return True


def _a_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= INT_MAX


def _a_text(value: Any) -> bool:
    return type(value) is str and "\0" not in value


def _a_key(value: Any) -> bool:
    try:
        return type(value) is bytes and bool(value) and value.decode() is not None
    except UnicodeDecodeError:
        return False


def _decodes(decode: Callable[[str], Any]) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        try:
            return type(value) is str and decode(value) is not None
        except (msgspec.MsgspecError, UnicodeError):
            return False

    return check


def _or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


# The place in the row, the field, what it may be, and what is shown instead of anything else.
_FIELDS: tuple[tuple[int, str, Callable[[Any], bool], Any], ...] = (
    (15, "type", _a_name, ""),
    (16, "payload", lambda value: type(value) is bytes, b""),
    (19, "attempts", _a_number, 0),
    (20, "max_attempts", _a_number, 0),
    (21, "deliveries", _a_number, 0),
    (22, "lost", _a_number, 0),
    (13, "priority", lambda value: type(value) is int and INT_MIN <= value <= INT_MAX, 0),
    (25, "group_limit", _a_number, 0),
    (17, "run_at", _or_none(is_moment), None),
    (18, "timeout", _or_none(lambda value: type(value) is int and SHORTEST <= value <= LONGEST), None),
    (23, "idempotency_key", _or_none(_a_key), None),
    (24, "group", _or_none(_a_name), None),
    (26, "depends_on", _or_none(_decodes(_ids)), None),
    (27, "flow_id", _or_none(_a_name), None),
    (28, "handed_to", _or_none(_a_name), None),
    (29, "metadata", _or_none(_decodes(_metadata)), None),
    (30, "last_error", _a_text, ""),
    (31, "failed_at", _or_none(is_moment), None),
    (32, "reason", _a_text, ""),
    (33, "created_at", is_moment, 0),
    (34, "finished_at", _or_none(is_moment), None),
    (35, "result", _or_none(lambda value: type(value) is bytes), None),
)


def damage_of(row: Sequence[Any]) -> str | None:
    """What another program did to a row that would stop a worker, or None. No value is told: it may be anything."""
    for place, name, right, _ in _FIELDS:
        if not right(row[place]):
            return f"{name} is missing" if row[place] in (None, "") else f"{name} is none"
    if row[3] not in STATES:
        return "unknown state"
    try:
        check_record(record_of(row))
    except InvalidJob as error:  # too large for its field
        return str(error).partition(":")[0] + " is out of bounds"
    return None


def damaged(row: Sequence[Any]) -> str:
    """The reason of a damaged row."""
    return f"{DAMAGED_PREFIX}: {damage_of(row)}"


def readable(row: Sequence[Any]) -> JobRecord:
    """The record of any row: a damaged one is shown with fields of the right kinds."""
    damage = damage_of(row)
    if damage is None:
        return record_of(row)
    shown = list(row)
    if row[3] not in STATES:
        shown[32] = f"{DAMAGED_PREFIX}: {damage}"
    for place, _, right, instead in _FIELDS:
        if not right(shown[place]):
            shown[place] = instead
    return record_of(shown)
