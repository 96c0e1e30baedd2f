"""Rows that another program damaged: what is wrong with one, and how it is shown. Not on the hot path.

SQLite stores any value in any column, and Python refuses to read text that is not UTF-8. A call that meets such text is
repeated with `reading_any_text`, which returns it as `Undecodable`: no check of ours accepts that as text.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from taskharbor.drivers import damage
from taskharbor.drivers.sqlite.records import STATES, JobRow, record_of
from taskharbor.model.bounds import INT_MAX, check_name
from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import JobRecord


class Undecodable(str):
    """Text that is not UTF-8, as far as it can be shown."""


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
    """Text as it is, or Undecodable."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return Undecodable(raw.decode(errors="replace"))


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


def damage_of(job: JobRow) -> str | None:
    """What another program did to a row that would stop a worker, or None. Shows no value: it may be anything."""
    record = replace(record_of(job), began_at=None, ran_on="")  # every reservation rewrites both: they stop no worker
    return damage.damage_of(record) or (None if job.state in STATES else "unknown state")


def readable_record(job: JobRow) -> JobRecord:
    """The record of any row: a damaged one is shown with values of the right types."""
    record = record_of(job)
    if damage.damage_of(record) is not None:
        record = damage.readable(record)
    if job.state not in STATES:
        record = replace(record, reason=damage.damaged_reason(damage_of(job) or ""))
    return record
