"""Three workers as real processes, each started again when it was killed. What they are is a module of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from taskharbor import Harbor
from tests.flow.stores import call_store

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 3


class Crew:
    """`python -m MODULE DSN JOURNAL`, three times. Each says its name first, and works on until it is killed."""

    def __init__(self, module: str, dsn: str, journal: Path) -> None:
        self.journal = journal
        self.command = [sys.executable, "-m", module, dsn, str(journal)]
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

    def busy(self) -> int:
        """The place of the worker that began a job last: a line of the journal ends with its process."""
        pids = [int(line.split()[-1]) for line in self.journal.read_text().splitlines()]
        places = {process.pid: place for place, process in enumerate(self.alive)}
        return next((places[pid] for pid in reversed(pids) if pid in places), 0)

    def give_back(self, harbor: Harbor) -> None:
        """Again and again: what a killed process had sent may be done after it was dead."""
        for name in self.killed.values():
            store(harbor, lambda d, now, name=name: d.release(name, now))

    def end(self) -> None:
        for process in self.alive:
            process.kill()
            process.communicate()


@contextmanager
def crew(module: str, dsn: str, journal: Path) -> Iterator[Crew]:
    made = Crew(module, dsn, journal)
    try:
        yield made
    finally:
        made.end()


def store(harbor: Harbor, call: Any) -> Any:
    """A call of the driver with the store's time."""
    return call_store(harbor.client, lambda d: call(d, harbor.clock.now()))
