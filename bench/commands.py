"""`python -m bench.commands [DSN …]`: how long short commands take, from the shell's point of view.

On an SQLite file of its own, and on every store that is named, which must be an empty one for trying. Ends with status
1 if the median of a command misses its aim: 0.3 s on SQLite, 0.6 s with a server. The processor's time stands beside
it: on a machine that is busy with other things that one says more.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from bench.layout import machine

ROUNDS = 11
AIMS = {"sqlite": 0.3}
WITH_A_SERVER = 0.6
COMMANDS = ("enqueue --job echo", "list", "inspect {id}", "explain {id}", "queue list", "dlq list", "stats")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser("python -m bench.commands", description="How long short commands take.")
    parser.add_argument("dsn", nargs="*", help="an empty store for trying, beside an SQLite file that is made here")
    addresses: list[str] = parser.parse_args(arguments).dsn
    if wrong := [each for each in addresses if "://" not in each]:
        parser.error(f"expected DSNs such as redis://localhost:6379/9, got {', '.join(wrong)}")
    missed = 0
    print(machine())
    with tempfile.TemporaryDirectory(prefix="taskharbor-bench-") as folder:
        for dsn in (f"sqlite:///{folder}/jobs.db", *addresses):
            scheme = dsn.partition(":")[0]
            aim = AIMS.get(scheme, WITH_A_SERVER)
            id = _run(dsn, "enqueue --job echo").stdout.strip()
            for command in COMMANDS:
                spent = _spent()
                took = sorted(_seconds(dsn, command.format(id=id)) for _ in range(ROUNDS))
                middle, spent = statistics.median(took), (_spent() - spent) / ROUNDS
                missed += middle > aim
                told = f"median {middle:.3f} s, {took[0]:.3f} – {took[-1]:.3f}, processor {spent:.2f} s, aim {aim:g} s"
                print(f"{scheme:<11} {command.partition(' {')[0]:<20} {told}{'  MISSED' if middle > aim else ''}")
    return 1 if missed else 0


def _seconds(dsn: str, command: str) -> float:
    began = time.perf_counter()
    _run(dsn, command)
    return time.perf_counter() - began


def _spent() -> float:
    """Seconds of a processor that commands have used so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(dsn: str, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "taskharbor", *command.split()],
        env={**os.environ, "TASKHARBOR_DSN": dsn},
        capture_output=True,
        text=True,
        check=True,
    )


if __name__ == "__main__":
    sys.exit(main())
