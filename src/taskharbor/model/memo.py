"""A memo: what a handler stored under a name, so that a later execution of its job need not do it again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from taskharbor.model.lease import Lease
from taskharbor.model.safe_repr import shows
from taskharbor.model.times import from_ms

MAX_MEMO_BYTES = 128 * 1024
"""What a store takes. Core allows half of it: a sealed value is longer than the codec's bytes."""
CHECKPOINT = "taskharbor.checkpoint"
"""The name of the memo that `ctx.checkpoint` replaces."""
VALUE, SLEEP = b"v", b"z"
"""How a value begins that core wrote: that of a step, before the codec's bytes; or a sleep, before its end in ms."""


@shows("name", "at", "execution")
class Memo(msgspec.Struct, frozen=True, gc=False):
    """What a store keeps of a step; core writes the value, and a driver never decodes it.

    >>> from taskharbor.model.job import EPOCH
    >>> Memo("charge", b"42", EPOCH, 1).name
    'charge'
    """

    name: str
    value: bytes
    at: datetime  # the `now` of its save
    execution: int  # the number of the delivery that saved it


@shows("lease", "name")
class SaveStep(msgspec.Struct, frozen=True, gc=False):
    """A memo that is stored together with a handler's own writes: what `Transaction.commit` takes in place of an
    Ack."""

    lease: Lease
    name: str
    value: bytes


class StepInfo(msgspec.Struct, frozen=True):
    """A step or a sleep of a job that is stored, without its value: see `handle.steps()`."""

    name: str  # its name
    at: datetime  # when it was stored
    size: int  # of its value, in bytes
    execution: int  # the number of the execution that stored it: `ctx.fence` there


def step_infos(memos: Sequence[Memo]) -> list[StepInfo]:
    """What is shown of memos; the checkpoint is none of the steps."""
    return [
        StepInfo(memo.name, memo.at, max(len(memo.value) - 1, 0), memo.execution)
        for memo in memos
        if memo.name != CHECKPOINT
    ]


def memo_place(memo: Memo) -> tuple[datetime, str]:
    """By what the memos of a job are sorted.

    >>> from taskharbor.model.job import EPOCH
    >>> [memo.name for memo in sorted([Memo("b", b"", EPOCH, 1), Memo("a", b"", EPOCH, 1)], key=memo_place)]
    ['a', 'b']
    """
    return memo.at, memo.name


def sleep_of(memos: Sequence[Memo], now: datetime) -> tuple[str, datetime] | None:
    """The name and the end of the sleep that a job is in; None if it is in none.

    >>> from taskharbor.model.job import EPOCH
    >>> sleep_of([Memo("cool-off", b"z5000", EPOCH, 1)], EPOCH)
    ('cool-off', datetime.datetime(1970, 1, 1, 0, 0, 5, tzinfo=datetime.timezone.utc))
    """
    for memo in reversed(memos):
        if memo.value.startswith(SLEEP) and (end := memo.value[1:]).isdigit() and len(end) < 15:
            until = from_ms(int(end))
            if until > now:
                return memo.name, until
    return None
