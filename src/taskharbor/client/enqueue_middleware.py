"""Enqueue middleware: context managers around the storing of jobs, through whose hands the records pass.

The first in the list is outermost. Each one is entered before the records are prepared, and left when the store has
replied or failed; what it raises reaches the caller. It may change what a record carries, never which records there
are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import datetime
from typing import TypeAlias

from taskharbor.model.job import JobRecord

PrepareRecords: TypeAlias = Callable[[datetime], list[JobRecord]]
"""Returns the records of one enqueue, given the store's time."""
Stamp: TypeAlias = Callable[[list[JobRecord]], list[JobRecord]]
"""Returns the records as they are to be stored: the same number, in the same order, under the same ids."""
EnqueueMiddleware: TypeAlias = Callable[[], AbstractContextManager[Stamp]]
"""A function without parameters that returns a context manager, entered around the storing of jobs. Entering it gives a
`Stamp`, which may change what the records carry."""


def middleware_around(
    middleware: Sequence[EnqueueMiddleware], prepare: PrepareRecords
) -> AbstractContextManager[PrepareRecords]:
    """Enter all of the middleware; `prepare`, with their changes applied to what it returns."""
    return _entered(middleware, prepare) if middleware else nullcontext(prepare)


@contextmanager
def _entered(middleware: Sequence[EnqueueMiddleware], prepare: PrepareRecords) -> Iterator[PrepareRecords]:
    with ExitStack() as entered:
        stamps = [entered.enter_context(layer()) for layer in middleware]

        def prepare_stamped(now: datetime) -> list[JobRecord]:
            records = prepare(now)
            ids = [record.id for record in records]
            for stamp in reversed(stamps):  # the innermost sees them first, as it would the result of a call
                records = stamp(records)
            if [record.id for record in records] != ids:
                raise ValueError("enqueue middleware: expected the same jobs in the same order, got others")
            return records

        yield prepare_stamped
