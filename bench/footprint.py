"""`python -m bench.footprint`: what importing the package costs, and the memory of an idle worker process.

Time is the processor's, user and system, of a new interpreter that imports the package, less that of one that imports
nothing. Memory is measured when a worker with its defaults has started and has nothing to do: resident, its
share of what others use too (Pss), and what is its own alone (USS). Stores that need a server get a test server.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.guard.callgrind import STORES
from bench.layout import machine

ROUNDS = 15
SPENT = """
import resource, sys
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, len(sys.modules))
"""
IMPORTS = ("", "import msgspec", "import taskharbor", "from taskharbor import Client, Worker")
IDLE = """
import asyncio, sys
from taskharbor import Worker

async def noop() -> None: ...

async def main() -> None:
    worker = Worker(sys.argv[1])
    worker.register("noop", noop)
    running = asyncio.create_task(worker.arun())
    await asyncio.sleep(2)
    print(open("/proc/self/smaps_rollup").read(), flush=True)
    worker.stop()
    await running

asyncio.run(main())
"""


def main() -> int:
    """Print both; returns the exit status."""
    print(machine())
    print(f"importing, median of {ROUNDS}: milliseconds of the processor, modules loaded")
    nothing = 0.0
    for statement in IMPORTS:
        spent, modules = _imported(statement)
        nothing = nothing or spent
        milliseconds = 1000 * (spent - nothing if statement else spent)
        print(f"  {statement or 'an interpreter alone':<40} {milliseconds:7.1f} ms {modules:5}")
    print("an idle worker: KiB resident, its share (Pss), its own alone (USS)")
    for store in STORES:
        with STORES[store]() as dsn:
            print(f"  {store:<10} {'  '.join(f'{number:>7,}' for number in _idle(dsn))}")
    return 0


def _imported(statement: str) -> tuple[float, int]:
    """Seconds of the processor, and how many modules are loaded."""
    outputs = [_run("-c", f"{statement}\n{SPENT}").split() for _ in range(ROUNDS)]
    return statistics.median(float(spent) for spent, _ in outputs), int(outputs[0][1])


def _idle(dsn: str) -> tuple[int, ...]:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "idle.py")
        program.write_text(IDLE, encoding="utf-8")
        report = _run(str(program), dsn)
    sizes = {name: int(size) for name, size in re.findall(r"^(\w+): +(\d+) kB$", report, re.MULTILINE)}
    return sizes["Rss"], sizes["Pss"], sizes["Private_Clean"] + sizes["Private_Dirty"]


def _run(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
