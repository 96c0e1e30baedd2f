"""Dead letters worked off from the shell alone, on every store, while further jobs die and the operation is killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskharbor.drivers import Fail, JobRecord, Reserved, open_driver
from taskharbor.drivers.base import Driver
from tests.flow.stores import STORES
from tests.lanes import figure

KINDS = 40
DEAD = figure(test=400, full=20_000)
SPREAD_S = figure(test=20, full=30)
REST_S = figure(test=4, full=20)
MEANT = "kind-07"
PATIENCE_S = figure(test=200, full=1200)
LEASE = timedelta(minutes=5)
BATCH_JOBS = 500


def _cluster(folder: Path) -> str | None:
    from tests.servers import redis

    cluster = redis.shared_cluster()
    cluster.empty()
    return cluster.url


PLACES = {**{name: STORES[name] for name in ("sqlite", "postgresql", "redis")}, "cluster": _cluster}


class Graveyard:
    """Lets jobs die in a store: before the triage, and all through it."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._stop = threading.Event()
        self.later: list[str] = []
        """The ids of jobs that died while the operation ran."""

    def fill(self) -> None:
        """The dead jobs of before: `DEAD` of `KINDS` kinds."""
        asyncio.run(self._fill())

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Let further jobs of the very kind that is requeued die, until the block ends."""
        thread = threading.Thread(target=lambda: asyncio.run(self._storm()))
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(PATIENCE_S)

    async def _fill(self) -> None:
        driver = await self._open()
        for first in range(0, DEAD, BATCH_JOBS):
            numbers = range(first, min(first + BATCH_JOBS, DEAD))
            await self._kill(driver, [(f"dead-{number:06}", "mail", number) for number in numbers])
        await driver.close()

    async def _storm(self) -> None:
        driver, number = await self._open(), 0
        while not self._stop.is_set():
            number += 1
            id = f"later-{number:06}"
            await self._kill(driver, [(id, "storm", 7)])
            self.later.append(id)
            await asyncio.sleep(0.05)
        await driver.close()

    async def _open(self) -> Driver:
        driver = open_driver(self._dsn)
        await driver.open()
        return driver

    async def _kill(self, driver: Driver, jobs: list[tuple[str, str, int]]) -> None:
        """Enqueue jobs and settle them as dead. No worker serves the queues at that time, or their names."""
        now = await driver.server_time()
        records = [
            JobRecord(id=id, type="mail.send", queue=queue, payload=json.dumps({"number": number}).encode())
            for id, queue, number in jobs
        ]
        await driver.enqueue(records, now)
        left = {id: number for id, _, number in jobs}
        while left:
            batch = await driver.reserve((jobs[0][1],), now, LEASE, len(left), "graveyard")
            outcomes = [self._death(each, left.pop(each.job.id)) for each in batch]
            assert await driver.settle(outcomes, now) == [None] * len(batch)

    def _death(self, reserved: Reserved, number: int) -> Fail:
        kind = f"kind-{number % KINDS:02}"
        error = f"error {number % 10}"
        return Fail(reserved.lease, "failed 1 of 1 attempts", 1, reserved.job.created_at, error, (), error, kind)


class Shell:
    """Types commands of `taskharbor`, as Ada."""

    def __init__(self, dsn: str) -> None:
        self.environment = {**os.environ, "TASKHARBOR_DSN": dsn, "TRIAGE_DSN": dsn, "TASKHARBOR_BY": "ada"}

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "taskharbor", *words]
        return subprocess.Popen(
            command,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def run(self, *words: str) -> str:
        process = self.start(*words)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, f"{words}: {err}"
        return out

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--output", "json"))

    @contextmanager
    def worker(self) -> Iterator[None]:
        process = subprocess.Popen(
            [sys.executable, "-m", "taskharbor", "worker", "run", "--app", "tests.bulk.triage_app:harbor"],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)

    def wait_for(self, operation: str, condition: Callable[[Any], bool]) -> Any:
        """The operation, once it is as wanted."""
        found: Any = None

        def is_so() -> bool:
            nonlocal found
            found = self.json("dlq", "operations", "show", operation)
            return condition(found)

        self.until(is_so)
        return found

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that another process does: the store is all that shows it."""
        until = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < until
            time.sleep(0.1)


