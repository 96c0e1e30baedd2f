"""A schedule for every second, fired by processes that are killed again and again, on every durable store."""

import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from taskharbor import BackendUnavailable, Harbor, ScheduleInfo, ScheduleNotFound
from tests import lanes
from tests.flow.stores import STORES
from tests.flow.worker_processes import WORKERS, crew
from tests.schedules.killed_worker import program

SLOTS = lanes.figure(5, 40)
PATIENCE_S = 120.0  # without a new slot, after which the test gives up


def _cluster(folder: Path) -> str:
    from tests.servers import redis

    redis.shared_cluster().empty()
    return redis.shared_cluster().url


PLACES: dict[str, Callable[[Path], str | None]] = {
    **{name: STORES[name] for name in ("sqlite", "postgresql", "redis")},
    "cluster": _cluster,
}


@pytest.mark.left_to("full")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PLACES)
def test_slots_are_jobs_under_kills(name: str, tmp_path: Path) -> None:
    dsn = PLACES[name](tmp_path)
    assert dsn is not None, f"{name} cannot run here"
    chances, journal, kills = random.Random(lanes.seed()), tmp_path / "journal", 0
    with program(dsn) as harbor:
        with crew("tests.schedules.killed_worker", dsn, journal) as workers:
            fired, since = -1, time.monotonic()
            while fired < SLOTS:
                info = seen(harbor)
                if info is None or info.fired == fired:
                    assert time.monotonic() < since + PATIENCE_S, f"no slot after {fired}"
                    time.sleep(chances.uniform(0, 0.05))
                    continue
                fired, since = info.fired, time.monotonic()
                time.sleep(chances.uniform(0, 1))  # the next slot comes at any moment of this
                workers.kill(chances.randrange(WORKERS))
                kills += 1
        check(harbor)
    print(f"{name}: {fired} slots, {kills} kills")


def seen(harbor: Harbor) -> ScheduleInfo | None:
    try:
        return harbor.schedules.get("tick")
    except (ScheduleNotFound, BackendUnavailable):
        return None


def check(harbor: Harbor) -> None:
    """Each second from the first slot to the last has one job, and nothing was missed or skipped."""
    info = harbor.schedules.get("tick")
    assert (info.missed, info.skipped) == (0, 0)
    slots = sorted(datetime.fromisoformat(each.job.metadata["taskharbor.slot"]) for each in harbor.jobs(type="tick"))
    assert slots == [slots[0] + timedelta(seconds=number) for number in range(len(slots))]
    assert (len(slots), slots[-1]) == (info.fired, info.last_at)
