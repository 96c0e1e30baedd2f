"""Chords worked off by processes that are killed at random, on every durable store: one finalizer each.

What a process held when it was killed is given back by `release`, as its supervisor would do.
"""

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests import lanes
from tests.flow.random_kill_worker import MEMBERS, Work
from tests.flow.stores import DURABLE, STORES, MakeHarbor
from tests.flow.worker_processes import WORKERS, crew, store

CHORDS = lanes.figure(30, 200)
KILLS = lanes.figure(4, 15)


@pytest.mark.left_to("full", except_for=lanes.Chosen("postgresql"))
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", DURABLE)
def test_chords_under_random_kills(name: str, tmp_path: Path, harbor_on: MakeHarbor) -> None:
    dsn = STORES[name](tmp_path)
    assert dsn is not None, f"{name} cannot run here"
    chances, journal = random.Random(lanes.seed()), tmp_path / "journal"
    harbor = harbor_on(dsn)
    work = Work(harbor, str(journal))
    flows: list[Any] = [work.chord(n) for n in range(CHORDS)]
    handles = [flow.enqueue() for flow in flows]
    jobs = CHORDS * (MEMBERS + 1)

    def done() -> int:
        found: int = store(harbor, lambda d, now: d.counts(now)).get("default", {}).get("done", 0)
        return found

    with crew("tests.flow.random_kill_worker", dsn, journal) as workers:
        for turn in range(KILLS):
            while done() < jobs * (turn + chances.random()) / (KILLS + 1):
                workers.give_back(harbor)
            workers.kill(workers.busy() if chances.random() < 0.7 else chances.randrange(WORKERS))
        while done() < jobs:
            workers.give_back(harbor)
    assert {harbor.flow(handle.id).status for handle in handles} == {"succeeded"}
    assert harbor.flow(handles[-1].id).result(60) == sum((CHORDS - 1) * 100 + i for i in range(MEMBERS))
    look_at(journal.read_text().splitlines(), set(workers.killed))


def look_at(lines: list[str], killed: set[int]) -> None:
    """Every job was executed to its end once; whatever began before that was in a process that was killed."""
    began: dict[str, list[int]] = defaultdict(list)
    waiting: dict[str, set[str]] = {str(n): {str(i) for i in range(MEMBERS)} for n in range(CHORDS)}
    for line in lines:
        kind, n, i, pid = line.split()
        began[f"{kind} {n} {i}"].append(int(pid))
        if kind == "member":
            waiting[n].discard(i)
        else:
            assert not waiting[n], f"the finalizer of {n} ran before {len(waiting[n])} of its members"
    assert len(began) == CHORDS * (MEMBERS + 1)
    assert len([what for what in began if what.startswith("last")]) == CHORDS
    again = {what: pids for what, pids in began.items() if not killed.issuperset(pids[:-1])}
    assert not again, f"executed again without a kill: {again}"
    if lanes.run() != "test":
        assert any(len(pids) > 1 for pids in began.values()), "no kill met a job that ran"
