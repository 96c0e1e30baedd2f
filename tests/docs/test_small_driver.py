"""A driver that lacks every optional part, the template: workers and clients do without them, or say so."""

import asyncio
import importlib
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskharbor import Fixed, Harbor, JobContext
from taskharbor.drivers import FeatureMissing, State
from tests.docs.test_driver_template import TEMPLATE


@pytest.fixture
def harbor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Harbor]:
    monkeypatch.syspath_prepend(str(TEMPLATE / "src"))
    driver: Any = importlib.import_module("taskharbor_mystore").MyStoreDriver(f"mystore://{tmp_path}/jobs.db")
    assert driver.lacks() == {"upcoming", "amend", "flows", "figures", "audit", "schedules", "steps", "attempts"}
    harbor = Harbor(driver)
    yield harbor
    harbor.close()
    for name in [name for name in sys.modules if name.startswith("taskharbor_mystore")]:
        del sys.modules[name]


def test_a_worker_runs_retries_and_buries(harbor: Harbor) -> None:
    """With progress, errors, results and a flow: everything that needs no optional part is as ever."""
    tries: list[int] = []

    @harbor.task(name="sum")
    def add(a: int, b: int) -> int:
        return a + b

    @harbor.task(name="flaky", max_attempts=3, retry=Fixed(0))
    def flaky(ctx: JobContext) -> str:
        tries.append(ctx.job.attempts)
        ctx.progress(1, 2, "half")
        if len(tries) < 3:
            raise RuntimeError("not yet")
        return "at last"

    @harbor.task(name="dies", max_attempts=1)
    def dies() -> None:
        raise ValueError("never")

    one, two, three = add.enqueue(2, 3), flaky.enqueue(), dies.enqueue()
    asyncio.run(harbor.worker(poll_interval=0.01).arun(until_empty=True))
    assert (one.result(), two.result(), len(tries)) == (5, "at last", 3)
    assert three.status() is State.DLQ
    three.requeue()
    assert three.status() is State.READY
    three.cancel()
    assert three.status() is State.CANCELLED


def test_a_client_says_what_is_missing(harbor: Harbor) -> None:
    @harbor.task(name="sum")
    def add(a: int, b: int) -> int:
        return a + b

    handle = add.options(delay=timedelta(hours=1)).enqueue(1, 2)
    assert [info.job.id for info in harbor.jobs(type=add)] == [handle.id]
    assert harbor.job(handle.id).status() is State.SCHEDULED
    for call in (
        lambda: handle.amend(priority=5),
        lambda: list(harbor.jobs(error="ValueError")),
        lambda: list(harbor.flows()),
    ):
        with pytest.raises(FeatureMissing, match="MyStoreDriver does not"):
            call()
    handle.delete()
    assert list(harbor.jobs()) == []
