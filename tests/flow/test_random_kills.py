"""Chords worked off by processes that are killed at random, on every durable store: one finalizer each.

What a process held when it was killed is given back by `release`, as whoever saw it die would do.
"""

import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from taskharbor import Harbor
from tests import lanes
from tests.flow.doomed import MEMBERS, Work
from tests.flow.stores import DURABLE, NAMES, STORES, MakeHarbor

ROOT = Path(__file__).resolve().parents[2]
CHORDS = lanes.figure(30, 1000)
KILLS = lanes.figure(4, 60)
WORKERS = 3


class Crew:
    """Three workers, each started again when it was killed."""

    def __init__(self, dsn: str, journal: Path) -> None:
        self.command = [sys.executable, "-m", "tests.flow.doomed", dsn, str(journal)]
        self.alive = [self.spawn() for _ in range(WORKERS)]
        self.names = [self.name_of(process) for process in self.alive]
        self.killed: dict[int, str] = {}

    def spawn(self) -> "subprocess.Popen[str]":
        none = subprocess.DEVNULL
        return subprocess.Popen(self.command, cwd=ROOT, stdin=none, stdout=subprocess.PIPE, stderr=none, text=True)

    def name_of(self, process: "subprocess.Popen[str]") -> str:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert name, f"it ended with {process.wait()}"
        return name

    def kill(self, place: int) -> None:
        process = self.alive[place]
        process.kill()
        process.communicate()
        self.killed[process.pid] = self.names[place]
        self.alive[place] = self.spawn()
        self.names[place] = self.name_of(self.alive[place])

    def end(self) -> None:
        for process in self.alive:
            process.kill()
            process.communicate()


@contextmanager
def crew(dsn: str, journal: Path) -> Iterator[Crew]:
    made = Crew(dsn, journal)
    try:
        yield made
    finally:
        made.end()


def store(harbor: Harbor, call: Any) -> Any:
    """A call of the driver with the store's time."""
    return harbor.client.portal.call(lambda: harbor.client._steadily(lambda d: call(d, harbor.clock.now())), "test")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [name for name in DURABLE if name in NAMES])
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

    with crew(dsn, journal) as workers:
        for turn in range(KILLS):
            while done() < jobs * (turn + chances.random()) / (KILLS + 1):
                give_back(harbor, workers)
            workers.kill(busy(workers, journal) if chances.random() < 0.7 else chances.randrange(WORKERS))
        while done() < jobs:
            give_back(harbor, workers)
    assert {harbor.flow(handle.id).status for handle in handles} == {"succeeded"}
    assert harbor.flow(handles[-1].id).result(5) == sum((CHORDS - 1) * 100 + i for i in range(MEMBERS))
    look_at(journal.read_text().splitlines(), set(workers.killed))


def busy(workers: Crew, journal: Path) -> int:
    """The place of the worker that began a job last."""
    pids = [int(line.split()[-1]) for line in journal.read_text().splitlines()]
    places = {process.pid: place for place, process in enumerate(workers.alive)}
    return next((places[pid] for pid in reversed(pids) if pid in places), 0)


def give_back(harbor: Harbor, workers: Crew) -> None:
    """Again and again: what a killed process had sent may be done after it was dead."""
    for name in workers.killed.values():
        store(harbor, lambda d, now, name=name: d.release(name, now))


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
