"""The body of a schedule's row: what it does, who changed it, and how far it is. Drivers never look into it.

It is MessagePack, a map by field name. A program keeps what it does not know: fields that a later version added are
written back as they were read. Where keeping is not enough, because an older program would do something wrong, the
later version writes a higher number `v`. Then this one neither fires the schedule nor changes it, and says so.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from taskharbor.model.safe_repr import shows
from taskharbor.policy.slots import Timing
from taskharbor.schedules.rule import Rule, check_stored_rule, edited

VERSION = 1
MAX_CALLS_KEPT = 8
"""How many of the newest changes by people a row remembers, so that one whose reply was lost is not made twice."""


class UnreadableBody(ValueError):
    """A body that this program cannot read, or must not act on. Its text says why."""


class NewerBody(UnreadableBody):
    """A body of a later version of TaskHarbor."""


@shows("type", "queue")
class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a schedule makes, and when, as it was declared or added: the fields of its jobs, and a rule."""

    type: str
    queue: str
    payload: bytes = b"{}"
    timeout: timedelta | None = None
    priority: int = 0
    max_attempts: int = 0
    group: str | None = None
    group_limit: int = 0
    metadata: dict[str, str] = {}
    rule: Rule


@shows("declared", "paused", "reached", "last_at", "fired", "missed", "skipped")
class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One version of a schedule.

    `reached`: up to here every slot was decided (a job, missed or skipped); the next one is the first behind it. So the
    sequence goes back only when it lies far ahead of the clock, because a clock was wrong. `decided_to`: where it was
    then; slots up to there were decided once already. `anchor`: from where `every` counts.
    """

    v: int
    definition: msgspec.Raw
    hash: str  # of the definition: a declaration with another one is a change
    born: str  # made with the row: one that was deleted and added again has another
    reached: datetime
    anchor: datetime
    declared: bool = False  # in code; else added at run time
    edit: dict[str, Any] = {}  # options that override the definition's
    paused: bool = False
    deleted: bool = False  # by a person, although code declares it: a mark, until a reset or another declaration
    last_at: datetime | None = None  # the newest slot that got a job
    last_id: str = ""  # that job
    running: tuple[str, ...] = ()  # jobs of slots that may not have ended
    asked: tuple[str, ...] = ()  # jobs that people asked for, and that may not have ended
    decided_to: datetime | None = None
    catch_up_to: datetime | None = None  # slots up to here are being caught up: none of them is skipped for another
    fired: int = 0
    missed: int = 0
    skipped: int = 0
    calls: tuple[str, ...] = ()  # the newest changes that people made


@shows("body")
class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A body with what was decoded of it. `unknown`: fields of later versions, as they were stored."""

    body: Body
    definition: Definition
    rule: Rule  # with the edit over it
    unknown: dict[str, bytes] = {}

    @property
    def timing(self) -> Timing:
        """The slots that it has."""
        return self.rule.timing(self.body.anchor)

    @property
    def edited(self) -> bool:
        """Whether an edit overrides what was declared or added."""
        return bool(self.body.edit)

    def with_state(self, **changes: Any) -> Schedule:
        """The same with other fields of the body, but with the same definition and edit."""
        return msgspec.structs.replace(self, body=msgspec.structs.replace(self.body, **changes))


class _Version(msgspec.Struct):
    v: int


_encoder = msgspec.msgpack.Encoder()
_ordered = msgspec.msgpack.Encoder(order="deterministic")
_version = msgspec.msgpack.Decoder(_Version)
_body = msgspec.msgpack.Decoder(Body)
_definition = msgspec.msgpack.Decoder(Definition)
_fields = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_KNOWN = frozenset(Body.__struct_fields__)


def cannot_follow(error: Exception) -> str:
    """Why a schedule is refused. The text of an unexpected error is left out: it may quote arguments."""
    if isinstance(error, ValueError | OverflowError):  # a zone that this machine does not know, for one
        return str(error)
    return f"this program cannot follow it ({type(error).__name__}); delete it, or declare it anew"


def write_definition(definition: Definition) -> msgspec.Raw:
    """A definition as a body holds it: equal ones are equal bytes."""
    return msgspec.Raw(_ordered.encode(definition))


def write_body(schedule: Schedule) -> bytes:
    """The body as a row holds it, with the fields that only a later version knows."""
    data = _encoder.encode(schedule.body)
    if not schedule.unknown:
        return data
    known: dict[str, Any] = dict(_fields.decode(data))
    return _encoder.encode({**known, **{name: msgspec.Raw(value) for name, value in schedule.unknown.items()}})


def read_body(data: bytes) -> Schedule:
    """What a row holds. NewerBody if a later version wrote it, UnreadableBody if no version did."""
    try:
        version = _version.decode(data).v
        if version > VERSION:
            raise NewerBody(
                f"a later version of TaskHarbor wrote it (version {version} of a schedule, this program knows "
                f"{VERSION}); upgrade this program"
            )
        body = _body.decode(data)
        definition = _definition.decode(body.definition)
        rule = edited(definition.rule, body.edit)
        check_stored_rule(definition.rule)
        check_stored_rule(rule)
        _check_moments(body)
        unknown = {name: bytes(value) for name, value in _fields.decode(data).items() if name not in _KNOWN}
    except UnreadableBody:
        raise
    except (ValueError, TypeError, RecursionError, MemoryError) as error:  # msgspec's errors are ValueErrors
        raise UnreadableBody(f"it is damaged ({type(error).__name__}); delete it, or let its code declare it") from None
    return Schedule(body=body, definition=definition, rule=rule, unknown=unknown)


def _check_moments(body: Body) -> None:
    """ValueError for a moment without a time zone: it cannot be compared with the others."""
    for moment in (body.reached, body.anchor, body.last_at, body.decided_to, body.catch_up_to):
        if moment is not None and moment.tzinfo is None:
            raise ValueError("expected moments with a time zone")
