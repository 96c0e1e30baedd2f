"""Rows that hurt the store itself: killed and started again, opened by many at once, full."""

import os
import signal
import time
from pathlib import Path

from tests import lanes
from tests.servers import postgres
from tests.survival.field import field_on
from tests.survival.figures import Figures, of_verdict
from tests.survival.registry import row
from tests.survival.stores import Store, own_store, shared_store


@row("store-restart", stores=("postgres", "redis", "cluster"), seconds=330)
def store_restart(store: str, folder: Path) -> Figures:
    """kill -9 of the server under load, again and again; the workers go on by themselves."""
    seconds = lanes.figure(test=0, chaos=240)
    jobs = lanes.figure(test=60, chaos=12_000)
    with own_store(store, folder) as found, field_on(found, folder, lease=10.0, concurrency=4) as field:
        alive = [field.worker() for _ in range(3)]
        pause = seconds / (jobs / 10)
        sending = field.spawn("producer", first=0, count=jobs, pause=pause)
        field.ready(*alive, sending)
        begin, restarts = time.monotonic(), 0
        while time.monotonic() < begin + seconds * 0.85 or not restarts:
            if seconds:
                time.sleep(field.chance.uniform(5, 30))
            field.until(lambda done=field.done(): field.done() > done or field.done() >= jobs, "work goes on")  # type: ignore[misc]  # a default binds the loop's variable
            with field.fault("store restart"):
                found.restart()
            restarts += 1
        field.ended(sending, patience=300)
        verdict = field.verdict(field.settled(jobs, patience=300))
        died = [pid for pid in alive if not os.path.exists(f"/proc/{pid}")]
        assert not died, "a worker did not survive its store"
        return of_verdict(verdict, restarts, "kill -9 of the server", "the same 3 workers went on")


def fresh(store: str, folder: Path, turn: int) -> Store:
    """A store in which nothing was made yet."""
    if store == "postgres":
        server = postgres.shared()
        return Store(store, server.address(server.database()), [server], [server.port])
    if store == "sqlite":
        return Store(store, f"sqlite:///{folder}/fresh{turn}.db")
    return shared_store(store, folder)


@row("migrations", seconds=90)
def migrations(store: str, folder: Path) -> Figures:
    """Processes that open an empty store at once; some are killed in the middle."""
    rounds, processes = lanes.figure(test=1, chaos=8), lanes.figure(test=4, chaos=20)
    total, killed, verdict = 0, 0, None
    for turn in range(rounds):
        place = folder / str(turn)
        place.mkdir()
        with field_on(fresh(store, place, turn), place, lease=5.0) as field:
            opening = [field.spawn("opener", first=n) for n in range(processes)]
            for pid in field.chance.sample(opening, processes // 4):
                time.sleep(field.chance.uniform(0, 0.03))
                field.kill(pid)
            killed += processes // 4
            field.ended(*opening)
            again = [field.spawn("opener", first=processes + n) for n in range(2)]
            field.ended(*again)
            helper = field.worker()
            acknowledged = sum(len(note.data[0]) for note in field.notes("stored"))
            assert acknowledged >= processes - processes // 4 + 2, field.log()
            stored = field.settled(acknowledged)
            os.kill(helper, signal.SIGTERM)
            field.ended(helper)
            verdict = field.verdict(stored)
            total += verdict.jobs
    assert verdict is not None
    verdict.jobs = verdict.executions = total
    verdict.recovery = None
    what = f"{rounds} × {processes} processes open an empty store at once, {killed} killed in the middle"
    return of_verdict(verdict, killed, what)


@row("full", stores=("redis", "cluster"), seconds=40)
def full(store: str, folder: Path) -> Figures:
    """Redis reaches its maxmemory: an enqueue raises, running jobs end, and all goes on when there is room."""
    times, jobs = lanes.figure(test=1, chaos=5), lanes.figure(test=200, chaos=5000)
    with field_on(found := shared_store(store, folder), folder, lease=10.0) as field:
        alive = [field.worker() for _ in range(2)]
        sending = field.spawn("producer", first=0, count=jobs, timeout=1, pause=0.002)
        field.ready(*alive, sending)
        try:
            for _ in range(times):
                refused = len(field.notes("unknown"))
                with field.fault("full"):
                    _limit(found, 1)
                    field.until(
                        lambda refused=refused: len(field.notes("unknown")) > refused or field.done() >= jobs, "refused"
                    )  # type: ignore[misc]  # a default binds the loop's variable
                    _limit(found, 0)
                if lanes.run() == "chaos":
                    time.sleep(1)
        finally:
            _limit(found, 0)
        field.ended(sending)
        verdict = field.verdict(field.settled(jobs))
        refusals = len(field.notes("unknown"))
        assert refusals, "nothing was refused: this row sees nothing"
        return of_verdict(verdict, times, "maxmemory reached", f"{refusals} enqueues raised; nothing acknowledged is lost")


def _limit(store: Store, size: int) -> None:
    for server in store.servers:
        server.run("CONFIG", "SET", "maxmemory", size)
