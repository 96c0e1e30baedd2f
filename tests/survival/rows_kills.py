"""Rows that kill or stop worker processes: at named points, as zombies, and all at random."""

import os
import signal
import time
from pathlib import Path

from tests import lanes
from tests.supervisor.worker_run import exists
from tests.survival.field import Field, field_on
from tests.survival.figures import Figures, of_verdict
from tests.survival.registry import row
from tests.survival.stores import own_store, shared_store

# Where a worker dies, and for how many seconds each of its jobs runs (a heartbeat needs a job that runs for longer).
WORKER_POINTS = {
    "reserve before 1": 0.0,
    "reserve after 1": 0.0,
    "start before 1": 0.0,
    "handler in 1": 0.0,
    "settle before 1": 0.0,
    "settle after 1": 0.0,
    "extend before 1": 30.0,
    "extend after 1": 30.0,
}
LEASE = float(lanes.figure(test=5, chaos=15))  # longer than a busy machine keeps a process waiting
PRODUCER_POINTS = ("enqueue before 1", "enqueue after 1")
FLOW_POINTS = ("settle before 1", "settle after 1", "settle before 2", "settle after 2", "settle after 3")


@row("kill-points", seconds=150)
def kill_points(store: str, folder: Path) -> Figures:
    """A process dies at each point; another one starts, and runs what the dead one held when its lease is over."""
    rounds, lease = lanes.figure(test=1, chaos=2), lanes.figure(test=1, chaos=6)
    points = [*WORKER_POINTS, *PRODUCER_POINTS, *(f"chord: {point}" for point in FLOW_POINTS)]
    points += [f"spawn: settle {when} 1" for when in ("before", "after")]
    chosen = lanes.few(points, points[::6]) * rounds
    first = 0
    with field_on(shared_store(store, folder), folder, lease=lease, concurrency=2) as field:
        for point in chosen:
            first += _one_point(field, point, first)
        field.deaths()
        assert len(field.faults) == len(chosen), "a failpoint was never reached"
        verdict = field.verdict(field.settled())
        joined(field)
        what = f"SIGKILL at each of {len(set(chosen))} points, {rounds} times"
        return of_verdict(verdict, len(field.faults), what, f"lease {lease} s")


def _one_point(field: Field, point: str, first: int) -> int:
    """One death and what comes after it; how many numbers it used."""
    kind, _, rest = point.rpartition(": ")
    count = 6
    if point in PRODUCER_POINTS:
        dying = field.spawn("producer", first=first, count=count, batch=count, failpoint=point)
        field.ended(dying)
        again = field.spawn("producer", first=first, count=count, batch=count)
        field.ended(again)
    else:
        seconds = WORKER_POINTS.get(point, 0.0)
        if kind:
            field.ended(field.spawn("flow", first=first, kind=kind))
        else:
            field.ended(field.spawn("producer", first=first, count=count, batch=count, seconds=seconds and field.lease))
        field.ended(field.worker(failpoint=rest, concurrency=1 if kind else 2))
    helper = field.worker(concurrency=16)
    field.until(lambda: field.done() >= first + count, f"the jobs after {point}")
    field.stop(helper)
    return count


def joined(field: Field) -> int:
    """Invariant 4: every finalizer ran after all its members had ended. How many finalizers there were."""
    ended: dict[int, float] = {}
    finalizers = set()
    for note in field.reader.all():
        if note.word == "end":
            ended.setdefault(note.data[0], note.time)
        elif note.word == "joined":
            number, members = note.data
            finalizers.add(number)
            early = [n for n in members if ended.get(n, note.time + 1) > note.time]
            assert not early, f"the finalizer {number} ran before {len(early)} of its members"
    return len(finalizers)


