"""`make chaos`: run every row of the table at full size, side by side, and write docs/reliability.md and its JSON.

    python -m tests.survival [--seed N] [--row zombie-redis …] [--jobs N] [--resume] [--beside TEXT]

Each row is a test in a process of its own, so that what it measures is not disturbed by the others' event loops. A row
that fails prints the one command that repeats it. What each row found is kept in .chaos/SEED; `--resume` goes on there
with the rows that are missing. With `--row` nothing is written: that is for repeating.
"""

import argparse
import datetime
import json
import os
import platform
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.servers import postgres, redis
from tests.survival import table
from tests.survival.registry import Row, load
from tests.survival.scenarios import SCENARIOS
from tests.survival.stores import TITLES

ROOT = Path(__file__).resolve().parents[2]
JOBS = 3


class Runner:
    """Runs rows in `jobs` threads, the longest first."""

    def __init__(self, rows: list[Row], seed: int, folder: Path, jobs: int) -> None:
        self.waiting = sorted(rows, key=lambda row: -row.seconds)
        self.seed, self.folder, self.jobs = seed, folder, jobs
        self.failed: list[Row] = []
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._number, self._total = 0, len(rows)

    def run(self) -> None:
        threads = [threading.Thread(target=self._serve) for _ in range(self.jobs)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:  # which reaches this process only
            self.waiting.clear()
            for process in list(self._running):
                process.terminate()
            raise

    def _serve(self) -> None:
        while True:
            with self._lock:
                if not self.waiting:
                    return
                row = self.waiting.pop(0)
            self._one(row)

    def _one(self, row: Row) -> None:
        name = "test_row_of_another_lane" if row.elsewhere else "test_row"
        node = f"tests/survival/test_rows.py::{name}[{row.scenario}-{row.store}]"
        environment = {
            **os.environ,
            "TASKHARBOR_LANE": "chaos",
            "TASKHARBOR_SEED": str(self.seed),
            "TASKHARBOR_ROWS": str(self.folder),
        }
        log = self.folder / f"{row.scenario}@{row.store}.log"
        begin = time.monotonic()
        with open(log, "wb") as out:
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-n",
                "0",
                "-p",
                "no:cacheprovider",
                "--timeout=3600",
                node,
            ]
            # In a session of its own: on a busy machine Linux shares its cores among sessions.
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=out, stderr=out, start_new_session=True
            )
            self._running.add(process)
            code = process.wait()
            self._running.discard(process)
        took = time.monotonic() - begin
        with self._lock:
            self._number += 1
            word = "ok" if code == 0 else "FAILED"
            print(
                f"chaos: {self._number:3}/{self._total}  {word:6} {row.scenario}-{row.store}, {took:.0f} s", flush=True
            )
            if code:
                self.failed.append(row)
                print(log.read_text(errors="replace")[-6000:], file=sys.stderr)
                print(f"chaos: again: {again(row, self.seed)}", file=sys.stderr, flush=True)


def again(row: Row, seed: int) -> str:
    return f"make chaos ROW={row.scenario}-{row.store} SEED={seed}"


def age(commit: str) -> int:
    """How many commits lead to this one."""
    command = ["git", "-C", str(ROOT), "rev-list", "--count", commit]
    return int(subprocess.run(command, capture_output=True, text=True, check=False).stdout or 0)


def described(seed: int, seconds: float, rows: list[dict[str, Any]], beside: str) -> dict[str, Any]:
    """Everything that a reader needs to judge the figures, or to repeat them."""
    memory = int(next(line for line in Path("/proc/meminfo").read_text().splitlines()).split()[1]) / 1024**2
    machine = f"A machine with {os.cpu_count()} cores and {memory:.0f} GB of memory ({platform.machine()}, Linux)."
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seed": seed,
        "command": f"make chaos SEED={seed}",
        "commits": sorted({row["commit"] for row in rows}, key=age),
        "minutes": round(seconds / 60),
        "machine": f"{machine} {beside}".strip(),
        "versions": {
            "TaskHarbor": version("taskharbor"),
            "Python": platform.python_version(),
            "PostgreSQL": _version(postgres.binary("postgres")),
            "Redis": _version(redis.binary("redis7")),
        },
        "rows": rows,
    }


def _version(program: str) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"\d+(\.\d+)+", said)
    return found.group() if found else "unknown"


def kept(folder: Path) -> list[dict[str, Any]]:
    """What the rows of this seed have found so far, in the order of the table."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("*@*.json")]
    order, stores = {scenario.key: place for place, scenario in enumerate(SCENARIOS)}, list(TITLES)
    return sorted(found, key=lambda each: (order[each["scenario"]], stores.index(each["store"])))


def time_spent(folder: Path, seconds: float) -> float:
    """Add to the time that the runs of this seed took."""
    file = folder / "seconds"
    total = seconds + (float(file.read_text()) if file.exists() else 0.0)
    file.write_text(str(total))
    return total


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.survival")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--row", action="append", default=[], metavar="SCENARIO-STORE")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--resume", action="store_true", help="only the rows that this seed lacks")
    parser.add_argument("--beside", default="", help="a sentence about other work on the machine, for the document")
    options = parser.parse_args()
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    folder = ROOT / ".chaos" / str(seed)
    if not options.resume and not options.row:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    done = {(each["scenario"], each["store"]) for each in kept(folder)} if options.resume else set()
    wanted = [row for row in load().values() if not options.row or f"{row.scenario}-{row.store}" in options.row]
    if not wanted:
        names = ", ".join(f"{scenario}-{store}" for scenario, store in load())
        print(f"chaos: expected one of the rows, got {', '.join(options.row)}: {names}", file=sys.stderr)
        return 2
    rows = [row for row in wanted if (row.scenario, row.store) not in done]
    print(f"chaos: {len(rows)} rows, {options.jobs} at once, SEED={seed}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a kill, too, ends the rows
    begin = time.monotonic()
    runner = Runner(rows, seed, folder, options.jobs)
    runner.run()
    spent = time_spent(folder, time.monotonic() - begin)
    found = kept(folder)
    if options.row:
        print(json.dumps([each for each in found if f"{each['scenario']}-{each['store']}" in options.row], indent=1))
    elif not runner.failed:
        table.write(described(seed, spent, found, options.beside))
        print(f"make chaos: all rows green; wrote {table.PAGE.relative_to(ROOT)} and {table.DATA.relative_to(ROOT)}")
    for row in runner.failed:
        print(f"chaos: FAILED {row.scenario}-{row.store}. Again: {again(row, seed)}", file=sys.stderr)
    return 1 if runner.failed else 0


if __name__ == "__main__":
    sys.exit(main())
