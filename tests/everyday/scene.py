"""The everyday scene: applications enqueue, workers are restarted, killed and replaced, and somebody looks on.

The seed decides what happens when. Nothing is hurt but processes: the store runs on. At the end the journal of what was
acknowledged is compared with what ran and with what is stored.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.supervisor.program import ROOT, children_of, exists

PATIENCE = 120.0  # seconds for a single thing to happen; never a figure
LOOKS = (["stats"], ["list"], ["queue", "list"], ["dlq", "list"], ["doctor"], ["stats", "--output", "json"])
LEASE = 5  # seconds: what a killed supervisor held comes back after it


class Scene:
    """One store with its applications and workers. `rounds`: how many times something is done to a worker."""

    def __init__(self, dsn: str, folder: Path, seed: int) -> None:
        self.dsn = dsn
        self.folder = folder
        self.journal = folder / "journal"
        self.chance = random.Random(seed)
        self.seed = seed
        self.killed: set[int] = set()  # processes that were killed while they may have held jobs
        self.workers: list[subprocess.Popen[bytes]] = []
        self.applications: list[subprocess.Popen[bytes]] = []
        self.looks: list[tuple[list[str], int, str]] = []

    # Processes

    def _start(self, *command: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env={**os.environ, "TASKHARBOR_DSN": self.dsn, "JOURNAL": str(self.journal)},
                stdin=stdin,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start_worker(self) -> None:
        options = (
            "--lease",
            str(LEASE),
            "--heartbeat",
            "1",
            "--poll-interval",
            "0.2",
            "--shutdown-timeout",
            "20",
            "--no-spare",
        )
        app = ("--app", "tests.everyday.tasks:harbor", "--queues", "default,other", "--concurrency", "4")
        self.workers.append(self._start("taskharbor", "worker", "run", *app, *options))

    def start_application(self, number: int) -> None:
        words = ("tests.everyday.application", str(self.seed + number), str(1_000_000 * (number + 1)))
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

    def kill_a_process(self) -> None:
        """One worker process dies; its supervisor gives back what it held."""
        below = [pid for worker in self.workers for pid in children_of(worker.pid)]
        if below:
            victim = self.chance.choice(below)
            self.killed.add(victim)
            _kill(victim)

    def kill_a_supervisor(self) -> None:
        """The machine's out-of-memory killer takes all of it; the leases decide."""
        old = self.workers.pop(self.chance.randrange(len(self.workers)))
        below = children_of(old.pid)
        self.killed.update(below)
        for pid in (old.pid, *below):
            _kill(pid)
        old.wait()
        self.start_worker()

    def look(self) -> None:
        """An operator's command beside it. It may find anything, but must neither fail nor change anything."""
        words = self.chance.choice(LOOKS)
        done = subprocess.run(
            [sys.executable, "-m", "taskharbor", *words, "--dsn", self.dsn],
            cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        self.looks.append((words, done.returncode, done.stderr))

    def play(self, rounds: int, seconds: float = 0.0) -> None:
        """Let it all happen, then let the applications end and the workers finish what is left."""
        self.start_worker()
        self.start_worker()
        self.start_application(0)
        self.start_application(1)
        deeds = (
            self.restart,
            self.restart,
            self.kill_a_process,
            self.kill_a_process,
            self.kill_a_supervisor,
            self.look,
        )
        end = time.monotonic() + seconds
        turn = 0
        while turn < rounds or time.monotonic() < end:
            self.wait_for_runs(self.chance.randint(5, 60))
            # Each deed at least once, in an order that the seed decides.
            (self.chance.choice(deeds) if turn >= len(deeds) else deeds[(turn + self.seed) % len(deeds)])()
            turn += 1
        self.end_applications()
        self.finish()

    def wait_for_runs(self, more: int) -> None:
        """Until so many further executions stand in the journal."""
        wanted = self.count("ran") + more
        eventually(lambda: self.count("ran") >= wanted, f"{more} more executions", self.log)

    def end_applications(self) -> None:
        for application in self.applications:
            assert application.stdin is not None
            application.stdin.close()
        for application in self.applications:
            assert application.wait(PATIENCE) == 0, self.log()

    def finish(self) -> None:
        """Until everything that was acknowledged ran; then stop the workers as one should."""
        acknowledged = self.numbers("stored")
        eventually(lambda: acknowledged <= self.numbers("ran"), "every acknowledged job ran", self.missing)
        for worker in self.workers:
            eventually(lambda pid=worker.pid: children_of(pid), "a worker started", self.log)
            worker.send_signal(signal.SIGTERM)
        for worker in self.workers:
            assert worker.wait(PATIENCE) == 0, self.log()

    # The journal

    def lines(self, word: str) -> list[list[str]]:
        text = self.journal.read_text() if self.journal.exists() else ""
        return [words for line in text.splitlines() if (words := line.split())[0] == word]

    def count(self, word: str) -> int:
        return len(self.lines(word))

    def numbers(self, word: str) -> set[int]:
        return {int(words[1]) for words in self.lines(word)}

    def log(self) -> str:
        return (self.folder / "log").read_text()[-5000:]

    def missing(self) -> str:
        gone = sorted(self.numbers("stored") - self.numbers("ran"))
        return f"{len(gone)} acknowledged and not run, the first are {gone[:10]}\n{self.log()}"

    def lost(self) -> set[int]:
        """Acknowledged, and never run."""
        return self.numbers("stored") - self.numbers("ran")

    def out_of_nothing(self) -> set[int]:
        """Run although nobody sent it, or its transaction was rolled back."""
        return (self.numbers("ran") - self.numbers("sent")) | (self.numbers("ran") & self.numbers("undone"))

    def unexplained(self) -> dict[int, int]:
        """Run more often than the processes that were killed while they ran it can explain."""
        runs = Counter(int(n) for _, n, _ in self.lines("ran"))
        excused = Counter(int(n) for _, n, pid in self.lines("ran") if int(pid) in self.killed)
        return {n: count for n, count in runs.items() if count > 1 + excused[n]}


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
