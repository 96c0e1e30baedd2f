"""Each deliberate mistake of mutations.py turns the simulation red within a few hundred seeds, most within ten."""

import pytest

from tests import lanes
from tests.simulation.mutations import MUTATIONS
from tests.simulation.plan import make_plan
from tests.simulation.run import play

ENOUGH = 400


@pytest.mark.left_to(
    "full",
    except_for=lanes.Chosen(
        "a_stale_token_is_accepted",
        "leases_are_never_extended",
        "a_job_is_acked_before_its_handler_ends",
        "jobs_that_crash_are_tried_for_ever",
        "dependents_are_released_too_early",
        "a_repeated_enqueue_has_new_ids",
    ),
)
@pytest.mark.parametrize("name", MUTATIONS)
def test_the_simulation_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    for seed in range(ENOUGH):
        journal = play(make_plan(seed))
        if journal.problems:
            print(f"{name}: seed {seed}: {journal.problems[0].splitlines()[0]}")
            return
    pytest.fail(f"{ENOUGH} seeds did not notice that {name.replace('_', ' ')}")
