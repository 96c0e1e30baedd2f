"""Counts the instructions of `bench.guard.program` with callgrind, on a new, empty store of each kind.

Only the Python process runs under valgrind. The servers run as they are, and their work is not counted.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench.guard.program import ROUNDS, WAYS

TIMEOUT_S = 900.0
ADVICE = "valgrind is not installed. On Debian or Ubuntu: sudo apt-get install valgrind"


class Failed(Exception):
    """Nothing could be counted; the text says why."""


def instructions(store: str) -> dict[str, int]:
    """Instructions of one job, by the way it goes."""
    with STORES[store]() as dsn, tempfile.TemporaryDirectory(prefix="taskharbor-guard-") as folder:
        _run(dsn, Path(folder, "part"))
        return _a_job(_sections(Path(folder)))


def _run(dsn: str, output: Path) -> None:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise Failed(ADVICE)
    command = [valgrind, "--tool=callgrind", "--dump-before=getpgid", f"--callgrind-out-file={output}"]
    # Strings hash alike in each run, and so do the tables that hold them.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(
        [*command, sys.executable, "-m", "bench.guard.program", dsn],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if ended.returncode:
        raise Failed(f"the program under valgrind ended with status {ended.returncode}:\n{ended.stderr[-3000:]}")


def _sections(folder: Path) -> list[int]:
    """Instructions of each section. The odd parts are what lies between two sections."""
    parts = {int(path.suffix[1:]): path for path in folder.glob("part.*")}
    if len(parts) != (expected := 4 * ROUNDS * len(WAYS)):
        raise Failed(f"expected {expected} parts from callgrind, got {len(parts)}")
    return [_total(parts[number]) for number in range(2, len(parts) + 1, 2)]


def _total(path: Path) -> int:
    total = re.search(r"^totals: (\d+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    if total is None:
        raise Failed(f"{path.name}: callgrind wrote no total")
    return int(total[1])


def _a_job(sections: list[int]) -> dict[str, int]:
    """What a long section costs beyond a short one, for each of the jobs that it has more."""
    cost = {}
    for place, (way, (few, many)) in enumerate(WAYS.items()):
        rounds = sections[2 * ROUNDS * place : 2 * ROUNDS * (place + 1)]
        cost[way] = round((min(rounds[1::2]) - min(rounds[::2])) / (many - few))
    return cost


# The stores


@contextmanager
def _memory() -> Iterator[str]:
    yield "memory://guard"


@contextmanager
def _sqlite() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="taskharbor-guard-") as folder:
        yield f"sqlite:///{folder}/jobs.db"


@contextmanager
def _postgres() -> Iterator[str]:
    from tests.servers.postgres import Server

    server = Server()
    try:
        yield server.address(server.database())
    finally:
        server.stop()


@contextmanager
def _redis() -> Iterator[str]:
    from tests.servers.redis import Server

    server = Server()
    try:
        yield server.url
    finally:
        server.stop()


STORES: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgres": _postgres,
    "redis": _redis,
}
