"""Five hundred seeds of the real client and worker on virtual time; twenty thousand in `make full`."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lanes import ROOT, figure, seed
from tests.simulation.kept_seeds import KEPT
from tests.simulation.plan import FAULTS, make_plan
from tests.simulation.run import digest, play, report, shrink, trace
from tests.simulation.sometimes import RARELY, SOMETIMES

SEEDS = figure(test=120, full=2_000)
CHUNKS = 20


def play_all(seeds: list[int]) -> Counter[str]:
    """Play seeds; the first that fails fails the test, with the smallest plan that shows it."""
    happened: Counter[str] = Counter()
    for number in seeds:
        journal = play(make_plan(number))
        if journal.problems:
            pytest.fail(f"seed {number}: {journal.problems[0]}\n{report(number)}", pytrace=False)
        happened.update(journal.happened)
    return happened


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "simulation"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_seeds(chunk: int, shared: Path) -> None:
    """Whichever chunk is the last also sees whether everything happened that should have."""
    happened = play_all(list(range(seed() + chunk, seed() + SEEDS, CHUNKS)))
    mine = shared / f"{chunk}.json"
    mine.with_suffix(".part").write_text(json.dumps(happened), encoding="utf-8")
    mine.with_suffix(".part").rename(mine)
    written = list(shared.glob("*.json"))
    if len(written) == CHUNKS:
        total: Counter[str] = Counter()
        for file in written:
            total.update(json.loads(file.read_text(encoding="utf-8")))
        never = [what for what in (*SOMETIMES, *(RARELY if SEEDS >= 1_000 else ())) if not total[what]]
        assert not never, f"in {SEEDS} seeds this never happened: {', '.join(never)}"


@pytest.mark.parametrize("kept", KEPT)
def test_kept_seeds(kept: int) -> None:
    play_all([kept])


def test_a_seed_is_the_same_run_each_time() -> None:
    for number in range(10):
        assert trace(play(make_plan(number))) == trace(play(make_plan(number)))


@pytest.mark.left_to("full")
def test_the_hash_seed_does_not_matter() -> None:
    code = "from tests.simulation.run import digest; print(digest(range(40, 60)))"
    told = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    ]
    assert told[0] == told[1] == digest(range(40, 60))


def test_without_faults_each_job_is_executed_as_often_as_it_says() -> None:
    """Nothing is done twice when nothing goes wrong."""
    calm = [plan for plan in map(make_plan, range(400)) if not plan.faults]
    assert len(calm) > 10
    for plan in calm:
        journal = play(plan)
        assert not journal.problems, journal.problems
        assert not journal.happened["takeover"]


def test_no_job_dies_as_crashed_while_every_process_lives() -> None:
    """Whatever calls fail, and above all renewals: the workers live, and say so."""
    happened: Counter[str] = Counter()
    for plan in map(make_plan, range(30, 60)):
        if not any(spec.kind == "poison" for spec in plan.specs.values()):
            faults = ("renewals", "outage", "fail")
            journal = play(replace(plan, faults=faults, trouble=4.0, active=40.0, own_clock=False, specs={}))
            assert not journal.problems, journal.problems[0]
            happened.update(journal.happened)
    assert happened["a lost lease that its worker lived to tell"] > 50


def test_every_fault_is_somewhere_in_the_plans() -> None:
    plans = [make_plan(number) for number in range(200)]
    assert {fault for plan in plans for fault in plan.faults} == set(FAULTS)


def test_a_failure_is_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a handler that is never acked, the smallest plan has one job and no fault."""
    from tests.simulation.journal import Journal

    monkeypatch.setattr(Journal, "_done", lambda self, known, outcome: self.wrong("done is not liked today"))
    plan = next(plan for plan in map(make_plan, range(100)) if len(plan.batches) > 5 and len(plan.faults) > 3)
    smaller, journal = shrink(plan)
    assert journal.problems
    assert (len(smaller.batches), smaller.faults, len(smaller.workers)) == (1, (), 1)
