"""Rows of `taskharbor worker run`: its processes are killed, poisoned, blocked and stopped."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from taskharbor import Harbor
from tests import lanes
from tests.supervisor.worker_run import children_of, exists
from tests.survival.field import Field, field_on
from tests.survival.figures import Figures, of_verdict
from tests.survival.registry import row
from tests.survival.stores import shared_store
from tests.survival.tasks import BLOCKS, POISONS, Tasks

LONG = ("--lease", "600", "--heartbeat", "200")
SHORT = ("--lease", "5", "--max-lost", "1000")
PAUSES = "a process that keeps dying is started with pauses"
STARTS = "recovery includes the start of the next workers"
STEADY_S = 11.0  # a process that dies again within ten seconds is started with a delay


class Sender:
    """Enqueues from the row's own process, and notes it."""

    def __init__(self, field: Field) -> None:
        self.harbor = Harbor(field.store.dsn)
        self.tasks = Tasks(self.harbor, str(field.folder))
        self.next = 0

    def send(self, task: str, count: int = 1, **arguments: Any) -> list[int]:
        numbers = list(range(self.next, self.next + count))
        self.next += count
        self.tasks.pen.note("sent", numbers)
        handles = self.harbor.enqueue_many([getattr(self.tasks, task).s(n=n, **arguments) for n in numbers])
        self.tasks.pen.note("stored", numbers, [handle.id for handle in handles])
        return numbers


def started(field: Field, number: int, times: int = 1) -> list[int]:
    """The processes in which this number was started, once it was started `times` times."""
    runs: list[int] = []

    def look() -> bool:
        runs[:] = [note.pid for note in field.notes("start") if note.data[0] == number]
        return len(runs) >= times

    field.until(look, f"number {number} was started {times} times")
    return runs


@row("supervised-kill", seconds=120)
def supervised_kill(store: str, folder: Path) -> Figures:
    """SIGKILL of a worker process under its supervisor, with leases of ten minutes: its jobs run again at once."""
    rounds = lanes.figure(test=1, chaos=5)
    with field_on(shared_store(store, folder), folder) as field:
        sender = Sender(field)
        field.worker_run(*LONG, "--processes", "1", "--max-lost", "1000", "--poll-interval", "0.2")
        for turn in range(rounds):
            [number] = sender.send("gate", name=f"go{turn}")
            [pid] = started(field, number)
            if rounds > 1:
                time.sleep(STEADY_S)
            field.kill(pid)
            started(field, number, 2)
            (folder / f"go{turn}").touch()
            field.until(lambda turn=turn: field.done() > turn, "it ended")  # type: ignore[misc]  # a default binds the loop's variable
        stored = field.settled()
        verdict = field.verdict(stored)
        assert all(record.attempts == 0 and record.lost == 0 for record in stored.values()), "a job was blamed"
        sender.harbor.close()
        return of_verdict(verdict, rounds, "SIGKILL of a supervised process", "lease 600 s")


@row("poison", seconds=120)
def poison(store: str, folder: Path) -> Figures:
    """A handler that takes its process down runs max_lost times, then is dead; its neighbours go on unblamed."""
    kinds = lanes.few(POISONS, [*POISONS][:2])
    neighbours = lanes.figure(test=4, chaos=50)
    with field_on(shared_store(store, folder), folder) as field:
        sender = Sender(field)
        dead: list[int] = []
        others: list[int] = []
        field.worker_run(*LONG, "--concurrency", "4", "--poll-interval", "0.2")
        for kind in kinds:  # one after the other: of two together each would be blamed for the other's crash
            dead += sender.send("poison", how=kind)
            others += sender.send("work", neighbours, seconds=0.05)
            stored = field.settled(sender.next, patience=300)
        starts = field.notes("start")
        runs = {number: [note for note in starts if note.data[0] == number] for number in (*dead, *others)}
        for number in dead:
            assert len(runs[number]) == 3, f"the poison ran {len(runs[number])} times"
            assert stored[runs[number][0].data[1]].reason == "crashed 3 times"
            for note in runs[number]:  # it takes its process down, and with it what began there meanwhile
                field.hurt("poison", note.time, max(each.time for each in starts if each.pid == note.pid), note.pid)
        assert all(stored[runs[n][0].data[1]].attempts == 0 for n in others), "a neighbour was blamed"
        verdict = field.verdict(stored, dead=frozenset(dead), max_lost=3)
        sender.harbor.close()
        return of_verdict(verdict, 3 * len(dead), f"handlers that end their process: {', '.join(kinds)}",
                          f"each ran 3 times, then DLQ; {len(others)} neighbours done; {PAUSES}")  # fmt: skip