def count(shell: Shell, *filters: str) -> int:
    return len(shell.run("dlq", "export", *filters).splitlines())


@pytest.mark.left_to("full")
@pytest.mark.parametrize("store", PLACES)
def test_dead_letters_are_worked_off_from_the_shell(store: str, tmp_path: Path) -> None:
    dsn = PLACES[store](tmp_path)
    assert dsn is not None
    graveyard, shell = Graveyard(dsn), Shell(dsn)
    graveyard.fill()
    of_kind = DEAD // KINDS

    summary = shell.json("dlq", "summary", "--limit", "100")
    assert len(summary["rows"]) == KINDS
    assert summary["complete"] is (DEAD <= 10_000)
    sample = next(row["sample"]["id"] for row in summary["rows"] if row["value"] == MEANT)
    assert shell.json("dlq", "show", sample)["fingerprint"] == MEANT
    assert shell.json("dlq", "requeue", "--fingerprint", MEANT, "--dry-run")["jobs"] == min(of_kind, 10_000)
    edited = shell.json("dlq", "edit", sample, "--json", '{"number": 4711}')
    assert edited["requeued"] is False

    with shell.worker():
        wanted = ("--fingerprint", MEANT, "--canary", "5", "--spread", f"{SPREAD_S}s", "--yes")
        operator = shell.start("dlq", "requeue", *wanted)
        try:
            operation = _begun(shell)
            with graveyard.going_on():
                shell.wait_for(operation, lambda found: found["done"] > 5 or found["status"] != "running")
                operator.kill()  # in the middle: nobody tells the store
                resumed = shell.start("dlq", "operations", "resume", operation)
                ended = shell.wait_for(operation, lambda found: found["status"] != "running")
                resumed.communicate(timeout=PATIENCE_S)
        finally:
            operator.kill()
            operator.communicate()
        assert ended["status"] == "done"
        assert graveyard.later
        shell.until(lambda: shell.json("inspect", sample)["state"] == "done")  # the newest of its kind runs last
    _check_outcome(shell, graveyard, sample, of_kind)


def _begun(shell: Shell) -> str:
    """The id of the operation that another process has just begun."""
    found: list[str] = []

    def has_begun() -> bool:
        entries = shell.json("audit", "--by", "ada")["entries"]
        found.extend(entry["id"] for entry in entries if entry["action"] == "requeue")
        return bool(found)

    shell.until(has_begun)
    return found[0]


def _check_outcome(shell: Shell, graveyard: Graveyard, sample: str, of_kind: int) -> None:
    """What was meant is done, and nothing else was touched."""
    left = [json.loads(line) for line in shell.run("dlq", "export", "--fingerprint", MEANT).splitlines()]
    assert sorted(each["id"] for each in left) == graveyard.later  # what died later, and only that
    assert {each["deliveries"] for each in left} == {1}
    assert count(shell, "--queue", "mail") == DEAD - of_kind
    mended = shell.json("inspect", sample, "--show-payload")
    assert (mended["state"], mended["payload"], mended["deliveries"]) == ("done", {"number": 4711}, 2)
    entries = shell.json("audit", "--by", "ada")["entries"]
    (requeue,) = [entry for entry in entries if entry["action"] == "requeue"]
    assert requeue["status"] == "done"
    assert requeue["filter"]["fingerprint"] == MEANT
    assert [entry["action"] for entry in entries if entry["action"] == "amend"] == ["amend"]

    deleted = shell.json("dlq", "delete", "--error", "error 3", "--queue", "mail", "--yes")["operation"]
    assert (deleted["status"], deleted["done"]) == ("done", DEAD // 10)
    left_over = DEAD - of_kind - DEAD // 10
    assert count(shell, "--queue", "mail") == left_over

    began = time.monotonic()
    brought_back = shell.json("dlq", "requeue", "--queue", "mail", "--spread", f"{REST_S}s", "--yes")["operation"]
    assert (brought_back["status"], brought_back["done"], brought_back["skipped"]) == ("done", left_over, 0)
    assert time.monotonic() - began >= REST_S / 2  # its last jobs were sent in the last of its windows
    assert count(shell, "--queue", "mail") == 0
    assert count(shell, "--queue", "storm") == len(graveyard.later)
