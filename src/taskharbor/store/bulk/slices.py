"""One slice of an operation: what it reads and changes, and what comes after it.

A slice is bounded in jobs and in seconds, so its lease outlives it. It may run twice, after a crash: what it did the
first time no longer fits the filter, or is refused because the job changed since (`Seen`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec

from taskharbor.drivers.base import Driver
from taskharbor.drivers.cursor import encode_cursor
from taskharbor.model.clock import Clock
from taskharbor.model.errors import DriverError, JobNotFound
from taskharbor.model.job import JobInfo, Seen, State
from taskharbor.model.times import round_up
from taskharbor.store.bulk.plan import (
    MAX_COUNTED_JOBS,
    Action,
    OperationPlan,
    OperationState,
    OperationStatus,
    Phase,
    is_operation,
    jobs_of_window,
    starts_in_window,
    window_s,
)

PAGE_JOBS = 500
SLICE_JOBS = 2_000  # that a slice without a spread changes
WINDOW_JOBS = 10_000  # that a slice with a spread changes
SLICE_S = 5.0  # after this it ends, and the next one goes on
COUNT_PAGE_JOBS = 1_000
COUNT_PAGES = 20  # of one slice
LONGEST_CANARY_PAUSE_S = 30.0


class NextSlice(msgspec.Struct, frozen=True):
    """Another slice follows, at once or at a moment."""

    state: OperationState
    run_at: datetime | None = None


class RunAgain(msgspec.Struct, frozen=True):
    """Nothing can be done yet: the same slice, later."""

    run_at: datetime


class OperationEnded(msgspec.Struct, frozen=True):
    """The operation is over."""

    state: OperationState
    status: OperationStatus


SliceStep: TypeAlias = NextSlice | RunAgain | OperationEnded


async def run_slice(driver: Driver, state: OperationState, clock: Clock, deliveries: int) -> SliceStep:
    """Do what the slice is for. `deliveries`: how often it ran, this time included."""
    if state.phase is Phase.CHOOSE:
        return await _choose(driver, state, clock)
    if state.phase is Phase.CANARY:
        return await _send_canary(driver, state, clock)
    if state.phase is Phase.AWAIT:
        return await _await_canary(driver, state, clock.now(), deliveries)
    if state.phase is Phase.COUNT:
        return await _count(driver, state, clock)
    if state.plan.spread_s:
        return await _act_in_window(driver, state, clock)
    return await _act(driver, state, clock)


# The limit -----------------------------------------------------------------------------------------------------


async def _choose(driver: Driver, state: OperationState, clock: Clock) -> SliceStep:
    """Find the last job that the limit allows. Without that, a slice that runs twice would take others in the place of
    those that it has changed, and they no longer fit: more than the limit."""
    until = clock.monotonic() + SLICE_S
    chosen, ahead = state.chosen, msgspec.structs.replace(state, cursor=state.counted_to)
    for _ in range(COUNT_PAGES):
        most = min(state.plan.limit - chosen, COUNT_PAGE_JOBS)
        found, cursor = await _page(driver, ahead, clock.now(), most)
        chosen, ahead = chosen + len(found), msgspec.structs.replace(ahead, cursor=cursor)
        if cursor is None or chosen >= state.plan.limit:
            last = found[-1].job.id if chosen >= state.plan.limit else ""
            return NextSlice(state.with_next(phase=state.after_choice(), last=last, counted_to=None))
        if clock.monotonic() >= until:
            break
    return NextSlice(state.with_next(chosen=chosen, counted_to=ahead.cursor))


# The canary ----------------------------------------------------------------------------------------------------


async def _send_canary(driver: Driver, state: OperationState, clock: Clock) -> SliceStep:
    """Requeue the first jobs that fit."""
    wanted = min(state.plan.canary, state.plan.limit or state.plan.canary)
    found, cursor = await _find(driver, state, clock, wanted - len(state.canaries))
    changed, skipped = await _change(driver, state.plan, found, clock.now())
    following = state.with_next(
        phase=Phase.AWAIT,
        cursor=cursor,
        done=state.done + len(changed),
        skipped=state.skipped + skipped,
        canaries=(*state.canaries, *changed),
    )
    if cursor is not None and len(following.canaries) < wanted:  # short: the store looked at enough for one slice
        return NextSlice(msgspec.structs.replace(following, phase=Phase.CANARY))
    if not following.canaries:
        return OperationEnded(following, OperationStatus.DONE)
    return NextSlice(following, round_up(clock.now() + timedelta(seconds=1)))


async def _await_canary(driver: Driver, state: OperationState, now: datetime, deliveries: int) -> SliceStep:
    """Go on when each job of the canary has ended; end if too many died again."""
    failures = 0
    for id in state.canaries:
        try:
            info = await driver.inspect(id, now)
        except JobNotFound:
            continue  # done and pruned, or deleted
        if not info.state.terminal:
            pause = min(1.5 ** min(deliveries, 20), LONGEST_CANARY_PAUSE_S)
            return RunAgain(round_up(now + timedelta(seconds=pause)))
        failures += info.state is not State.DONE
    following = state.with_next(phase=state.after_canary(), failures=failures)
    if failures > state.plan.max_failures:
        return OperationEnded(following, OperationStatus.HELD)
    if state.cursor is None or state.left() == 0:
        return OperationEnded(following, OperationStatus.DONE)
    return NextSlice(following)


# Counting ------------------------------------------------------------------------------------------------------


async def _count(driver: Driver, state: OperationState, clock: Clock) -> SliceStep:
    """Count some more of the jobs that fit, from where acting will begin."""
    total, cursor = state.total, state.counted_to or state.cursor
    limit, until = state.left(), clock.monotonic() + SLICE_S
    for _ in range(COUNT_PAGES):
        page = await driver.list(
            now=clock.now(), cursor=cursor, limit=COUNT_PAGE_JOBS, payloads=False, **state.plan.filter.query()
        )
        total, cursor = total + len(page.items), page.cursor
        if cursor is None or total >= MAX_COUNTED_JOBS or (limit is not None and total >= limit):
            total = total if limit is None else min(total, limit)
            return NextSlice(state.with_next(phase=Phase.ACT, total=max(1, total), counted_to=None))
        if clock.monotonic() >= until:
            break
    return NextSlice(state.with_next(total=total, counted_to=cursor))


# Acting --------------------------------------------------------------------------------------------------------


async def _act(driver: Driver, state: OperationState, clock: Clock) -> SliceStep:
    """Change jobs until the slice is full, its time is over or none is left."""
    met, until = state.met, clock.monotonic() + SLICE_S
    while True:
        left = state.left()
        if left == 0:
            return OperationEnded(state, OperationStatus.DONE)
        page = await _page(driver, state, clock.now(), PAGE_JOBS if left is None else min(left, PAGE_JOBS))
        changed, skipped = await _change(driver, state.plan, page[0], clock.now())
        state = msgspec.structs.replace(
            state, cursor=page[1], done=state.done + len(changed), skipped=state.skipped + skipped
        )
        if page[1] is None:
            return OperationEnded(state, OperationStatus.DONE)
        if state.met - met >= SLICE_JOBS or clock.monotonic() >= until:
            return NextSlice(state.with_next())


async def _act_in_window(driver: Driver, state: OperationState, clock: Clock) -> SliceStep:
    """Requeue the jobs of one window, each with the moment at which it starts.

    After an outage the pace stays what it was: nothing is made up for, so the jobs never start all at once.
    """
    begins, seconds = clock.now(), window_s(state.plan.spread_s)
    wanted, left = jobs_of_window(state.total, state.plan.spread_s), state.left()
    if wanted > WINDOW_JOBS:  # too many for one slice: a part of the window, at the same pace
        wanted, seconds = WINDOW_JOBS, seconds * WINDOW_JOBS / wanted
    found, cursor = await _find(driver, state, clock, wanted if left is None else min(wanted, left))
    done = skipped = at = 0
    until = clock.monotonic() + SLICE_S
    for number, second in starts_in_window(len(found), seconds):
        run_at = round_up(begins + timedelta(seconds=second)) if second else None
        end = at + number
        while at < end and not (at and clock.monotonic() >= until):
            part = found[at : min(at + PAGE_JOBS, end)]
            changed, refused = await _change(driver, state.plan, part, clock.now(), run_at)
            done, skipped, at = done + len(changed), skipped + refused, at + len(part)
    if at < len(found):  # its time is over: the next slice goes on behind these, when the last of them has started
        cursor, seconds = encode_cursor(found[at - 1].job.id), seconds * at / len(found)
    following = state.with_next(cursor=cursor, done=state.done + done, skipped=state.skipped + skipped)
    if cursor is None or following.left() == 0:
        return OperationEnded(following, OperationStatus.DONE)
    full = len(found) >= wanted or at < len(found)  # a short one: the store looked at enough for one slice
    return NextSlice(following, round_up(begins + timedelta(seconds=seconds)) if full else None)


async def _find(driver: Driver, state: OperationState, clock: Clock, wanted: int) -> tuple[list[JobInfo], str | None]:
    """The next jobs that fit, at most `wanted`; fewer if the time of a slice is over."""
    found: list[JobInfo] = []
    until = clock.monotonic() + SLICE_S
    while True:
        page, cursor = await _page(driver, state, clock.now(), min(wanted - len(found), PAGE_JOBS))
        found += page
        state = msgspec.structs.replace(state, cursor=cursor)
        if cursor is None or len(found) >= wanted or clock.monotonic() >= until:
            return found, cursor


async def _page(driver: Driver, state: OperationState, now: datetime, limit: int) -> tuple[list[JobInfo], str | None]:
    page = await driver.list(now=now, cursor=state.cursor, limit=limit, payloads=False, **state.plan.filter.query())
    items, cursor = page.items, page.cursor
    if state.last and items and items[-1].job.id >= state.last:
        items, cursor = tuple(info for info in items if info.job.id <= state.last), None
    return [info for info in items if is_target(state.plan, info)], cursor


def is_target(plan: OperationPlan, info: JobInfo) -> bool:
    """Whether the action is for such a job: cancel, with a filter for any state, passes over what has ended."""
    return not is_operation(info) and not (plan.action is Action.CANCEL and info.state.terminal)


async def _change(
    driver: Driver, plan: OperationPlan, jobs: Sequence[JobInfo], now: datetime, run_at: datetime | None = None
) -> tuple[list[str], int]:
    """Change jobs that are still as they were read: the ids of those changed, and how many were not."""
    ids, seen = [info.job.id for info in jobs], [Seen.of(info) for info in jobs]
    errors: list[DriverError | None] = []
    if not ids:
        return [], 0
    if plan.action is Action.REQUEUE:
        errors = await driver.requeue(ids, now, run_at, plan.reset_attempts, seen=seen)
    elif plan.action is Action.CANCEL:
        errors = await driver.cancel(ids, now, seen=seen)
    else:
        errors = await driver.delete(ids, seen=seen)
    changed = [id for id, error in zip(ids, errors, strict=True) if error is None]
    return changed, len(ids) - len(changed)
