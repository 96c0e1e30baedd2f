"""The heads of queues: what comes next, and since when the oldest ready job waits: one statement for all queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from taskharbor.drivers.heads import in_turn, looks_for_each
from taskharbor.drivers.postgres.records import nearest_moment
from taskharbor.drivers.postgres.statement import Program, array, call
from taskharbor.model.job import QueueHead
from taskharbor.model.times import to_us


class _Following(msgspec.Struct):
    """What queue_heads.sql returns of the jobs that come next."""

    groups_next: bool
    ungrouped: list[str]
    groups: list[list[str]]


_following = msgspec.json.Decoder(_Following).decode


def heads(schema: str, queues: Sequence[str], now: datetime, n: int) -> Program[list[QueueHead]]:
    """The head of each of these queues, in their order."""
    rows = yield call(
        schema,
        "queue_heads",
        (array(queues), "text"),
        (to_us(now), "bigint"),
        (n, "integer"),
        (looks_for_each(queues), "integer"),
        columns="queue, oldest, oldest_known, following",
    )
    found = []
    for queue, oldest, oldest_known, text in rows:
        oldest_at = None if oldest is None else nearest_moment(oldest)
        after = _following(text) if text is not None else None
        following = in_turn(after.ungrouped, after.groups, after.groups_next, n) if after is not None else ()
        found.append(QueueHead(queue, oldest_at, following, oldest_known, n == 0 or after is not None))
    return found
