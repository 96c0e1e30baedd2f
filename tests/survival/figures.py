"""The figures of a row, and how a run writes them down for the table."""

import functools
import json
import os
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from tests import lanes
from tests.survival.checker import Verdict


@dataclass
class Figures:
    """What happened in one row. `recovery` is in seconds, None where nothing had to recover. A row that counts other
    things than jobs has none, and says in its `note` what."""

    jobs: int
    faults: int
    what: str
    """The faults in words, or what was done where there are none."""
    executions: int = 0
    lost: int = 0
    duplicates: int = 0
    unexplained: int = 0
    recovery: float | None = None
    note: str = ""


def of_verdict(verdict: Verdict, faults: int, what: str, note: str = "") -> Figures:
    return Figures(
        jobs=verdict.jobs,
        faults=faults,
        what=what,
        executions=verdict.executions,
        lost=verdict.lost,
        duplicates=verdict.duplicates,
        unexplained=verdict.unexplained,
        recovery=verdict.recovery,
        note=note,
    )


@functools.cache
def commit() -> str:
    command = ["git", "-C", str(lanes.ROOT), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def record(scenario: str, store: str, figures: Figures) -> None:
    """Write down the figures of a row, where a run collects them (TASKHARBOR_ROWS names the folder)."""
    folder = os.environ.get("TASKHARBOR_ROWS")
    if folder:
        found = {"scenario": scenario, "store": store, "seed": lanes.seed(), "commit": commit(), **asdict(figures)}
        Path(folder, f"{scenario}@{store}.json").write_text(json.dumps(found), encoding="utf-8")
