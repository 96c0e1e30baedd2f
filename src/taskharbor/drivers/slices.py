"""Large calls in slices: each is a transaction or a script of its own, so that none holds up other callers for long.

If the store is away after some of them, the error says how much is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from taskharbor.drivers.refusals import paired
from taskharbor.model.errors import BackendUnavailable, DriverError
from taskharbor.model.job import Seen

MAX_CHANGED_JOBS = 1_000  # in one transaction
R = TypeVar("R", bound=DriverError | None)


class DoneSoFar:
    """How many jobs a call has changed so far."""

    number = 0


@contextmanager
def counted(done: str, again: str) -> Iterator[DoneSoFar]:
    """Around a call in slices: `done` and `again` stand before and after the number in the error of one that stops."""
    so_far = DoneSoFar()
    try:
        yield so_far
    except BackendUnavailable as error:
        if not so_far.number:
            raise
        made = BackendUnavailable(f"{done} {so_far.number} job(s), then: {error}; {again}")
        made.lasting = error.lasting
        raise made from error


def counted_flow(flow_id: str) -> AbstractContextManager[DoneSoFar]:
    """The same for the jobs of a flow that is cancelled."""
    return counted(f"flow {flow_id}: cancelled", "cancel it again to cancel the rest")


def counted_changes(verb: str) -> AbstractContextManager[DoneSoFar]:
    """The same for a requeue, cancel, delete or amend."""
    return counted(f"{verb}: changed", "what is changed stays so; call it again for the rest")


async def change_in_slices(
    verb: str,
    ids: Sequence[str],
    seen: Sequence[Seen] | None,
    change: Callable[[Sequence[str], Sequence[Seen] | None], Awaitable[Sequence[R]]],
) -> list[R]:
    """A requeue, cancel or delete: the result of each job, in their order."""
    paired(ids, seen)
    results: list[R] = []
    with counted_changes(verb) as done:
        for first in range(0, len(ids), MAX_CHANGED_JOBS):
            part = slice(first, first + MAX_CHANGED_JOBS)
            some = await change(ids[part], None if seen is None else seen[part])
            results += some
            done.number += sum(error is None for error in some)
    return results


def counted_pruned() -> AbstractContextManager[DoneSoFar]:
    """The same for a prune."""
    return counted("prune: deleted", "call it again for the rest")


async def prune_in_slices(limit: int, prune: Callable[[int], Awaitable[int]]) -> int:
    """How many jobs were deleted, at most `limit`. `prune`: does it for a limit of its own."""
    with counted_pruned() as done:
        while (most := min(limit - done.number, MAX_CHANGED_JOBS)) > 0:
            some = await prune(most)
            done.number += some
            if some < most:
                break
    return done.number
