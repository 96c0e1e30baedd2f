"""`taskharbor worker run` as a real process, the store it works on, and ways to wait for what happens."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from taskharbor import Client, JobRequest
from taskharbor.drivers import Driver, open_driver
from taskharbor.model.job import JobInfo, WorkerInfo
from tests import lanes

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds after which a test gives up; never a figure
T = TypeVar("T")
STORES = ("sqlite", "postgres", "redis")


def on(*stores: str) -> pytest.MarkDecorator:
    """Run a test in the yard `there`, on these stores; in the larger runs on all."""
    return pytest.mark.parametrize("there", STORES if lanes.run() == "full" else stores, indirect=True)


def eventually(look: Callable[[], T], what: str = "") -> T:
    """What `look` answers, once that is something."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"it did not happen: {what or look}"
        time.sleep(0.05)


def works_in(folder: Path, pid: int) -> bool:
    """Whether a process has this folder in its environment: its number may be that of another program by now."""
    try:
        return str(folder).encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def exists(pid: int) -> bool:
    """Whether a process runs (one that ended and was not reaped does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def children_of(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout
    return [int(each) for each in found.split()]


class Line(NamedTuple):
    """One line of the journal."""

    word: str
    job: str
    pid: int
    fence: int


class Yard:
    """A store, a folder, and the programs that were started on them."""

    def __init__(self, dsn: str, folder: Path, app: str) -> None:
        self.dsn = dsn
        self.folder = folder
        self.app = app
        self.programs: list[subprocess.Popen[bytes]] = []
        self.client = Client(dsn)
        self._loop = asyncio.new_event_loop()
        self._driver: Driver | None = None

    def close(self) -> None:
        """End everything that was started here, however a test has ended."""
        self.client.close()
        if self._driver is not None:
            self._loop.run_until_complete(self._driver.close())
        self._loop.close()
        for program in self.programs:
            everybody = [program.pid, *self._below(program.pid)]
            for pid in everybody:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            program.wait()
        for line in self.journal():
            if exists(line.pid) and works_in(self.folder, line.pid):
                os.kill(line.pid, signal.SIGKILL)

    def _below(self, pid: int) -> list[int]:
        below = children_of(pid)
        return [*below, *(each for child in below for each in self._below(child))]

    # Programs ------------------------------------------------------------------------------------------------

    def start(self, *options: str, before: tuple[str, ...] = (), app: str | None = "", cwd: Path = ROOT,
              dsn: str | None = None, module: str = "taskharbor") -> subprocess.Popen[bytes]:  # fmt: skip
        app = self.app if app == "" else app
        dsn = self.dsn if dsn is None else dsn
        given = [*(["--dsn", dsn] if dsn else []), *(["--app", app] if app else []), *options]
        with open(self.folder / "log", "ab") as log:
            program = subprocess.Popen(
                [*before, sys.executable, "-m", module, "worker", "run", *given],
                cwd=cwd,
                env={**os.environ, "FOLDER": str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.programs.append(program)
        return program

    @property
    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text() if path.exists() else ""

    def ended(self, program: subprocess.Popen[bytes]) -> int:
        return program.wait(PATIENCE)

    def open(self, gate: str) -> None:
        (self.folder / gate).touch()

    def journal(self) -> list[Line]:
        try:
            lines = (self.folder / "journal").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [Line(word, job, int(pid), int(fence)) for word, job, pid, fence in map(str.split, lines)]

    def starts(self, job: str | None = None) -> list[Line]:
        return [line for line in self.journal() if line.word == "start" and job in (None, line.job)]

    def started(self, *jobs: str, times: int = 1) -> list[Line]:
        """The journal's line of the last start of each of these jobs, once each was started `times` times."""

        def look() -> list[Line]:
            counts = Counter(line.job for line in self.starts())
            return self.starts() if all(counts[job] >= times for job in jobs) else []

        lines = eventually(look, f"{len(jobs)} jobs started {times} times")
        return [next(line for line in reversed(lines) if line.job == job) for job in jobs]

    # The store -----------------------------------------------------------------------------------------------

    def enqueue(self, type: str, number: int = 1, **payload: Any) -> list[str]:
        requests = [JobRequest(type=type, payload=payload) for _ in range(number)]
        return [handle.id for handle in self.client.enqueue_many(requests)]

    async def _opened(self) -> Driver:
        if self._driver is None:
            driver = open_driver(self.dsn)
            await driver.open()
            self._driver = driver
        return self._driver

    def lease_end(self, job: str) -> float:
        """When the lease of a running job ends."""
        found = self.info(job).lease_expires_at
        assert found is not None, "the lease is kept"
        return found.timestamp()

    def info(self, job: str) -> JobInfo:
        async def look() -> JobInfo:
            driver = await self._opened()
            return await driver.inspect(job, await driver.server_time())

        return self._loop.run_until_complete(look())

    def lose(self, *, times: int) -> None:
        """Let a worker that dies lose all waiting jobs, `times` times."""

        async def take_and_die() -> None:
            driver = await self._opened()
            for _ in range(times):
                now = await driver.server_time()
                await driver.reserve(["default"], now, timedelta(minutes=10), 100, "dead-worker")
                await driver.release("dead-worker", now)

        self._loop.run_until_complete(take_and_die())

    def workers(self) -> Sequence[WorkerInfo]:
        """All that the store has on record."""

        async def look() -> Sequence[WorkerInfo]:
            driver = await self._opened()
            return await driver.workers(await driver.server_time() - timedelta(minutes=5))

        return self._loop.run_until_complete(look())

    def jobs(self) -> list[JobInfo]:
        async def look() -> list[JobInfo]:
            driver = await self._opened()
            return [*(await driver.list(now=await driver.server_time())).items]

        return self._loop.run_until_complete(look())

    def state(self, job: str) -> str:
        return str(self.info(job).state)

    def done(self, *jobs: str) -> None:
        """Wait until they are; fail at once for a job that ended otherwise."""

        def look() -> bool:
            infos = [self.info(job) for job in jobs]
            dead = [info.job.reason for info in infos if info.state == "dlq"]
            assert not dead, dead
            return all(info.state == "done" for info in infos)

        eventually(look, "all done")

    def health(self) -> dict[str, Any]:
        """What stands in the health file `health`, or nothing."""
        try:
            found: dict[str, Any] = json.loads((self.folder / "health").read_text())
        except FileNotFoundError:
            return {}
        return found


@contextmanager
def yard(dsn: str, folder: Path, app: str = "tests.supervisor.app:harbor") -> Iterator[Yard]:
    made = Yard(dsn, folder, app)
    try:
        yield made
    finally:
        made.close()
        print(made.log)  # pytest shows it when the test has failed
