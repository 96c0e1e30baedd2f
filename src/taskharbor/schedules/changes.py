"""What people and code change about a schedule: each change a pure function from one version to the next.

A change of the slots begins a new sequence at its moment. What was due before it and got no job is counted as missed,
and is never made by the new rule. So does any change of a schedule that lies ahead of the clock, because a clock was
wrong: without that it would make nothing until the wrong time comes.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

import msgspec

from taskharbor.model.errors import WrongState
from taskharbor.model.safe_repr import shows
from taskharbor.schedules.body import MAX_CALLS_KEPT, VERSION, Body, Definition, Schedule, write_definition
from taskharbor.schedules.plan import (
    AHEAD,
    MAX_COUNTED_SLOTS,
    MAX_WATCHED_JOBS,
    arrived,
    is_ahead,
    new_revision,
    passed_of,
)
from taskharbor.schedules.rule import CatchUp, Rule, RuleOptions, checked_edit, edited

HASH_HEX_DIGITS = 32


@shows("name")
class Declaration(msgspec.Struct, frozen=True):
    """A schedule as code declares it, or a call adds it."""

    name: str
    definition: Definition
    hash: str


def declaration(name: str, definition: Definition, arguments: bytes) -> Declaration:
    """A declaration. `arguments`: the payload in a form that is the same for the same arguments in every process."""
    same = write_definition(msgspec.structs.replace(definition, payload=arguments))
    return Declaration(name, definition, hashlib.sha256(bytes(same)).hexdigest()[:HASH_HEX_DIGITS])


def created(given: Declaration, now: datetime, *, declared: bool) -> Schedule:
    """The first version of a schedule. Its slots begin behind `now`."""
    definition, rule = given.definition, given.definition.rule
    body = Body(
        v=VERSION,
        definition=write_definition(definition),
        hash=given.hash,
        born=new_revision(),
        reached=now,
        anchor=rule.start_at or now,
        declared=declared,
    )
    return Schedule(body=body, definition=definition, rule=rule)


def redeclared(schedule: Schedule, given: Declaration, now: datetime) -> Schedule:
    """The schedule as code now declares it. The edit is dropped; a pause, the counts and what was reached stay; one
    that a person deleted begins anew."""
    if schedule.body.deleted:
        return created(given, now, declared=True)
    changed = schedule.with_state(
        definition=write_definition(given.definition), hash=given.hash, declared=True, edit={}
    )
    changed = msgspec.structs.replace(changed, definition=given.definition)
    return _with_rule(schedule, changed, given.definition.rule, now)


def with_edit(schedule: Schedule, given: RuleOptions, now: datetime) -> Schedule:
    """The schedule with some options changed, on top of those that were changed before."""
    options = {**schedule.body.edit, **checked_edit(schedule.rule, given)}
    rule = edited(schedule.definition.rule, options)
    return _with_rule(schedule, schedule.with_state(edit=options), rule, now)


def without_edit(schedule: Schedule, now: datetime) -> Schedule:
    """The schedule as it was declared or added, also after a person deleted it: then without the slots meanwhile."""
    if schedule.body.deleted:
        schedule = schedule.with_state(deleted=False, reached=max(now, schedule.body.reached), catch_up_to=None)
    return _with_rule(schedule, schedule.with_state(edit={}), schedule.definition.rule, now)


def deleted(schedule: Schedule) -> Schedule | None:
    """What a deletion leaves: of a declared schedule a mark, so that no worker declares it again; else nothing. So does
    deleting the mark."""
    return schedule.with_state(deleted=True) if schedule.body.declared and not schedule.body.deleted else None


def paused(schedule: Schedule) -> Schedule:
    """The schedule without slots until it is resumed."""
    return schedule.with_state(paused=True)


def resumed(schedule: Schedule, now: datetime) -> Schedule:
    """The schedule with slots again. Those that passed are missed, or with `catch_up="all"` due."""
    going = schedule.with_state(paused=False)
    leaves = schedule.body.paused and schedule.rule.catch_up is not CatchUp.ALL
    return _begun_anew(schedule, going, now) if leaves or is_ahead(schedule, now) else going


def put_right(schedule: Schedule, now: datetime) -> Schedule | None:
    """A schedule that lies ahead of the clock, as it begins anew; None if it does not. Workers notice it within a
    minute, so the slots of that minute are due."""
    body = schedule.body
    if body.paused or body.deleted or not is_ahead(schedule, now):
        return None
    return _begun_anew(schedule, schedule, max(now - AHEAD, min(body.anchor, now)))


def ran(schedule: Schedule, job_id: str) -> Schedule:
    """The schedule after a person asked for a job. While that one runs, `overlap="skip"` skips slots, too."""
    return schedule.with_state(asked=(*schedule.body.asked, job_id)[-MAX_WATCHED_JOBS:])


def called(schedule: Schedule, call: str) -> Schedule:
    """The schedule, with a note of which change by a person this was."""
    return schedule.with_state(calls=(*schedule.body.calls, call)[-MAX_CALLS_KEPT:])


def refuse_other(schedule: Schedule, given: Declaration) -> None:
    """WrongState unless a schedule is what a call wants to add."""
    body = schedule.body
    if body.declared:
        raise WrongState(
            f"schedule {given.name!r} is declared in code; change it with harbor.schedules.edit(…), or give this one "
            "another name"
        )
    if body.hash != given.hash:
        raise WrongState(
            f"schedule {given.name!r} exists, and does something else; edit its options with "
            "harbor.schedules.edit(…), or delete it first"
        )


def _with_rule(before: Schedule, after: Schedule, rule: Rule, now: datetime) -> Schedule:
    """A version with another rule; a new sequence, if the rule has other slots."""
    if rule.moments() != before.rule.moments() or is_ahead(before, now):
        after = _begun_anew(before, after, now)
        if (rule.every, rule.start_at) != (before.rule.every, before.rule.start_at):
            after = after.with_state(anchor=rule.start_at or after.body.reached)
    return msgspec.structs.replace(after, rule=rule)


def _begun_anew(before: Schedule, after: Schedule, now: datetime) -> Schedule:
    """A version whose slots begin behind `now`; those that were due are missed. A sequence goes back only if it lies
    ahead of the clock; then the jobs of slots that it had decided have the same ids, and are stored once."""
    body = before.body
    if is_ahead(before, now):
        decided_to = max(body.reached, body.decided_to or body.reached)
        anchor = body.anchor if before.rule.start_at else min(body.anchor, now)
        return after.with_state(reached=now, anchor=anchor, decided_to=decided_to, catch_up_to=None)
    before = arrived(before, now)
    try:
        missed = passed_of(before, now, MAX_COUNTED_SLOTS).slots
    except (ValueError, TypeError, OverflowError):
        missed = 0  # this machine cannot follow the old rule, and must still be able to replace it
    return after.with_state(
        reached=max(now, before.body.reached),
        decided_to=before.body.decided_to,
        missed=body.missed + missed,
        catch_up_to=None,
    )
