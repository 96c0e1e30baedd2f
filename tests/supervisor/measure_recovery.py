"""The figures of docs/operations.md: `python -m tests.supervisor.measure_recovery`.

How long after the SIGKILL of a worker process its job runs again; and that a handler which holds the interpreter for
20 s under a lease of 5 s runs once. On a quiet machine; the tests assert no time.
"""

import os
import signal
import statistics
import tempfile
import time
from pathlib import Path

from tests.servers import postgres
from tests.supervisor.worker_run import Yard, yard

ROUNDS = 7


def stores(folder: Path) -> dict[str, str]:
    server = postgres.shared()
    return {"SQLite": f"sqlite:///{folder}/jobs.db", "Postgres": server.address(server.database())}


def recovery(made: Yard, *options: str) -> list[float]:
    """Seconds from the kill to the first line of the next run."""
    made.start("--lease", "600", "--heartbeat", "200", "--max-lost", "1000", *options)
    taken = []
    for number in range(ROUNDS):
        [job] = made.enqueue("gate", name=f"go{number}")
        [line] = made.started(job)
        time.sleep(11)  # a process that dies again within ten seconds is started with a delay
        os.kill(line.pid, signal.SIGKILL)
        killed = time.monotonic()
        while len(made.starts(job)) < 2:
            time.sleep(0.002)
        taken.append(time.monotonic() - killed)
        made.open(f"go{number}")
        made.done(job)
    return taken


def blocked(made: Yard) -> int:
    """How often the job was started."""
    [job] = made.enqueue("hold", seconds=20)
    made.start("--lease", "5", "--processes", "2")
    made.done(job)
    return len(made.starts(job))


def main() -> None:
    for options in ("--processes 1", "--processes 2", "--processes 1 --no-spare"):
        for name in ("SQLite", "Postgres"):
            with tempfile.TemporaryDirectory() as folder, yard(stores(Path(folder))[name], Path(folder)) as made:
                taken = recovery(made, *options.split())
                print(
                    f"{name}, {options}: runs again after "
                    f"{statistics.median(taken):.2f} s (median of {ROUNDS}), {max(taken):.2f} s at most",
                    flush=True,
                )
    for name in ("SQLite", "Postgres"):
        with tempfile.TemporaryDirectory() as folder, yard(stores(Path(folder))[name], Path(folder)) as made:
            print(
                f"{name}: 20 s without the interpreter under a lease of 5 s: started {blocked(made)} times", flush=True
            )


if __name__ == "__main__":
    main()
