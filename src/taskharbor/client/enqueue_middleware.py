"""Enqueue middleware: context managers around the storing of jobs, through whose hands the records pass.

The first in the list is outermost. One is entered before the records are made and left when the store has answered, or
has failed; what it raises reaches the caller. It may change what a record carries, never which records there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import datetime
from typing import TypeAlias

from taskharbor.model.job import JobRecord

Make: TypeAlias = Callable[[datetime], list[JobRecord]]
Stamp: TypeAlias = Callable[[list[JobRecord]], list[JobRecord]]
"""Answers with the records as they are to be stored: as many, in the same order, under the same ids."""
EnqueueMiddleware: TypeAlias = Callable[[], AbstractContextManager[Stamp]]


def around(middleware: Sequence[EnqueueMiddleware], make: Make) -> AbstractContextManager[Make]:
    """What makes the records, with all of the middleware around it."""
    return _around(middleware, make) if middleware else nullcontext(make)


@contextmanager
def _around(middleware: Sequence[EnqueueMiddleware], make: Make) -> Iterator[Make]:
    with ExitStack() as entered:
        stamps = [entered.enter_context(layer()) for layer in middleware]

        def make_stamped(now: datetime) -> list[JobRecord]:
            records = make(now)
            ids = [record.id for record in records]
            for stamp in reversed(stamps):  # the innermost sees them first, as it would the result of a call
                records = stamp(records)
            if [record.id for record in records] != ids:
                raise ValueError("enqueue middleware: expected the same jobs in the same order, got others")
            return records

        yield make_stamped
