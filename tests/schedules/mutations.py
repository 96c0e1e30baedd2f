"""Mistakes of other schedulers, and some that would be easy to make here. The simulation must turn red on each."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
import pytest

from taskharbor.drivers.memory import schedules as memory_schedules
from taskharbor.model.errors import JobNotFound
from taskharbor.model.job import State
from taskharbor.schedules import changes, declare, firing, plan
from taskharbor.schedules.body import read_body

Mutation = Callable[[pytest.MonkeyPatch], None]
MUTATIONS: dict[str, Mutation] = {}


def mutation(function: Mutation) -> Mutation:
    MUTATIONS[function.__name__] = function
    return function


@mutation
def a_job_is_stored_before_the_row_is_compared(patch: pytest.MonkeyPatch) -> None:
    make = firing.ScheduleRunner._make

    async def early(self: Any, plans: Any, now: datetime) -> Any:
        await self._driver.enqueue([job for each in plans for job in each.jobs], now)
        return await make(self, plans, now)

    patch.setattr(firing.ScheduleRunner, "_make", early)


@mutation
def a_job_is_stored_in_a_call_of_its_own(patch: pytest.MonkeyPatch) -> None:
    """As everywhere where a leader moves its own clock first: what dies in between loses the slot."""
    make = firing.ScheduleRunner._make

    async def apart(self: Any, plans: Any, now: datetime) -> Any:
        bare = [
            msgspec.structs.replace(each, change=msgspec.structs.replace(each.change, jobs=()), fired=())
            for each in plans
        ]
        made = await make(self, bare, now)
        names = {each.change.name for each in made}
        await self._driver.enqueue([job for each in plans if each.change.name in names for job in each.jobs], now)
        return made

    patch.setattr(firing.ScheduleRunner, "_make", apart)


@mutation
def the_next_slot_is_counted_from_now(patch: pytest.MonkeyPatch) -> None:
    planned = plan.plan

    def drifting(row: Any, schedule: Any, now: datetime, *, running: Any) -> Any:
        made: Any = planned(row, schedule, now, running=running)
        after = made.schedule.with_state(anchor=now) if made.fired else made.schedule
        change = msgspec.structs.replace(
            made.change, to=msgspec.structs.replace(plan.stored(row.name, after), revision=made.change.to.revision)
        )
        return msgspec.structs.replace(made, schedule=after, change=change)

    patch.setattr(firing, "plan", drifting)


@mutation
def a_skip_ignores_a_job_that_waits_for_its_retry(patch: pytest.MonkeyPatch) -> None:
    async def hasty(driver: Any, id: str, now: datetime) -> bool:
        try:
            return (await driver.inspect(id, now)).state in (State.READY, State.INFLIGHT)
        except JobNotFound:
            return False

    patch.setattr(firing, "_is_running", hasty)


@mutation
def every_process_stores_the_declarations(patch: pytest.MonkeyPatch) -> None:
    from taskharbor.worker.worker import Worker

    serve = Worker._serve

    async def again(self: Any, driver: Any, until_empty: bool) -> None:
        self._has_declared = False
        await serve(self, driver, until_empty)

    patch.setattr(Worker, "_serve", again)


@mutation
def an_edit_is_lost_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    compared = declare.declared_change

    def replaced(given: Any, row: Any, now: datetime) -> Any:
        if row is not None:
            return declare._change(given, row, changes.redeclared(read_body(row.body), given, now))
        return compared(given, row, now)

    patch.setattr(declare, "declared_change", replaced)


@mutation
def the_new_rule_makes_up_for_what_was_missed_before_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(changes, "_begun_anew", lambda before, after, now: after)


@mutation
def a_declaration_counts_from_its_own_clock(patch: pytest.MonkeyPatch) -> None:
    """A clock that is behind brings slots back."""

    def begun(before: Any, after: Any, now: datetime) -> Any:
        return after.with_state(reached=now)

    patch.setattr(changes, "_begun_anew", begun)


@mutation
def the_row_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    changed = memory_schedules._change

    def lax(store: Any, change: Any, now: datetime, most: int) -> bool:
        row = store.schedules.get(change.name)
        if row is not None and change.to is not None and change.jobs:
            change = msgspec.structs.replace(change, expect=row.revision)
        return changed(store, change, now, most)

    patch.setattr(memory_schedules, "_change", lax)


@mutation
def a_job_of_a_slot_has_a_random_id_and_its_change_is_repeated(patch: pytest.MonkeyPatch) -> None:
    from taskharbor.model.ids import new_id
    from taskharbor.model.times import to_ms

    patch.setattr(plan, "slot_id", lambda name, slot: new_id(to_ms(slot)))
    changed = memory_schedules._change

    def forgetful(store: Any, change: Any, now: datetime, most: int) -> bool:
        row = store.schedules.get(change.name)
        if row is not None and change.to is not None and row.revision == change.to.revision:
            fresh = tuple(msgspec.structs.replace(job, id=new_id(to_ms(now))) for job in change.jobs)
            change = msgspec.structs.replace(change, expect=row.revision, jobs=fresh)
            to = msgspec.structs.replace(change.to, revision=f"{row.revision}+")
            change = msgspec.structs.replace(change, to=to)
        return changed(store, change, now, most)

    patch.setattr(memory_schedules, "_change", forgetful)


@mutation
def a_paused_schedule_goes_on(patch: pytest.MonkeyPatch) -> None:
    from taskharbor.policy.slots import next_slot

    patch.setattr(plan, "next_of", lambda schedule: next_slot(schedule.timing, schedule.body.reached))


@mutation
def a_workflow_or_a_job_is_never_busy(patch: pytest.MonkeyPatch) -> None:
    async def never(driver: Any, id: str, now: datetime) -> bool:
        return False

    patch.setattr(firing, "_is_running", never)
