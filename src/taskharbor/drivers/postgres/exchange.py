"""One statement at a time on a libpq connection: what is sent and what its result means, apart from waiting for it.

psycopg's cursors would cost three to six times as much as a statement here (docs/driver-postgres.md has the figures).
So a statement goes to libpq directly, through `connection.pgconn`, and statements that repeat are prepared. Waiting for
the socket differs: connection.py does it on an event loop, blocking.py on the calling thread.

Of psycopg this uses the documented `pgconn`, `psycopg.pq` and `errors`, and one class whose methods its documentation
does not list: `psycopg.adapt.Transformer` (`set_pgresult`, `load_rows`), which turns a result into rows. pyproject.toml
therefore bounds psycopg's version, and tests/drivers/test_postgres_connections.py runs on the lowest and the newest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from typing import Any

import psycopg
from psycopg import errors
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult

from taskharbor.drivers.postgres.statement import numbered

PREPARE_AFTER = 3  # a statement is prepared when it is sent for the third time
MAX_PREPARED = 50  # statements of one connection
_SUCCEEDED = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class Exchange:
    """The statements of one connection."""

    def __init__(self, connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> None:
        self.prepares = False  # whether statements may be prepared on this connection
        self.sent: dict[str, int] = {}  # statement → how often it was sent before it was prepared
        self._pgconn = connection.pgconn
        self._rows = Transformer(connection)
        self._names: dict[str, bytes] = {}  # statement → the name under which it is prepared
        self._outdated: list[str] = []  # statements that were prepared before a table changed

    def ask(self, sql: str, parameters: Sequence[Any]) -> Generator[None, PGresult, list[Any]]:
        """Send one statement and return its rows. The parameters are texts, numbers, booleans or None.

        A generator: each `yield` stands for one result of the server, which is to be sent into it.
        """
        # None and numbers are encoded here: a call for each of an enqueue's 14 parameters is 1 % of its instructions.
        texts = [
            value if value is None else b"%d" % value if type(value) is int else _text(value) for value in parameters
        ]
        name = self._names.get(sql)
        if name is None and self.prepares:
            name = yield from self._prepare(sql)
        self._send(name, sql, texts)
        result = yield
        if result.status not in _SUCCEEDED:
            self._after_failure(name, sql, errors.error_from_result(result))
            self._send(None, sql, texts)
            result = yield
            if result.status not in _SUCCEEDED:
                raise errors.error_from_result(result)
        if not result.ntuples:
            return []
        self._rows.set_pgresult(result)
        try:
            return self._rows.load_rows(0, result.ntuples, tuple)
        finally:
            self._rows.set_pgresult(None)

    def _send(self, name: bytes | None, sql: str, texts: list[bytes | None]) -> None:
        if name is None:
            self._pgconn.send_query_params(numbered(sql).encode(), texts, result_format=Format.BINARY)
        else:
            self._pgconn.send_query_prepared(name, texts, result_format=Format.BINARY)

    def _after_failure(self, name: bytes | None, sql: str, error: psycopg.Error) -> None:
        """Return if the statement only needs to be sent again unprepared; else raise the error."""
        if isinstance(error, errors.InvalidSqlStatementName):
            # A pooler that the DSN does not name runs each call on another session.
            self.prepares = False
            self._names.clear()
        elif isinstance(error, errors.FeatureNotSupported) and name is not None:
            # "cached plan must not change result type": a table was changed.
            del self._names[sql]
            self._outdated.append(sql)
        else:
            raise error
        if self._pgconn.transaction_status != TransactionStatus.IDLE:
            raise error

    def _prepare(self, sql: str) -> Generator[None, PGresult, bytes | None]:
        times = self.sent[sql] = self.sent.get(sql, 0) + 1
        if times < PREPARE_AFTER or len(self._names) >= MAX_PREPARED:
            return None
        # The name is a digest of the text: no name ever stands for two statements, whatever else uses the session.
        text = sql + "." * self._outdated.count(sql)
        name = b"taskharbor_" + hashlib.md5(text.encode(), usedforsecurity=False).hexdigest().encode()
        self._pgconn.send_prepare(name, numbered(sql).encode())
        result = yield
        if result.status not in _SUCCEEDED:
            error = errors.error_from_result(result)
            if not isinstance(error, errors.DuplicatePreparedStatement):
                raise error
            if self._pgconn.transaction_status == TransactionStatus.INERROR:
                self.prepares = False
                raise error
        self._names[sql] = name
        return name


def _text(value: str | int) -> bytes:
    """A parameter in PostgreSQL's text format. NUL is refused: libpq would end the text there."""
    if isinstance(value, str):
        text = str.encode(value)
        if b"\x00" in text:
            raise psycopg.DataError("PostgreSQL's text cannot hold NUL")
        return text
    if isinstance(value, bool):
        return b"t" if value else b"f"
    return b"%d" % value