@row("blocked", seconds=130)
def blocked(store: str, folder: Path) -> Figures:
    """Handlers that block for longer than a lease: under `worker run` of any kind, inside an application those that
    release the interpreter. Nothing runs twice, and the log names the handler."""
    lease, seconds = lanes.figure(test=3, chaos=10), lanes.figure(test=5, chaos=25)
    kinds = lanes.few(BLOCKS, [*BLOCKS][:2])
    with field_on(shared_store(store, folder), folder, lease=lease, concurrency=1) as field:
        sender = Sender(field)
        for kind in kinds:
            sender.send("block", how=kind, seconds=seconds)
        program = field.worker_run("--lease", str(lease), "--processes", "2", "--concurrency", "1")
        field.ran(len(kinds))
        program.terminate()
        assert program.wait(60) == 0
        if lanes.run() == "chaos":
            inside, beside = field.worker(), field.worker()
            sender.send("block", how="blocking sleep", seconds=seconds)
            field.until(lambda: field.done() > len(kinds), "the block inside an application ended")
            for pid in (inside, beside):
                os.kill(pid, signal.SIGTERM)
            field.ended(inside, beside)
        verdict = field.verdict(field.settled())
        assert "block" in field.log(), "the log does not name the handler"
        sender.harbor.close()
        what = f"handlers that block for {seconds} s under a lease of {lease} s: {', '.join(kinds)}"
        return of_verdict(verdict, verdict.jobs, what)


def signals(program: subprocess.Popen[bytes], how: str) -> None:
    if how == "SIGTERM to the group":
        os.killpg(program.pid, signal.SIGTERM)
        return
    program.terminate()
    if how != "SIGTERM":
        time.sleep(1.2)
        program.send_signal(signal.SIGTERM)
    if how == "SIGTERM twice, SIGKILL":
        time.sleep(0.3)
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)


@row("shutdown", seconds=150)
def shutdown(store: str, folder: Path) -> Figures:
    """SIGTERM under load, at any moment from the start on: once, twice, to the group, then SIGKILL."""
    hows = ["SIGTERM", "SIGTERM twice", "SIGTERM to the group", "SIGTERM twice, SIGKILL"]
    chosen = lanes.few(hows, ["SIGTERM twice, SIGKILL"]) * lanes.figure(test=1, chaos=3)
    jobs = lanes.figure(test=20, chaos=100)
    latest = 0.0
    with field_on(shared_store(store, folder), folder) as field:
        sender = Sender(field)
        for how in chosen:
            first = sender.next
            sender.send("work", 2, seconds=lanes.figure(test=3, chaos=8))  # not done within the shutdown timeout
            sender.send("work", jobs, seconds=0.2)
            program = field.worker_run(*SHORT, "--processes", "2", "--concurrency", "4", "--shutdown-timeout", "2")
            wanted = field.chance.randrange(0, jobs // 2)
            field.ran(first + wanted)
            pids = [program.pid, *children_of(program.pid)]
            begin = time.monotonic()
            signals(program, how)
            program.wait(120)
            field.until(lambda pids=pids: not any(exists(pid) for pid in pids), "its processes ended")  # type: ignore[misc]  # the same
            end = time.monotonic()
            mine = {note.pid for note in field.notes("start") if begin - 60 < note.time}
            field.hurt(how, begin, end, *pids, *mine)
            late = [note.time - begin for note in field.notes("start") if note.time > begin]
            latest = max([latest, *late])
            (folder / "go").touch()
            helper = field.worker_run(*SHORT, "--processes", "1", "--concurrency", "32")
            field.ran(sender.next)
            helper.terminate()
            helper.wait(120)
        stored = field.settled()
        verdict = field.verdict(stored)
        killed = any("SIGKILL" in how for how in chosen)
        spent = [record for record in stored.values() if record.attempts]
        assert not spent, f"{len(spent)} jobs spent an attempt on a shutdown"
        lost = sum(record.lost for record in stored.values())
        assert killed or not lost, f"{lost} jobs were left to their leases by a graceful stop"
        sender.harbor.close()
        return of_verdict(verdict, len(chosen), "SIGTERM once, twice, to the group, then SIGKILL",
                          f"last start {latest:.2f} s after the signal; no attempt spent; {STARTS}")  # fmt: skip
