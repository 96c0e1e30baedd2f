"""Supervised workers on a server whose machine has its clock set: no lease is lost, nothing runs twice, and a schedule
misses no slot."""

import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from taskharbor import Client, JobHandle, JobRequest
from tests.drivers.redis_stores import emptied
from tests.drivers.test_sqlite_clock import LIBRARY, until
from tests.servers import postgres

STORES = [pytest.param(name, marks=pytest.mark.lane(name)) for name in ("postgres", "redis")]
RENEWALS = 3
"""With a third of the lease between two of them, leases end meanwhile that a process judges by the wrong time."""


def dsn_of(store: str) -> str:
    return emptied() if store == "redis" else postgres.shared().address(postgres.shared().store())


@pytest.mark.left_to("full")
@pytest.mark.may_skip("libfaketime is for Linux: `tests/servers/provision faketime` installs it")
@pytest.mark.skipif(not LIBRARY, reason="no libfaketime")
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("seconds", [3600, -3600])
def test_supervised_workers_run_each_job_once(tmp_path: Path, store: str, seconds: int) -> None:
    dsn = dsn_of(store)
    (clock := tmp_path / "clock").write_text("+0\n")
    (starts := tmp_path / "starts").touch()
    (ticks := tmp_path / "ticks").touch()
    os.mkfifo(tmp_path / "go")
    environment = {
        **os.environ,
        "CLOCK_DSN": dsn,
        "CLOCK_FOLDER": str(tmp_path),
        "LD_PRELOAD": LIBRARY,
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    command = [sys.executable, "-m", "taskharbor", "worker", "run", "--app", "tests.drivers.clock_app:harbor"]
    options = ["--processes", "2", "--concurrency", "3", "--lease", "3", "--no-spare"]
    with Client(dsn) as client:
        held = [client.enqueue(JobRequest(type="hold")) for _ in range(4)]
        supervisor = subprocess.Popen([*command, *options], env=environment)
        try:
            until(lambda: len(starts.read_text().split()) == 4 and ticks.read_text())
            clock.write_text(f"{seconds:+}\n")
            until(lambda: abs(looked(client) - time.time()) > 1800)
            seen: dict[str, set[datetime | None]] = {each.id: set() for each in held}
            until(lambda: all(len(renewed(each, seen)) > RENEWALS for each in held))
            with (tmp_path / "go").open("wb"):  # all readers go on when it is closed
                pass
            for each in held:
                each.wait(timeout=60)
            before = len(ticks.read_text().split())
            until(lambda: len(ticks.read_text().split()) > before)
        finally:
            supervisor.terminate()
            supervisor.wait(60)
        assert sorted(starts.read_text().split()) == sorted(each.id for each in held)
        assert {each.info().job.deliveries for each in held} == {1}
        slots = [int(each) for each in ticks.read_text().split()]
        ended = max(before - 6, 0)  # the last ones may still have been on their way, in any order
        assert sorted(slots)[:ended] == [*range(min(slots), min(slots) + ended)]
        assert len(set(slots)) == len(slots)


def looked(client: Client) -> float:
    """The time of day as a handler reads it."""
    handle = client.enqueue(JobRequest(type="look"))
    handle.wait(timeout=60)
    return float(handle.result())


def renewed(handle: JobHandle[Any], seen: dict[str, set[datetime | None]]) -> set[datetime | None]:
    """The ends that the lease of a job was seen to have."""
    seen[handle.id].add(handle.info().lease_expires_at)
    return seen[handle.id]
