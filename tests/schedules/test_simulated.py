"""Slots = jobs: on virtual time, with processes that die at every point, wrong clocks, two versions of the code."""

import subprocess
import sys
from collections import Counter

import pytest

from tests import lanes
from tests.lanes import ROOT, figure, seed
from tests.schedules.mutations import MUTATIONS
from tests.schedules.world import make_plan, play

SEEDS = figure(test=4, full=600)
CHUNKS = 6
ENOUGH = 200
SOMETIMES = (
    "fired",
    "missed",
    "skipped",
    "caught up",
    "new sequence",
    "clock stepped",
    "outage",
    "fault: lose",
    "killed by the world",
    "person: edit",
    "person: run",
)


KEPT = {329803132: "the clock of the only worker was stepped back ten times", 329802857: "the same, and it was killed"}


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_slot_is_decided_once(chunk: int) -> None:
    for number in range(seed() + chunk, seed() + SEEDS, CHUNKS):
        play_and_check(number)


@pytest.mark.parametrize("kept", KEPT)
def test_kept_seeds(kept: int) -> None:
    play_and_check(kept)


def play_and_check(number: int) -> None:
    plan = make_plan(number)
    journal = play(plan)
    if journal.problems:
        last = "\n".join(f"{when:9.3f} {who:16} {what}" for when, who, what in journal.events[-200:])
        pytest.fail(f"seed {number}: {journal.problems[0]}\n{plan.describe()}\n{plan.schedules}\n{last}", pytrace=False)


@pytest.mark.left_to("full")
def test_what_should_go_wrong_goes_wrong() -> None:
    happened: Counter[str] = Counter()
    for number in range(40):
        happened.update(play(make_plan(number)).happened)
        if all(happened[what] for what in SOMETIMES):
            return
    pytest.fail(f"this never happened: {[what for what in SOMETIMES if not happened[what]]}")


@pytest.mark.parametrize("name", MUTATIONS)
@pytest.mark.left_to("full", except_for=lanes.Chosen("the_row_is_not_compared"))
def test_the_simulation_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    for number in range(ENOUGH):
        journal = play(make_plan(number))
        if journal.problems:
            print(f"{name}: seed {number}: {journal.problems[0].splitlines()[0]}")
            return
    pytest.fail(f"{ENOUGH} seeds did not notice that {name.replace('_', ' ')}")


def test_a_seed_is_the_same_run_each_time() -> None:
    code = (
        "from tests.schedules.world import make_plan, play; import hashlib; "
        "print([hashlib.sha256(repr(play(make_plan(n)).events).encode()).hexdigest() for n in (1, 4)])"
    )
    command = [sys.executable, "-c", code]
    told = {
        subprocess.run(
            command, env={"PYTHONHASHSEED": each, "PATH": ""}, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        for each in ("1", "2")
    }
    assert len(told) == 1
