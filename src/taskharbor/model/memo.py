"""A memo: what a handler stored under a name, so that a later execution of its job need not do it again."""

from __future__ import annotations

from datetime import datetime

import msgspec

from taskharbor.model.safe_repr import shows

MAX_MEMO_BYTES = 128 * 1024
"""What a store takes. Core allows half of it: a sealed value is longer than the codec's bytes."""


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


def memo_place(memo: Memo) -> tuple[datetime, str]:
    """By what the memos of a job are sorted.

    >>> from taskharbor.model.job import EPOCH
    >>> [memo.name for memo in sorted([Memo("b", b"", EPOCH, 1), Memo("a", b"", EPOCH, 1)], key=memo_place)]
    ['a', 'b']
    """
    return memo.at, memo.name
