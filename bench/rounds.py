"""Rounds: every subject once in each, so that what disturbs the machine meets them all; each in a process of its own.

A fresh process for each sample: none inherits another's heap, and a million jobs of one do not slow the collector of
the next.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bench.sample import Sample
from bench.subjects import BACKLOG, SUBJECTS

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 600  # seconds: longer than any sample takes

Samples = dict[str, list[Sample]]


class Sizes(msgspec.Struct, frozen=True):
    """How much is measured."""

    rounds: int = 15
    long_rounds: int = 3  # of what is measured beside a backlog: storing that takes longer than all else
    jobs: int = 50_000
    picks: int = 300  # jobs of the latency subject
    backlog: int = 1_000_000


FULL, QUICK = Sizes(), Sizes(rounds=5, jobs=20_000, picks=100, backlog=100_000)


def run(names: Sequence[str], sizes: Sizes, tell: Callable[[str], None]) -> Samples:
    """Measure these subjects in turn; `tell` gets a line for each step."""
    samples: Samples = {name: [] for name in names}
    for number in range(sizes.rounds):
        for name in names:
            if number >= sizes.long_rounds and SUBJECTS[name].section == BACKLOG:
                continue
            tell(f"round {number + 1} of {sizes.rounds}: {name}")
            samples[name].append(_in_a_process(name, sizes))
    return samples


def _in_a_process(name: str, sizes: Sizes) -> Sample:
    # A bare task is several times cheaper than a job: as many of them would be over before the processor is warm.
    jobs = {"latency": sizes.picks, "bare": 4 * sizes.jobs}.get(name, sizes.jobs)
    command = [sys.executable, "-m", "bench", "--sample", name, str(jobs), str(sizes.backlog)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=LIMIT)
    if done.returncode != 0:
        raise RuntimeError(f"{name} ended with status {done.returncode}:\n{done.stderr.decode(errors='replace')}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Sample)
