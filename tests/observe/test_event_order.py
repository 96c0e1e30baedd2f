"""Under seeded faults, the events of a delivery follow one grammar: reserved, started, one end, right numbers."""

from collections import Counter, defaultdict
from itertools import pairwise
from typing import ClassVar

import pytest

from taskharbor.events import (
    Event,
    JobCancelled,
    JobDeadLettered,
    JobEnqueued,
    JobEvent,
    JobFailed,
    JobGivenBack,
    JobProgress,
    JobReserved,
    JobRetried,
    JobSnoozed,
    JobStarted,
    JobSucceeded,
    JobUnknown,
    LeaseLost,
    OutcomeRefused,
)
from tests.lanes import figure, seed
from tests.simulation import world
from tests.simulation.journal import Journal
from tests.simulation.plan import make_plan
from tests.simulation.run import play

ENDS = (
    JobSucceeded,
    JobRetried,
    JobDeadLettered,
    JobSnoozed,
    JobGivenBack,
    JobUnknown,
    JobCancelled,
    LeaseLost,
    OutcomeRefused,
)
Story = list[JobEvent]


class Listener(world.Listener):
    """Receives everything, and reports what the world wants to know."""

    stories: ClassVar[dict[tuple[str, int, str], Story]] = defaultdict(list)

    def wants(self, event_type: type[Event]) -> bool:
        return True

    def __call__(self, event: Event) -> None:
        if isinstance(event, JobEvent) and not isinstance(event, JobEnqueued | JobProgress):
            self.stories[(event.job.id, event.job.deliveries, event.worker)].append(event)
        super().__call__(event)


def objection(story: Story) -> str:
    """What is wrong with the events of one delivery; empty if nothing is."""
    kinds = [type(event) for event in story]
    ends = [index for index, kind in enumerate(kinds) if kind in ENDS]
    if kinds[0] is not JobReserved or kinds.count(JobReserved) != 1:
        return "it does not begin with one reserve"
    if any(kinds.count(kind) > 1 for kind in (JobStarted, JobFailed)):
        return "started or failed twice"
    if len(ends) > 1 or (ends and ends[0] != len(kinds) - 1):
        return "it does not end with its end"
    last = story[-1]
    if isinstance(last, JobRetried | JobDeadLettered):
        crashed = isinstance(last, JobDeadLettered) and last.reason.startswith("crashed")
        if crashed is (JobFailed in kinds):
            return "a failure without its event, or an event without a failure"
        if last.attempts != last.job.attempts + (not crashed):
            return f"attempts {last.attempts} after {last.job.attempts}"
    elif JobFailed in kinds and not isinstance(last, JobFailed | JobCancelled | OutcomeRefused):
        return "a failure that came to nothing"
    if isinstance(last, JobSucceeded | JobSnoozed) and JobStarted not in kinds:
        return "it ended without a start"
    return ""


def lives(story: Story, journal: Journal, id: str) -> list[Story]:
    """The events of one delivery. A job that an operator deleted, and that a producer sent again, has it once more."""
    label = str(journal.jobs[id]) if id in journal.jobs else id
    begins = [index for index, event in enumerate(story) if isinstance(event, JobReserved)]
    if len(begins) < 2 or not any(what == f"delete {label}: ok" for _, _, what in journal.events):
        return [story]
    return [story[first:after] for first, after in pairwise([*begins, len(story)])]


# A job that an operator deleted, and that a late duplicate of its enqueue brought back; one that failed when it was
# cancelled already.
KEPT = (329802745, 991468922)


def test_events_of_every_delivery_follow_the_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "Listener", Listener)
    happened: Counter[str] = Counter()
    for number in (*KEPT, *range(seed(), seed() + figure(test=30, full=300))):
        Listener.stories.clear()
        journal: Journal = play(make_plan(number))
        assert not journal.problems, f"seed {number}: {journal.problems[0]}"
        for (id, delivery, _), whole in Listener.stories.items():
            for story in lives(whole, journal, id):
                wrong = objection(story)
                names = [type(event).__name__ for event in story]
                assert not wrong, f"seed {number}, {id} delivery {delivery}: {wrong}: {names}"
                happened[names[-1]] += 1
    assert {"JobSucceeded", "JobRetried", "JobDeadLettered", "JobGivenBack", "LeaseLost"} <= happened.keys()
