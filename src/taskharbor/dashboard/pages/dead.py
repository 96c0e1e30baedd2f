"""Dead letters by what they have in common, with what to do about each kind."""

from __future__ import annotations

from typing import Any

from taskharbor.dashboard.pages.jobs import filter_arguments, given_filter
from taskharbor.dashboard.pages.shown import Asked, BadQuery, Shown
from taskharbor.model.errors import TaskHarborError
from taskharbor.ops import json_output
from taskharbor.ops.dead_kinds import read_kinds
from taskharbor.ops.room import Sight

KEYS = ("fingerprint", "error", "type", "queue", "reason")
PAGE_KINDS = 25
MAX_PAGE_KINDS = 100


async def dead(sight: Sight, asked: Asked) -> Shown:
    """The kinds of dead jobs, the largest first."""
    by: Any = asked.one_of("by", KEYS, "fingerprint")
    limit = asked.whole("limit", PAGE_KINDS, MAX_PAGE_KINDS)
    given = given_filter(asked)
    given.pop("state", None)
    arguments = filter_arguments(asked, sight)
    arguments.pop("state", None)
    try:
        summary = await sight.client.dead(**arguments).asummary(by)
    except (TypeError, ValueError) as error:
        if isinstance(error, TaskHarborError):
            raise
        raise BadQuery(str(error)) from error
    kinds = await read_kinds(sight.driver, sight.now, summary, limit)
    view = {"summary": summary, "kinds": kinds, "by": by, "keys": KEYS, "given": given}
    return Shown("dead.html", "Dead letters", json_output.dead_summary(summary, kinds, by), view, ("jobs",))
