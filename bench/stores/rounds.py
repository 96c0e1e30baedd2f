"""Rounds: every row once in each, so that what disturbs the machine meets them all; each in a process of its own.

A peer that cannot be measured (it is not installed, or its sample fails) is left out from then on, and named. Our own
samples and the hand-written loops must not fail.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict

import msgspec

from bench.meter import Order
from bench.stores import environments
from bench.stores.places import Place, Places
from bench.stores.plan import Row, Sizes

LIMIT = 120.0  # seconds: longer than any sample takes
FILLING = 1_200.0  # seconds: longer than it takes to store a backlog


class Sample(msgspec.Struct, frozen=True):
    """`wall`, `cpu` (of the sample's process) and `server` are seconds for all jobs together; `latencies`, for one."""

    jobs: int
    wall: float = 0.0
    cpu: float = 0.0
    server: float = 0.0
    latencies: tuple[float, ...] = ()


class Failed(RuntimeError):
    """A sample ended without a figure."""


class Run(msgspec.Struct):
    """What was measured, by the names of rows, and what was not, by the names of peers, with the reason."""

    samples: dict[str, list[Sample]] = {}
    left_out: dict[str, str] = {}


def run(rows: Sequence[Row], sizes: Sizes, places: Places, tell: Callable[[str], None]) -> Run:
    """Measure these rows in turn; `tell` gets a line for each step."""
    made = Run({}, {})
    for row in rows:
        if row.subject.peer and not environments.ready(row.subject.peer):
            made.left_out[row.subject.peer] = "it is not installed; `make bench` does that"
    kept: dict[str, Place] = {}
    try:
        for number in range(sizes.rounds):
            for row in rows:
                if row.subject.peer in made.left_out:
                    continue
                tell(f"round {number + 1} of {sizes.rounds}: {row.name}")
                try:
                    sample = _measured(row, sizes, places, kept)
                except Failed as error:
                    if not row.subject.peer:
                        raise
                    made.left_out[row.subject.peer] = str(error).strip().splitlines()[-1]
                    continue
                made.samples.setdefault(row.name, []).append(sample)
    finally:
        for place in kept.values():
            place.close()
    for row in rows:  # a peer that failed in a later round has fewer samples than the rest
        if row.subject.peer in made.left_out:
            made.samples.pop(row.name, None)
    return made


def _measured(row: Row, sizes: Sizes, places: Places, kept: dict[str, Place]) -> Sample:
    group = getattr(sizes, row.group) if row.group else 0
    if not row.waiting:
        place = places.new()
        try:
            return sample(row, row.mode, place, sizes.of(row), group)
        finally:
            place.close()
    if row.name not in kept:
        kept[row.name] = place = places.new()
        mode = "enqueue-many" if row.subject.many else "enqueue-one"
        sample(row, mode, place, getattr(sizes, row.waiting), limit=FILLING)
        places.tidy(place)
    return sample(row, row.mode, kept[row.name], sizes.of(row))


def sample(row: Row, mode: str, place: Place, jobs: int, group: int = 0, limit: float = LIMIT) -> Sample:
    """One sample, in a process of its own."""
    subject = row.subject
    order = Order(subject.address.format(place.address), jobs, group, place.server, row.relaxed, row.width)
    command = [*environments.command(subject.module, subject.peer), mode, msgspec.json.encode(asdict(order)).decode()]
    # A session of its own: what it started, such as an idle worker, ends with it.
    process = subprocess.Popen(
        command,
        cwd=environments.ROOT,
        env=environments.variables(subject.peer),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        said, complained = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGABRT)  # it says where it was
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        _end(process)  # what it started holds its pipes
        said, complained = b"", process.communicate()[1] + f"no answer within {limit:g} seconds".encode()
    finally:
        _end(process)
    if process.returncode != 0 or not said.strip():
        text = complained.decode(errors="replace")[-4000:]
        raise Failed(f"{row.name} {mode} ended with status {process.returncode}:\n{text}")
    return msgspec.json.decode(said.splitlines()[-1], type=Sample)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all of its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
