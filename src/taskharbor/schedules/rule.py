"""When a schedule makes jobs: the options of a declaration, checked, and the edit that overrides them.

A rule says nothing about a job. It is a plain value, stored in the body of a row; `policy.slots` turns it into moments.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, TypedDict, TypeVar

import msgspec

from taskharbor.model.times import Duration, duration
from taskharbor.policy.slots import SHORTEST_EVERY, Timing, anchored, new_timing

E = TypeVar("E", bound=StrEnum)


class CatchUp(StrEnum):
    """What becomes of slots that nobody noticed in time. Members are strings: `CatchUp.ALL == "all"`."""

    LATEST = "latest"  # one job for the newest of them
    NONE = "none"  # a job for the newest, if it is at most a minute late
    ALL = "all"  # a job for each


class Overlap(StrEnum):
    """What becomes of a slot while the job of an earlier one has not ended."""

    SKIP = "skip"
    ALLOW = "allow"


class RuleOptions(TypedDict, total=False):
    """The options of a schedule, as a caller gives them."""

    cron: str | None
    every: Duration | None
    tz: str
    start_at: datetime | date | None
    end_at: datetime | date | None
    jitter: Duration
    catch_up: Literal["latest", "none", "all"]
    overlap: Literal["skip", "allow"]


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of a schedule, checked. Exactly one of `cron` and `every` is set."""

    cron: str | None = None
    every: timedelta | None = None
    tz: str = "UTC"
    start_at: datetime | None = None
    end_at: datetime | None = None
    jitter: timedelta = timedelta(0)
    catch_up: CatchUp = CatchUp.LATEST
    overlap: Overlap = Overlap.SKIP

    def timing(self, anchor: datetime) -> Timing:
        """The slots of this rule. `anchor`: from where `every` counts, without a `start_at`."""
        timing = Timing(cron=self.cron, every=self.every, tz=self.tz, start_at=self.start_at, end_at=self.end_at)
        return anchored(timing, anchor)

    def moments(self) -> tuple[object, ...]:
        """What decides about the slots: two rules that agree in it have the same ones."""
        return self.cron, self.every, self.tz, self.start_at, self.end_at


def edited(rule: Rule, edit: Mapping[str, Any]) -> Rule:
    """The rule with an edit over it, as a body keeps one; ValueError for values that nobody here has written.

    >>> edited(Rule(every=timedelta(seconds=15)), {"cron": "0 4 * * *", "every": None}).cron
    '0 4 * * *'
    """
    return msgspec.convert({**msgspec.to_builtins(rule), **edit}, Rule) if edit else rule


def check_stored_rule(rule: Rule) -> None:
    """ValueError for a rule that no version of this program has stored.

    A zone that this machine does not know, and a cron expression that this version cannot read, are left to those who
    compute slots: another machine or version may follow them.
    """
    if (rule.cron is None) == (rule.every is None):
        raise ValueError("expected either cron or every")
    if rule.every is not None and rule.every < SHORTEST_EVERY:
        raise ValueError("every: expected at least 1 second")
    if rule.jitter < timedelta(0):
        raise ValueError("jitter: expected 0 or more")
    if any(limit is not None and limit.tzinfo is None for limit in (rule.start_at, rule.end_at)):
        raise ValueError("start_at, end_at: expected a time zone")


def checked_edit(rule: Rule, given: RuleOptions) -> dict[str, Any]:
    """What a caller wants to change, as a body keeps it; ValueError or TypeError if that makes no sense for this rule.

    `cron` takes the place of `every`, and the reverse.

    >>> checked_edit(Rule(cron="0 4 * * *"), {"every": 15})
    {'cron': None, 'every': 'PT15S'}
    """
    changes: dict[str, Any] = dict(given)
    for name, other in (("cron", "every"), ("every", "cron")):
        if name in given and other not in given:
            changes[other] = None
    new = checked_rule(**{**msgspec.structs.asdict(rule), **changes})
    return {name: msgspec.to_builtins(value) for name, value in msgspec.structs.asdict(new).items() if name in changes}


def checked_rule(
    *,
    cron: str | None = None,
    every: Duration | None = None,
    tz: str = "UTC",
    start_at: datetime | date | None = None,
    end_at: datetime | date | None = None,
    jitter: Duration = 0,
    catch_up: str = CatchUp.LATEST,
    overlap: str = Overlap.SKIP,
) -> Rule:
    """What a caller gave, as a rule; ValueError or TypeError that says what was expected."""
    timing = new_timing(cron=cron, every=every, tz=tz, start_at=start_at, end_at=end_at)
    rule = Rule(
        cron=timing.cron,
        every=timing.every,
        tz=timing.tz,
        start_at=timing.start_at,
        end_at=timing.end_at,
        jitter=duration(jitter, "jitter"),
        catch_up=_one_of(CatchUp, catch_up, "catch_up"),
        overlap=_one_of(Overlap, overlap, "overlap"),
    )
    if rule.every is not None and rule.jitter >= rule.every:
        raise ValueError(
            f"jitter: expected less than every ({rule.every.total_seconds():g} s), or the runs of two slots would "
            f"change places; got {rule.jitter.total_seconds():g} s"
        )
    return rule


def _one_of(kind: type[E], value: Any, name: str) -> E:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(member.value) for member in kind)
        raise ValueError(f"{name}: expected one of {known}, got {value!r}") from None
