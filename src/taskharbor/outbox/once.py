"""A block that is entered as the first one for its key: `with harbor.once(connection, key) as first:`.

The key is a row in the caller's own transaction, so it stands exactly if what was written beside it does. A savepoint
is around the block: if that raises, the key is forgotten with what the block wrote, also where the caller goes on and
commits.
"""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Any

from taskharbor.drivers.connections import SQLALCHEMY, Kind, at_once, awaited, kind_of
from taskharbor.drivers.within import Caller, Within, Work, within, within_now
from taskharbor.model import current_job
from taskharbor.model.bounds import MAX_KEY_BYTES
from taskharbor.model.clock import Clock
from taskharbor.model.times import to_us
from taskharbor.outbox.tables import ADVICE, ONCE

_SAVEPOINT = "taskharbor_once"
_INSERT = (
    f"insert into {ONCE} (key, job_id, fence, at) values (?, ?, cast(? as bigint), cast(? as bigint)) "
    "on conflict (key) do nothing returning key"
)


class Once:
    """The block. Made by `Harbor.once`; may be entered again."""

    def __init__(self, connection: Any, key: str, clock: Clock) -> None:
        self._connection = connection
        self._key = _checked(key)
        self._clock = clock
        self._nested: Any = None  # the library's own savepoint, where it has to know of each
        self._first = False
        current_job.want()

    def __repr__(self) -> str:
        return "Once()"  # the key may be the user's data

    def __enter__(self) -> bool:
        return at_once(self._begin(within_now))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        at_once(self._end(within_now, error is None))

    async def __aenter__(self) -> bool:
        return await self._begin(within)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(within, error is None)

    async def _begin(self, inside: Within) -> bool:
        self._nested = None
        await inside(self._connection, _expect)  # first, for it begins SQLite's transaction
        if (kind := kind_of(self._connection)) in SQLALCHEMY:
            self._nested = await awaited(self._connection.begin_nested())
        elif kind is Kind.DJANGO:
            self._nested = _DjangoSavepoint(self._connection)
        else:
            await inside(self._connection, _sending(f"savepoint {_SAVEPOINT}"))
        try:
            self._first = await inside(self._connection, self._insert)
        except BaseException:  # no block follows that would end the savepoint
            await self._undo(inside)
            raise
        if not self._first:  # what the block does then is not ours to undo
            await self._release(inside)
        return self._first

    async def _end(self, inside: Within, ended_well: bool) -> None:
        if not self._first:
            return
        self._first = False
        await (self._release(inside) if ended_well else self._undo(inside))

    async def _undo(self, inside: Within) -> None:
        with suppress(Exception):  # a transaction that is lost takes the key with it; the block's own error counts
            if self._nested is not None:
                await awaited(self._nested.rollback())
            else:
                await inside(self._connection, _sending(f"rollback to savepoint {_SAVEPOINT}"))
                await inside(self._connection, _sending(f"release savepoint {_SAVEPOINT}"))

    async def _release(self, inside: Within) -> None:
        if self._nested is not None:
            await awaited(self._nested.commit())
        else:
            await inside(self._connection, _sending(f"release savepoint {_SAVEPOINT}"))

    async def _insert(self, caller: Caller) -> bool:
        job = current_job.CURRENT.get()
        id, fence = ("", 0) if job is None else (job.id, job.deliveries)
        return bool(await caller.ask(_INSERT, (self._key, id, fence, to_us(self._clock.now()))))


class _DjangoSavepoint:
    """A nested atomic(), with the methods of SQLAlchemy's savepoints. Undone, it takes along what on_commit() noted
    inside, and the mark that a failed save() leaves: with that, Django would refuse every later statement."""

    def __init__(self, connection: Any) -> None:
        from django.db import transaction  # the caller has it loaded

        self._connection = connection
        self._block = transaction.atomic(using=connection.alias)
        self._block.__enter__()

    def commit(self) -> None:
        from django.db.transaction import TransactionManagementError

        is_broken = self._connection.needs_rollback
        self._block.__exit__(None, None, None)
        if is_broken:
            raise TransactionManagementError("the block went on after an error that had ended it: it was undone")

    def rollback(self) -> None:
        self._block.__exit__(Exception, None, None)


async def _expect(caller: Caller) -> None:
    await caller.expect(ONCE, ADVICE)


def _sending(statement: str) -> Work[None]:
    async def send(caller: Caller) -> None:
        await caller.ask(statement, ())

    return send


def _checked(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"key: expected text, got {type(key).__name__}")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise ValueError("key: expected text that UTF-8 can hold, got a lone surrogate") from None
    if not 1 <= size <= MAX_KEY_BYTES or "\0" in key:
        raise ValueError(
            f"key: expected 1 to {MAX_KEY_BYTES} bytes of text without NUL, got {size}; shorten or hash it"
        )
    return key
