"""Rows under load: without any fault, with wrong clocks, with racing keys, and over a longer time."""

import os
import time
from pathlib import Path

from tests import lanes
from tests.supervisor.worker_run import exists
from tests.survival.field import Field, field_on
from tests.survival.figures import Figures, of_verdict
from tests.survival.registry import row
from tests.survival.stores import own_store, shared_store


@row("no-faults", seconds=200)
def no_faults(store: str, folder: Path) -> Figures:
    """Each job runs once, and nothing explains a second time."""
    jobs, workers = lanes.figure(test=200, chaos=100_000), lanes.figure(test=2, chaos=8)
    with field_on(shared_store(store, folder), folder, lease=60.0, concurrency=16, poll=1.0) as field:
        alive = [field.worker() for _ in range(workers)]
        begin = time.monotonic()
        sending = [field.spawn("producer", first=n * jobs // 2, count=jobs // 2, batch=500, timeout=60) for n in (0, 1)]
        field.ended(*sending, patience=1200)
        field.ran(jobs, 1200)
        took = time.monotonic() - begin
        stored = field.settled(jobs)
        field.stop(*alive)
        verdict = field.verdict(stored)
        assert verdict.executions == jobs
        return of_verdict(verdict, 0, "none", f"{workers} workers; each ran once, in {took:.0f} s")


@row("clocks", stores=("postgres", "redis", "cluster"), seconds=70)
def clocks(store: str, folder: Path) -> Figures:
    """Workers whose machines' clocks are an hour off and step back and forth: no job is claimed twice."""
    jobs, seconds = lanes.figure(test=60, chaos=6000), lanes.figure(test=0, chaos=45)
    with field_on(shared_store(store, folder), folder, lease=15.0, concurrency=4) as field:
        alive = [field.worker(skew=skew) for skew in (3600.0, -3600.0, 0.0)]
        pause = seconds / (jobs / 10)
        sending = field.spawn("producer", first=0, count=jobs, pause=pause, skew=-3600.0, seconds=0.02)
        field.ended(sending, patience=300)
        field.ran(jobs, 300)
        stored = field.settled(jobs)
        field.stop(*alive)
        verdict = field.verdict(stored)
        return of_verdict(verdict, len(alive) + 1, "clocks off by an hour, which step back and forth by up to an hour",
                          f"{len(alive)} workers, 1 producer")  # fmt: skip


@row("idempotent-race", seconds=120)
def idempotent_race(store: str, folder: Path) -> Figures:
    """Clients that enqueue under the same keys at once; on SQL stores half of the keys are rolled back first."""
    keys, processes = lanes.figure(test=10, chaos=1000), lanes.figure(test=2, chaos=4)
    clients = lanes.figure(test=4, chaos=16)
    with field_on(shared_store(store, folder), folder, lease=30.0) as field:
        options = {"keys": keys, "clients": clients, "rolls_back": store in ("sqlite", "postgres")}
        assert field.stored() == {}  # and the store is made: this row is about keys
        racers = [field.spawn("racer", first=0, **{**options, "seed": lanes.seed() + n}) for n in range(processes)]
        field.ended(*racers, patience=900)
        assert len(field.notes("stopped")) == processes, field.log()
        helper = field.worker()
        stored = field.settled(keys)
        field.stop(helper)
        assert len(stored) == keys, f"{len(stored)} jobs of {keys} keys"
        verdict = field.verdict(stored)
        assert verdict.executions == keys
        verdict.jobs = keys
        rolled = processes * (keys // 2) if options["rolls_back"] else 0
        what = f"{processes * clients} clients race for {keys} keys" + (f", {rolled} rollbacks" if rolled else "")
        return of_verdict(verdict, rolled, what, f"{len(stored)} jobs of {keys} keys")


class Watch:
    """What one process holds: memory, descriptors, threads."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.seen: list[tuple[int, int, int]] = []

    def look(self) -> None:
        status = Path(f"/proc/{self.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        descriptors = len(os.listdir(f"/proc/{self.pid}/fd"))
        self.seen.append((int(fields["VmRSS"].split()[0]), descriptors, int(fields["Threads"])))

    def growth(self) -> tuple[float, int, int]:
        """How much more the last quarter holds than the second one, at its highest: MB, descriptors, threads."""
        quarter = max(1, len(self.seen) // 4)
        early, late = self.seen[quarter : 2 * quarter] or self.seen[:1], self.seen[-quarter:]
        most = [max(each[n] for each in late) - max(each[n] for each in early) for n in range(3)]
        return most[0] / 1024, most[1], most[2]


@row("soak", seconds=260)
def soak(store: str, folder: Path) -> Figures:
    """A worker that lives on beside others that are killed, at 200 jobs a second: what it holds stays flat."""
    seconds, rate = lanes.figure(test=1, chaos=120), lanes.figure(test=60, chaos=200)
    jobs = seconds * rate
    with own_store(store, folder) as found:
        # Retention of some seconds: the store has to stay small as well.
        found.dsn += ("&" if "?" in found.dsn else "?") + "retention=20s"
        with field_on(found, folder, lease=float(lanes.figure(test=5, chaos=15)), concurrency=8, poll=0.5) as field:
            living, mortal = field.worker(), field.worker()
            field.ready(living, mortal)
            watch = Watch(living)
            pause = 10 / rate
            sending = field.spawn("producer", first=0, count=jobs, pause=pause)
            begin, stored_most = time.monotonic(), 0
            while exists(sending):
                watch.look()
                time.sleep(min(5.0, seconds / 4))
                field.look()
                field.kill(mortal)
                mortal = field.worker()
                if lanes.run() == "chaos" and time.monotonic() > begin + 90:
                    stored_most = max(stored_most, stored_now(field))
            field.ran(jobs, 1200)
            stored = field.settled(patience=300)  # what was done by a process that died before it could report that
            watch.look()
            megabytes, descriptors, threads = watch.growth()
            notes = field.reader.all()
            starts: dict[int, int] = {}
            for note in notes:
                if note.word == "start":
                    starts[note.data[0]] = starts.get(note.data[0], 0) + 1
            # Ended jobs are pruned meanwhile: of those that are gone the journal has to hold the end of their handler.
            from tests.survival.checker import Stored, check

            ended = {n.data[1]: Stored("done") for n in notes if n.word == "end"}
            verdict = check(notes, field.faults, {**ended, **stored})
            assert not verdict.wrong, verdict.wrong[:10]
            if lanes.run() == "chaos":
                assert megabytes < 20, f"the worker grew by {megabytes:.0f} MB"
                assert descriptors < 10
                assert threads < 10
            told = (
                f"{seconds} s at {rate} jobs/s; a worker grew by {max(megabytes, 0):.0f} MB, {max(descriptors, 0)} "
                f"descriptors, {max(threads, 0)} threads; at most {stored_most:,} jobs stored"
            )
            return of_verdict(verdict, len(field.faults), f"{len(field.faults)} kills of another worker", told)


def stored_now(field: Field) -> int:
    import asyncio

    from tests.survival.field import _counts

    return sum(asyncio.run(_counts(field.store.dsn)).values())
