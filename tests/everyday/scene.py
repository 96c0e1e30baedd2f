"""The everyday scene: applications enqueue, workers are restarted, killed and upgraded, and an operator
runs commands.

The seed decides what happens when. Only processes are hurt: the store runs on. At the end the journal of what was
acknowledged is compared with what ran and with what is stored.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from taskharbor.drivers import open_driver
from tests import lanes
from tests.everyday.journal import Journal
from tests.supervisor.worker_run import ROOT, children_of, exists

PATIENCE = 240.0  # seconds for a single thing to happen; never a figure
LOOKS = (["stats"], ["list"], ["queue", "list"], ["dlq", "list"], ["doctor"], ["stats", "--output", "json"])
LEASE = lanes.figure(test=4, full=15)  # seconds: the jobs of a killed supervisor come back after it
OLD, NEW = "tests.everyday.tasks:harbor", "tests.everyday.newer:harbor"


class Scene:
    """One store with its applications and workers. `pace`: seconds from one call of an application to the next."""

    def __init__(self, dsn: str, folder: Path, seed: int, pace: float = 0.005) -> None:
        self.dsn = dsn
        self.folder = folder
        self.journal = Journal(folder / "journal")
        self.pace = pace
        self.chance = random.Random(seed)
        self.seed = seed
        self.programs: tuple[str, ...] = (OLD,)
        self.killed: set[int] = set()  # processes that were killed while they may have held jobs
        self.workers: list[subprocess.Popen[bytes]] = []
        self.applications: list[subprocess.Popen[bytes]] = []
        self.started = 0  # applications, each with numbers of its own
        self.looks: list[tuple[list[str], int, str]] = []

    # Processes

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "TASKHARBOR_DSN": self.dsn,
            "JOURNAL": str(self.journal.path),
            "MIGRATIONS": str(self.folder / "migrations"),
            "PACE": str(self.pace),
        }

    def _start(self, *command: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env=self._environment(),
                stdin=stdin,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start_worker(self) -> None:
        program = ("--app", self.chance.choice(self.programs), "--queues", "default,other", "--concurrency", "4")
        pace = ("--lease", str(LEASE), "--heartbeat", "1", "--poll-interval", "0.2", "--shutdown-timeout", "20")
        self.workers.append(self._start("taskharbor", "worker", "run", *program, *pace, "--no-spare"))

    def start_application(self) -> None:
        self.started += 1
        words = ("tests.everyday.application", str(self.seed + self.started), str(1_000_000 * self.started))
        self.applications.append(self._start(*words, stdin=subprocess.PIPE))

    def close(self) -> None:
        """End everything that was started here, however the scene has ended."""
        for program in (*self.workers, *self.applications):
            for pid in (program.pid, *children_of(program.pid)):
                _kill(pid)
            program.wait()
            if program.stdin is not None:
                program.stdin.close()

    # What happens

    def restart(self) -> None:
        """A deploy: the new worker starts beside the old one, which finishes what it runs."""
        old = self.workers.pop(self.chance.randrange(len(self.workers)))
        self.start_worker()
        eventually(lambda: children_of(old.pid), "a worker started", self.log)  # before that, TERM is Python's own
        old.send_signal(signal.SIGTERM)
        assert old.wait(PATIENCE) == 0, self.log()

    def upgrade(self) -> None:
        """A newer program upgrades the store. The older ones work on beside it, and start again beside it."""
        self.command("migrate", "--app", NEW)
        self.programs = (NEW,)
        self.restart()
        self.programs = (OLD, NEW)

    def kill_a_process(self) -> None:
        """One worker process dies; its supervisor releases its jobs."""
        below = [pid for worker in self.workers for pid in children_of(worker.pid)]
        if below:
            victim = self.chance.choice(below)
            self.killed.add(victim)
            _kill(victim)

    def kill_a_supervisor(self) -> None:
        """The machine's out-of-memory killer takes all of it; its jobs come back when their leases end."""
        old = self.workers.pop(self.chance.randrange(len(self.workers)))
        below = children_of(old.pid)
        self.killed.update(below)
        for pid in (old.pid, *below):
            _kill(pid)
        old.wait()
        self.start_worker()

    def restart_an_application(self) -> None:
        """It closes its harbor while others work; a new one comes."""
        old = self.applications.pop(self.chance.randrange(len(self.applications)))
        self.start_application()
        self.end(old)

    def look(self) -> None:
        """An operator's command beside it. It may find anything, but must neither fail nor change anything."""
        known = sorted(self.journal.ids("stored"))
        one = [["inspect", self.chance.choice(known)], ["explain", self.chance.choice(known)]] if known else []
        self.command(*self.chance.choice([*LOOKS, *one]))

    def bring_back(self) -> None:
        """An operator brings back what is dead."""
        self.command("dlq", "requeue", "--all", "--yes")

    def command(self, *words: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "taskharbor", *words, "--dsn", self.dsn],
            cwd=ROOT, env=self._environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
        if done.returncode not in (0, 1) or "Traceback" in done.stderr:
            self.looks.append(([*words], done.returncode, done.stderr))

    def play(self, seconds: float = 0.0) -> None:
        """Do each deed once, then random ones until the time is over; then end all programs and finish what is left."""
        for start in (self.start_worker, self.start_application) * 2:
            start()
        deeds = [
            self.restart,
            self.upgrade,
            self.kill_a_process,
            self.kill_a_supervisor,
            self.restart_an_application,
            self.look,
            self.bring_back,
        ]
        self.chance.shuffle(deeds)
        end, turn = time.monotonic() + seconds, 0
        while turn < len(deeds) or time.monotonic() < end:
            self.wait_for_runs(self.chance.randint(5, lanes.figure(test=20, full=100)))
            (deeds[turn] if turn < len(deeds) else self.chance.choice(deeds))()
            turn += 1
        for application in self.applications:
            self.end(application)
        self.finish()

    def wait_for_runs(self, more: int) -> None:
        """Until the journal has this many more executions."""
        wanted = self.journal.runs() + more
        eventually(lambda: self.journal.runs() >= wanted, f"{more} more executions", self.log)

    def end(self, application: subprocess.Popen[bytes]) -> None:
        assert application.stdin is not None
        application.stdin.close()
        assert application.wait(PATIENCE) == 0, self.log()

    def finish(self) -> None:
        """Until everything that was acknowledged ran and is stored as done; then stop the workers gracefully."""
        deadline = time.monotonic() + PATIENCE
        while self.journal.lost() or self.stored_otherwise():
            assert time.monotonic() < deadline, self.missing()
            self.bring_back()
        for worker in self.workers:
            eventually(lambda pid=worker.pid: children_of(pid), "a worker started", self.log)
            worker.send_signal(signal.SIGTERM)
        for worker in self.workers:
            assert worker.wait(PATIENCE) == 0, self.log()

    # The result

    def log(self) -> str:
        return (self.folder / "log").read_text()[-5000:]

    def missing(self) -> str:
        gone = sorted(self.journal.lost())
        return f"{len(gone)} acknowledged and not run, the first are {gone[:10]}\n{self.log()}"

    def stored_otherwise(self) -> dict[str, str]:
        """Jobs whose record differs from the journal: id and state."""
        found = asyncio.run(states(self.dsn))
        done, cancelled = self.journal.ids("stored"), self.journal.ids("cancelled")
        wrong = {id: found.get(id, "nothing") for id in done if found.get(id) != "done"}
        wrong |= {id: found.get(id, "nothing") for id in cancelled if found.get(id) != "cancelled"}
        return wrong | {id: state for id, state in found.items() if state not in ("done", "cancelled")}


async def states(dsn: str) -> dict[str, str]:
    """The state of every job that is stored."""
    driver = open_driver(dsn)
    await driver.open()
    try:
        found: dict[str, str] = {}
        cursor = None
        while True:
            page = await driver.list(now=await driver.server_time(), cursor=cursor, limit=1000)
            found |= {info.job.id: str(info.state) for info in page.items}
            cursor = page.cursor
            if cursor is None:
                return found
    finally:
        await driver.close()


def eventually(look, what, tell):
    deadline = time.monotonic() + PATIENCE
    while not look():
        assert time.monotonic() < deadline, f"it did not happen: {what}\n{tell()}"
        time.sleep(0.05)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    while exists(pid):
        time.sleep(0.005)
