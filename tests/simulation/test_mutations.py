"""Each deliberate mistake of mutations.py turns the simulation red within a few hundred seeds, most within ten."""

import pytest

from tests.simulation.mutations import MUTATIONS
from tests.simulation.plan import make_plan
from tests.simulation.run import play

ENOUGH = 400


@pytest.mark.rotates(3)
@pytest.mark.parametrize("name", MUTATIONS)
def test_the_simulation_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    for seed in range(ENOUGH):
        journal = play(make_plan(seed))
        if journal.problems:
            print(f"{name}: seed {seed}: {journal.problems[0].splitlines()[0]}")
            return
    pytest.fail(f"{ENOUGH} seeds did not notice that {name.replace('_', ' ')}")