@row("zombie", seconds=150)
def zombie(store: str, folder: Path) -> Figures:
    """SIGSTOP for three leases, then SIGCONT: in the handler, and between its end and the settle.

    When it wakes, another worker runs its job, and has not ended: only the token tells the two apart.
    """
    rounds, lease = lanes.figure(test=1, chaos=4), lanes.figure(test=1, chaos=6)
    kinds = lanes.few(["in the handler", "before the settle"], ["before the settle"]) * rounds
    with field_on(shared_store(store, folder), folder, lease=lease, concurrency=1) as field:
        for turn, kind in enumerate(kinds):
            at = "handler in 1 stop" if kind == "in the handler" else "settle before 1 stop"
            field.ended(field.spawn("producer", first=turn, count=1))
            stopped = field.worker(failpoint=at)
            field.until(lambda pid=stopped: noted(field, "stopping", pid), "it stopped")  # type: ignore[misc]  # a default binds the loop's variable
            begin = field.notes("stopping")[-1].time
            other = field.worker(hold=f"go{turn}")
            field.until(lambda pid=other: noted(field, "start", pid), "another worker runs its job")  # type: ignore[misc]  # the same
            while time.monotonic() < begin + 3 * lease:
                time.sleep(0.05)
            os.kill(stopped, signal.SIGCONT)
            field.hurt("SIGSTOP", begin, time.monotonic(), stopped)
            field.until(lambda pid=stopped: quiet(field, pid), "it has settled what it had")  # type: ignore[misc]  # the same
            (folder / f"go{turn}").touch()
            field.until(lambda pid=other: quiet(field, pid), "the other one has settled")  # type: ignore[misc]  # the same
            field.stop(stopped, other)
        verdict = field.verdict(field.settled())
        refused = sum(not row[2] for note in field.notes("settled") for row in note.data[0])
        what = f"SIGSTOP for three leases of {lease} s, then SIGCONT"
        return of_verdict(verdict, len(kinds), what, f"{refused} late outcomes refused, {verdict.stale} accepted")


def noted(field: Field, word: str, pid: int) -> bool:
    return any(note.pid == pid for note in field.notes(word))


def quiet(field: Field, pid: int) -> bool:
    """Whether everything that this process started has ended and was settled, accepted or refused."""
    if not exists(pid):
        return True
    started = {tuple(note.data[1:]) for note in field.notes("start") if note.pid == pid}
    settled = {(row[0], row[1]) for note in field.notes("settled") if note.pid == pid for row in note.data[0]}
    lost = {id for id, _ in started - settled}
    return not lost or any(note.pid == pid and note.word == "extended" for note in field.look())


@row("mixed", seconds=300)
def mixed_chaos(store: str, folder: Path) -> Figures:
    """Ten workers, five producers, random kills of workers, and restarts of the store."""
    jobs, seconds = lanes.figure(test=120, chaos=20_000), lanes.figure(test=0, chaos=180)
    workers, producers = lanes.figure(test=2, chaos=10), lanes.figure(test=1, chaos=5)
    each = jobs // producers
    with own_store(store, folder) as found, field_on(found, folder, lease=LEASE, concurrency=4) as field:
        batches = each // 10
        pause = max(0.0, seconds * 0.8 / batches)
        alive = [field.worker() for _ in range(workers)]
        sending = {
            turn: field.spawn("producer", first=turn * each, count=each, pause=pause) for turn in range(producers)
        }
        kills = restarts = 0
        begin = time.monotonic()
        next_restart = begin + field.chance.uniform(5, 20)
        while time.monotonic() < begin + seconds or kills < 2:
            field.goes_on(jobs)
            victim = field.chance.randrange(len(alive))
            field.kill(alive[victim])
            alive[victim] = field.worker()
            kills += 1
            if found.servers and (time.monotonic() > next_restart or not restarts):
                with field.fault("store restart"):
                    found.restart()
                restarts += 1
                next_restart = time.monotonic() + field.chance.uniform(10, 40)
            if seconds:
                time.sleep(field.chance.uniform(0.5, 3.0))
        field.ended(*sending.values(), patience=600)
        verdict = field.verdict(field.settled(jobs, patience=300))
        took = time.monotonic() - begin
    what = f"{kills} kills of workers" + (f", {restarts} of the store" if restarts else "")
    return of_verdict(verdict, kills + restarts, what, f"{workers} workers, {producers} producers, {took:.0f} s")
