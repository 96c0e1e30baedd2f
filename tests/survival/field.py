"""A field: one store, the processes that use it, their journal, and the faults that a row inflicts on them."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from taskharbor.drivers import open_driver
from tests import lanes
from tests.supervisor.worker_run import exists, works_in
from tests.survival.checker import Fault, Stored, Verdict, check, describe
from tests.survival.journal import Note, Reader
from tests.survival.stores import Store

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = float(lanes.figure(test=120, chaos=600))  # seconds after which a row gives up; never a figure


class Field:
    """`lease` (seconds) is that of all workers which are started here."""

    def __init__(self, store: Store, folder: Path, lease: float = 3.0, **worker: Any) -> None:
        self.store, self.folder, self.lease = store, folder, lease
        self.worker_options = worker
        self.reader = Reader(folder)
        self.faults: list[Fault] = []
        self.pids: set[int] = set()
        self.workers: list[int] = []
        self.programs: list[subprocess.Popen[bytes]] = []
        self.chance = random.Random(lanes.seed())
        self._ready: set[int] = set()
        self._done: set[int] = set()
        self._nursery: subprocess.Popen[str] | None = None

    # Processes

    def spawn(self, role: str, **options: Any) -> int:
        if self._nursery is None:
            pipe = subprocess.PIPE
            self._nursery = subprocess.Popen(
                [sys.executable, "-m", "tests.survival.nursery"], cwd=ROOT, stdin=pipe, stdout=pipe, text=True
            )
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        spec = {"role": role, "dsn": self.store.dsn, "folder": str(self.folder), "seed": lanes.seed(), **options}
        self._nursery.stdin.write(json.dumps(spec) + "\n")
        self._nursery.stdin.flush()
        pid = int(self._nursery.stdout.readline())
        self.pids.add(pid)
        return pid

    def worker(self, **options: Any) -> int:
        pid = self.spawn("worker", lease=self.lease, **{**self.worker_options, **options})
        self.workers.append(pid)
        return pid

    def ready(self, *pids: int) -> None:
        """Until these have opened their store, or died before it."""
        self.until(lambda: all(pid in self._ready or not exists(pid) for pid in pids), "the processes started")

    def ended(self, *pids: int, patience: float = PATIENCE) -> None:
        self.until(lambda: not any(exists(pid) for pid in pids), "the processes ended", patience)

    def worker_run(self, *options: str) -> subprocess.Popen[bytes]:
        """`taskharbor worker run` with the same tasks."""
        with open(self.folder / "log", "ab") as log:
            program = subprocess.Popen(
                [sys.executable, "-m", "taskharbor", "worker", "run", "--dsn", self.store.dsn,
                 "--app", "tests.survival.app:harbor", *options],
                cwd=ROOT, env={**os.environ, "SURVIVAL_FOLDER": str(self.folder)},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.programs.append(program)
        return program

    # Faults

    def kill(self, pid: int) -> None:
        begin = time.monotonic()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        while exists(pid):
            time.sleep(0.001)
        self.hurt("SIGKILL", begin, begin, pid)

    def hurt(self, kind: str, begin: float, end: float, *pids: int) -> None:
        self.faults.append(Fault(kind, begin, end, frozenset(pids) if pids else None))

    @contextmanager
    def fault(self, kind: str, *pids: int) -> Iterator[None]:
        """Around what is done to the store, or to these processes."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.hurt(kind, begin, time.monotonic(), *pids)

    def deaths(self) -> None:
        """The processes that killed themselves at failpoints."""
        for note in self.reader.all():
            if note.word == "dying":
                self.hurt(f"SIGKILL at {note.data[0]}", note.time, note.time, note.pid)

    # Watching

    def look(self) -> list[Note]:
        fresh = list(self.reader.more())
        for note in fresh:
            if note.word == "ready":
                self._ready.add(note.pid)
            elif note.word == "end":
                self._done.add(note.data[0])
        return fresh

    def done(self) -> int:
        """How many numbers have been executed to their end."""
        self.look()
        return len(self._done)

    def goes_on(self, jobs: int) -> None:
        """Until one more has ended, or all of them."""
        before = self.done()
        self.until(lambda: self.done() > before or self.done() >= jobs, "work goes on")

    def ran(self, jobs: int, patience: float = PATIENCE) -> None:
        """Until this many numbers have been executed to their end."""
        self.until(lambda: self.done() >= jobs, f"{jobs} jobs ran", patience)

    def stop(self, *pids: int) -> None:
        """SIGTERM, and until they have ended."""
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        self.ended(*pids)

    def notes(self, word: str) -> list[Note]:
        self.look()
        return [note for note in self.reader.notes if note.word == word]

    def until(self, condition: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
        deadline = time.monotonic() + patience
        while not condition():
            self.look()
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {patience:.0f} s: {what}\n{self.log()}")
            time.sleep(0.01)

    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""

    # The end

    def stored(self) -> dict[str, Stored]:
        return asyncio.run(_stored(self.store.dsn))

    def settled(self, jobs: int | None = None, patience: float = PATIENCE) -> dict[str, Stored]:
        """Until nothing in the store is open (and `jobs` are there); what it holds then."""
        deadline = time.monotonic() + patience
        while True:
            counts = asyncio.run(_counts(self.store.dsn))
            ended = sum(number for state, number in counts.items() if state in ("done", "dlq", "cancelled"))
            if ended == sum(counts.values()) and (jobs is None or ended >= jobs):
                return self.stored()
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {patience:.0f} s: all jobs ended; {counts}\n{self.log()}")
            time.sleep(0.1)

    def verdict(self, stored: dict[str, Stored] | None = None, **given: Any) -> Verdict:
        """What the checker finds; any violation is an error."""
        found = check(self.reader.all(), self.faults, self.stored() if stored is None else stored, **given)
        if found.wrong:
            raise AssertionError(f"{len(found.wrong)} violations:\n{describe(found.wrong)}\n{self.log()}")
        return found

    def close(self) -> None:
        for pid in self.pids:
            with suppress(ProcessLookupError):
                if exists(pid):
                    os.kill(pid, signal.SIGCONT)
                    os.kill(pid, signal.SIGKILL)
        for program in self.programs:
            if program.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(program.pid, signal.SIGKILL)
            program.wait()
        for pid in {note.pid for note in self.reader.notes}:
            if exists(pid) and works_in(self.folder, pid):
                os.kill(pid, signal.SIGKILL)
        if self._nursery is not None:
            self._nursery.communicate()


@contextmanager
def field_on(store: Store, folder: Path, **options: Any) -> Iterator[Field]:
    made = Field(store, folder, **options)
    try:
        yield made
    finally:
        made.close()


async def _counts(dsn: str) -> dict[str, int]:
    driver = open_driver(dsn)
    await driver.open()
    try:
        total: dict[str, int] = {}
        for states in (await driver.counts(await driver.server_time())).values():
            for state, number in states.items():
                total[str(state)] = total.get(str(state), 0) + number
        return total
    finally:
        await driver.close()


async def _stored(dsn: str) -> dict[str, Stored]:
    driver = open_driver(dsn)
    await driver.open()
    try:
        now, found, cursor = await driver.server_time(), {}, None
        while True:
            page = await driver.list(now=now, cursor=cursor, limit=1000)
            for info in page.items:
                job = info.job
                found[job.id] = Stored(
                    str(info.state), job.attempts, job.lost, job.reason or "", job.last_error or "", job.max_attempts,
                    bool(job.payload), job.finished_at is not None,
                )  # fmt: skip
            cursor = page.cursor
            if cursor is None:
                return found
    finally:
        await driver.close()
