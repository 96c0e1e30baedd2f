"""The planner by itself: whatever happens to a schedule in whatever order, each slot is decided once, at its time."""

from datetime import datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskharbor.model.errors import JobNotFound
from taskharbor.model.schedule import ScheduleChange, StoredSchedule, slot_of
from taskharbor.schedules.body import Definition, Schedule, read_body
from taskharbor.schedules.changes import (
    called,
    created,
    declaration,
    paused,
    put_right,
    ran,
    resumed,
    with_edit,
    without_edit,
)
from taskharbor.schedules.declare import declared_change
from taskharbor.schedules.plan import looks_at, plan, stored
from taskharbor.schedules.rule import checked_rule
from taskharbor.store.access import run_on_this_thread
from taskharbor.testing.clock import START
from tests.lanes import figure
from tests.schedules.watch import Watch, slots
from tests.simulation.journal import Journal
from tests.simulation.plan import make_plan

EXAMPLES = figure(test=150, full=1_500)


def options(**more: Any) -> st.SearchStrategy[dict[str, Any]]:
    timing = st.one_of(
        st.sampled_from([1, 1.5, 7, 60, 3600]).map(lambda every: {"every": every}),
        st.sampled_from(["* * * * *", "*/5 * * * *"]).map(lambda cron: {"cron": cron}),
    )
    others = st.fixed_dictionaries(
        {"catch_up": st.sampled_from(["latest", "none", "all"]), "overlap": st.sampled_from(["skip", "allow"])},
        optional={
            "start_at": st.integers(-100, 300).map(lambda seconds: START + timedelta(seconds=seconds)),
            "end_at": st.integers(400, 2000).map(lambda seconds: START + timedelta(seconds=seconds)),
            "jitter": st.sampled_from([0, 0.5]),
        },
    )
    return st.tuples(timing, others).map(lambda both: {**both[0], **both[1]})


ACTIONS = st.one_of(
    st.just(("look", False)),
    st.just(("look", False)),
    st.just(("look", True)),
    st.just(("pause", None)),
    st.just(("resume", None)),
    st.just(("reset", None)),
    st.just(("run", None)),
    options().map(lambda given: ("declare", given)),
    st.sampled_from([{"every": 5}, {"cron": "* * * * *"}, {"jitter": 0.1}, {"overlap": "allow"}, {"end_at": None}]).map(
        lambda given: ("edit", given)
    ),
)
STEPS = st.lists(
    st.tuples(st.one_of(st.integers(-200, 30), st.floats(0, 3), st.integers(0, 4000)), ACTIONS), min_size=1, max_size=25
)


class NoJobs:
    """A store that knows no job: the test says what runs."""

    async def inspect(self, id: str, now: datetime) -> Any:
        raise JobNotFound(id)


def given_as(given_options: dict[str, Any]) -> Any:
    definition = Definition(type="t", queue="q", rule=checked_rule(**given_options))
    return declaration("s", definition, b"{}")


def changed(schedule: Schedule, what: str, how: Any, now: datetime, number: int) -> Schedule:
    if what == "edit":
        try:
            return called(with_edit(schedule, how, now), f"{number}")
        except ValueError:  # it does not fit the rule
            return schedule
    does: dict[str, Any] = {
        "pause": lambda: paused(schedule),
        "resume": lambda: resumed(schedule, now),
        "reset": lambda: without_edit(schedule, now),
        "run": lambda: ran(schedule, f"run {number}"),
    }
    return called(does[what](), f"{number}")


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(options(), STEPS)
def test_each_slot_is_decided_once(first: dict[str, Any], steps: list[Any]) -> None:
    journal = Journal(make_plan(0), lambda: 0.0)
    watch, store, now = Watch(journal, code_goes_back=True), NoJobs(), START
    schedule = created(given_as(first), now, declared=True)
    row = stored("s", schedule)
    latest = START
    for number, (seconds, (what, how)) in enumerate(steps):
        now = max(START, now + timedelta(milliseconds=round(seconds * 1000)))
        latest = max(latest, now)
        change = None
        if what == "declare":
            differs = declared_change(given_as(how), row, now)
            change = None if differs is None else differs.change
        elif what != "look":
            after = changed(schedule, what, how, now, number)
            if after is not schedule:
                change = ScheduleChange(name="s", expect=row.revision, to=stored("s", after))
        elif row.next_at is not None and row.next_at <= now:
            change = looked(row, schedule, now, busy=how)
        elif (righted := put_right(schedule, now)) is not None:
            change = ScheduleChange(name="s", expect=row.revision, to=stored("s", righted))
        if change is None:
            continue
        run_on_this_thread(watch.changed, store, row, change, now)
        assert change.to is not None
        row, schedule = change.to, read_body(change.to.body)
        check_next(row, schedule)
    assert journal.problems == []


def looked(row: StoredSchedule, schedule: Schedule, now: datetime, *, busy: bool) -> ScheduleChange:
    running = looks_at(schedule) if busy else ()
    planned = plan(row, schedule, now, running=running)
    again = plan(row, schedule, now, running=running)
    assert [job.id for job in planned.jobs] == [job.id for job in again.jobs]  # for every worker the same
    assert planned.change.to is not None
    assert len({job.id for job in planned.jobs}) == len(planned.jobs)
    assert all(slot_of(job.metadata) == slot for job, slot in zip(planned.jobs, planned.fired, strict=True))
    if running:
        assert not planned.jobs
    if schedule.rule.catch_up == "latest" and planned.jobs:
        assert planned.fired[0] == slots(schedule, schedule.body.reached, now)[-1]
    if schedule.rule.catch_up == "none" and planned.jobs:
        assert now - planned.fired[0] <= timedelta(minutes=1)
    return planned.change


def check_next(row: StoredSchedule, schedule: Schedule) -> None:
    """The row is due at the first slot that is not decided, or never."""
    if schedule.body.paused:
        assert row.next_at is None
        return
    coming = slots(schedule, schedule.body.reached, schedule.body.reached + timedelta(hours=2))
    assert row.next_at == (coming[0] if coming else row.next_at)
    if row.next_at is not None:
        assert row.next_at > schedule.body.reached
