"""A job of 50 steps whose process is killed at random: each effect happens once, or again with a reason."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import lanes
from tests.servers import postgres, redis
from tests.worker.step_kills import STEPS

pytestmark = pytest.mark.lane("processes")


def address(store: str, folder: Path) -> str:
    if store == "redis":
        redis.shared().empty()
        return f"{redis.shared().url}?checks=0"
    return (
        postgres.shared().address(postgres.shared().store()) if store == "postgres" else f"sqlite:///{folder}/jobs.db"
    )


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("store", ["sqlite", "postgres", "redis"])
def test_an_effect_is_repeated_only_after_a_kill_before_its_memo(store: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    kills = lanes.figure(test=8, full=1_000)
    given = (address(store, tmp_path), str(journal), str(kills), str(lanes.seed()))
    program = [sys.executable, "-m", "tests.worker.step_kills", *given]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["killed"] == kills
    lines = [tuple(line.split()) for line in journal.read_text().splitlines()]
    last_of = {(job, execution): step for job, execution, step in lines}  # the last effect of each execution
    before: dict[tuple[str, str], str] = {}  # job and step → the execution of its last effect
    for job, execution, step in lines:
        earlier = before.get((job, step))
        # The only explanation: that execution ended between this effect and its memo, so it has no later effect.
        assert earlier is None or last_of[job, earlier] == step, f"{job}: {step} was done in {earlier} and {execution}"
        before[job, step] = execution
    for job, result in found["results"].items():
        assert result == [int(before[job, str(step)]) for step in range(STEPS)]  # the value of its last effect
    repeated = sum(Counter((job, step) for job, _, step in lines).values()) - len(before)
    assert len(before) == STEPS * len(found["results"])
    assert repeated <= kills
