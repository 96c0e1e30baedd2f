"""Enqueueing in the caller's own transaction, on the caller's own connection. Nothing here commits.

Whatever wraps an `sqlite3.Connection` (an ORM's session, a framework's connection) is served with `enqueue_within`
once borrow.py has taken the connection out of it. It runs on the thread that may use the connection.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

from taskharbor.drivers.sqlite import schema
from taskharbor.drivers.sqlite.connection import is_busy, unavailable
from taskharbor.drivers.sqlite.enqueue import enqueue
from taskharbor.drivers.sqlite.options import SqliteOptions
from taskharbor.drivers.sqlite.session import WriteSession
from taskharbor.model.errors import BackendUnavailable, WrongConnection
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued


class Connection(Protocol):
    """What is asked of a caller's connection: an `sqlite3.Connection`, or what behaves as one."""

    row_factory: Any
    text_factory: Any

    @property
    def in_transaction(self) -> bool: ...
    @property
    def isolation_level(self) -> str | None: ...
    def cursor(self) -> Any: ...
    def execute(self, sql: str, parameters: Any = ..., /) -> Any: ...


def enqueue_within(
    connection: Connection, jobs: Sequence[JobRecord], now: datetime, options: SqliteOptions
) -> list[Enqueued]:
    """Store jobs, all or none, together with whatever the caller's transaction commits."""
    text_factory, connection.text_factory = connection.text_factory, str
    row_factory, connection.row_factory = connection.row_factory, None
    try:
        _check_file(connection, options)
        if not connection.in_transaction:
            _begin(connection)
        connection.execute("SAVEPOINT taskharbor_enqueue")
        try:
            _write_first(connection)
            schema.prepare(connection, options.path, options.migrate)
            session = WriteSession(connection)
            answers = enqueue(session, jobs, now, options.max_payload)
            session.flush()
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK TO taskharbor_enqueue")
                connection.execute("RELEASE taskharbor_enqueue")
            raise
        connection.execute("RELEASE taskharbor_enqueue")
        return answers
    except sqlite3.InterfaceError:
        raise  # of a handler whose transaction is over: its own words are the best there are
    except sqlite3.Error as error:
        if is_busy(error):
            raise BackendUnavailable(
                f"{options.path}: somebody else wrote to it since this transaction began; begin with BEGIN IMMEDIATE, "
                "or enqueue before you read"
            ) from error
        raise unavailable(options.path, error) from error
    finally:
        connection.text_factory = text_factory
        connection.row_factory = row_factory


def _begin(connection: Connection) -> None:
    # `autocommit` came with Python 3.12; set to True it makes commit() and rollback() do nothing.
    if connection.isolation_level is None or getattr(connection, "autocommit", None) is True:
        raise WrongConnection(
            "connection: expected one inside a transaction, got one in autocommit mode, where the job would be stored "
            "whatever becomes of your own writes; begin a transaction first (BEGIN IMMEDIATE; transaction.atomic() in "
            "Django), or leave connection= out"
        )
    # As Python's own sqlite3 does before the first write; ours begins with a look at what is there.
    connection.execute("BEGIN IMMEDIATE")


def _write_first(connection: Connection) -> None:
    """Take the write lock before anything is read. A transaction that has only begun (with `autocommit=False` Python
    begins one at once) can wait for other writers now; once it has read, SQLite can only refuse it."""
    try:
        connection.execute("DELETE FROM taskharbor_meta WHERE 0")
    except sqlite3.OperationalError as error:
        if is_busy(error):
            raise  # otherwise there is no such table: the schema is made now


def _check_file(connection: Connection, options: SqliteOptions) -> None:
    files = {name: file for _, name, file in connection.execute("PRAGMA database_list").fetchall()}
    file = files.get("main")
    if not file or not os.path.exists(options.path) or not os.path.samefile(file, options.path):
        raise WrongConnection(
            f"the connection is to {file or 'a database in memory'}, the jobs are in {options.path}: "
            "one transaction cannot hold both"
        )
