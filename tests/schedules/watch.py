"""What schedules were seen to do, kept apart from the code under test: every change of a row, checked when it is made.

It computes slots by itself, one after the other. What it objects to is a problem of the run.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from taskharbor.drivers import Driver
from taskharbor.model.errors import JobNotFound
from taskharbor.model.job import JobRecord
from taskharbor.model.schedule import ScheduleChange, StoredSchedule, slot_of
from taskharbor.schedules.body import Schedule, read_body
from taskharbor.schedules.plan import MAX_WATCHED_JOBS
from tests.simulation.journal import Journal

MINUTE = timedelta(minutes=1)


def is_ahead(schedule: Schedule, now: datetime) -> bool:
    """Whether it has decided more than an interval, and more than a minute, of what is to come."""
    reached, every = schedule.body.reached, schedule.rule.every
    if reached - now <= MINUTE:
        return False
    return reached - now > every if every is not None else any(s < reached for s in slots(schedule, now, reached))


def decided(schedule: Schedule, now: datetime) -> datetime:
    """Up to where its slots count as decided at a moment."""
    to = schedule.body.decided_to
    return schedule.body.reached if to is None or now < to else max(schedule.body.reached, to)


def slots(schedule: Schedule, after: datetime, until: datetime) -> list[datetime]:
    """The slots behind one moment up to another, counted out."""
    return [slot for slot in _all(schedule, until) if after < slot]


def _all(schedule: Schedule, until: datetime) -> Iterator[datetime]:
    rule, anchor = schedule.rule, schedule.body.anchor
    if rule.every is not None:
        slot, step = rule.start_at or anchor, rule.every
    else:
        assert rule.cron is not None
        every = rule.cron.split()[0].partition("/")[2] or "1"
        slot, step = anchor.replace(minute=0, second=0, microsecond=0) - timedelta(hours=1), int(every) * MINUTE
    while slot <= until:
        if (rule.start_at is None or slot >= rule.start_at) and (rule.end_at is None or slot < rule.end_at):
            yield slot
        slot += step


class Watch:
    """The history of all schedules of one run."""

    def __init__(self, journal: Journal, *, code_goes_back: bool = False) -> None:
        self._journal = journal
        self._code_goes_back = code_goes_back  # whether older code may be declared after newer code
        self.slots: dict[str, dict[datetime, str]] = {}  # slot → job, by schedule
        self.runs: dict[str, list[str]] = {}  # jobs that people asked for
        self._unfinished: dict[str, list[str]] = {}
        self._replaced: dict[str, set[str]] = {}  # hashes of definitions that newer code has replaced

    async def changed(
        self, store: Driver, before: StoredSchedule | None, change: ScheduleChange, now: datetime
    ) -> None:
        """A change was made."""
        name = change.name
        if before is None or change.to is None:
            self.demand(not change.jobs, name, "jobs with a schedule that was added or deleted")
            return
        old, new = read_body(before.body), read_body(change.to.body)
        back = new.body.reached < old.body.reached
        self.demand(not back or is_ahead(old, now), name, "went back")
        runs = [job for job in change.jobs if job.run_at is None]
        self.runs.setdefault(name, []).extend(job.id for job in runs)
        fired = [job for job in change.jobs if job not in runs]
        if back and self._is_firing(old, new):
            begins = max(now - MINUTE, min(old.body.anchor, now))
            self.demand(not change.jobs and new.body.reached == begins, name, "was not put right")
            self._journal.count("put right")
        elif self._is_firing(old, new):
            await self._fired(store, name, old, new, fired, now)
            if change.jobs:
                self._journal.count("fired")
        else:
            self.demand(not fired, name, "a change by a person or by code made the job of a slot")
            self._changed_otherwise(name, old, new, now)
        self._unfinished.setdefault(name, []).extend(job.id for job in change.jobs)

    def _is_firing(self, old: Schedule, new: Schedule) -> bool:
        same = all(
            getattr(old.body, field) == getattr(new.body, field)
            for field in ("hash", "edit", "paused", "calls", "declared", "born")
        )
        return same and not old.body.paused

    async def _fired(
        self, store: Driver, name: str, old: Schedule, new: Schedule, jobs: list[JobRecord], now: datetime
    ) -> None:
        due = slots(old, decided(old, now), new.body.reached)
        again_to = old.body.decided_to if new.body.decided_to is not None else None
        made, missed, skipped = self._deltas(old, new)
        rule = old.rule
        self.demand(new.body.anchor == old.body.anchor, name, "its anchor moved")
        self.demand(new.body.reached <= now, name, f"{new.body.reached} was decided at {now}")
        self.demand(made == len(jobs), name, f"{made} fired, {len(jobs)} jobs")
        self.demand(made + missed + skipped == len(due), name, f"{made}+{missed}+{skipped} of {len(due)} slots")
        self.demand(
            rule.catch_up != "all" or not missed or again_to is not None, name, "missed, although all are caught up"
        )
        self.demand(rule.overlap != "allow" or not skipped, name, "skipped, although they may overlap")
        self.demand(rule.catch_up == "all" or made <= 1, name, f"{made} jobs at once")
        if rule.overlap == "skip" and rule.catch_up != "all" and jobs:
            await self._check_none_runs(store, name, now)
        for job in jobs:
            slot = slot_of(job.metadata)
            assert slot is not None
            known = self.slots.setdefault(name, {})
            self.demand(slot in due, name, f"{slot} is not one of its slots")
            same = again_to is not None and slot <= again_to and known.get(slot) == job.id  # the store has it
            self.demand(slot not in known or same, name, f"{slot} got a second job")
            self.demand(job.run_at is not None and slot <= job.run_at <= slot + rule.jitter, name, "another moment")
            known[slot] = job.id
        for what, number in (("missed", missed), ("skipped", skipped), ("caught up", made - 1)):
            if number > 0:
                self._journal.count(what)

    def _changed_otherwise(self, name: str, old: Schedule, new: Schedule, now: datetime) -> None:
        made, missed, skipped = self._deltas(old, new)
        self.demand(not made and not skipped, name, f"{made} fired, {skipped} skipped by a change")
        resumed = old.body.paused and not new.body.paused and old.rule.catch_up != "all"
        if is_ahead(old, now) and new.body.reached != old.body.reached:
            self.demand(new.body.reached == now and not missed, name, "does not begin at its moment")
            self.demand(
                new.body.decided_to == max(old.body.reached, old.body.decided_to or old.body.reached),
                name,
                "forgot what it decided",
            )
            self._journal.count("new sequence")
        elif new.rule.moments() != old.rule.moments() or resumed:
            left = slots(old, decided(old, now), now)
            self.demand(missed == len(left), name, f"{missed} missed, {len(left)} were left behind")
            self.demand(new.body.reached == max(now, decided(old, now)), name, "does not begin at its moment")
            self._journal.count("new sequence")
        else:
            self.demand(not missed and new.body.reached == old.body.reached, name, "slots were lost by a change")
        if old.body.hash != new.body.hash:
            replaced = self._replaced.setdefault(name, set())
            again = new.body.hash in replaced and not self._code_goes_back
            self.demand(not again, name, "older code replaced what newer code declares")
            replaced.add(old.body.hash)
        if old.body.edit and not new.body.edit and old.body.hash == new.body.hash:
            self.demand(new.body.calls != old.body.calls, name, "its edit was dropped, although the code is the same")
        if old.body.edit and old.body.hash != new.body.hash:
            self.demand(not new.body.edit, name, "its edit stayed, although the code changed")
            self._journal.count("edit dropped")

    def _deltas(self, old: Schedule, new: Schedule) -> tuple[int, int, int]:
        before, after = old.body, new.body
        return after.fired - before.fired, after.missed - before.missed, after.skipped - before.skipped

    async def _check_none_runs(self, store: Driver, name: str, now: datetime) -> None:
        left = []
        for id in self._unfinished.get(name, [])[-MAX_WATCHED_JOBS // 2 :]:
            try:
                info = await store.inspect(id, now)
            except JobNotFound:
                continue
            if not info.state.terminal:
                left.append(id)
                self.demand(False, name, f"a slot got a job while {id} was {info.state}")
        self._unfinished[name] = left

    def demand(self, condition: object, name: str, text: str) -> None:
        if not condition:
            self._journal.wrong(f"schedule {name}: {text}")

    def at_the_end(self, name: str, row: StoredSchedule, jobs: dict[str, Any], now: datetime) -> None:
        """When faults are over, and everything has had time to settle."""
        schedule = read_body(row.body)
        known = self.slots.get(name, {})
        mine = {id for id, job in jobs.items() if job.metadata.get("taskharbor.schedule") == name}
        self.demand(schedule.body.fired == len(known), name, f"{schedule.body.fired} fired, {len(known)} seen")
        self.demand(
            mine == {*known.values(), *self.runs.get(name, [])}, name, f"{len(mine)} jobs for {len(known)} slots"
        )
