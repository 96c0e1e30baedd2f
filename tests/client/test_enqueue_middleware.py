"""Enqueue middleware: around every way to store jobs, and with the last word on what they carry."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from taskharbor import Client, Harbor, JobRequest
from taskharbor.client import EnqueueMiddleware, Stamp
from taskharbor.drivers import BackendUnavailable, JobRecord
from taskharbor.flow import chain
from taskharbor.testing import Faults
from tests.client.tools import Sql, Waits

pytestmark = pytest.mark.usefixtures("each_way")


def noting(log: list[str], name: str) -> EnqueueMiddleware:
    @contextmanager
    def middleware() -> Iterator[Stamp]:
        def stamp(records: list[JobRecord]) -> list[JobRecord]:
            log.append(f"{name} stamps {len(records)}")
            trail = [{**each.metadata, "by": each.metadata.get("by", "") + name} for each in records]
            return [
                msgspec.structs.replace(each, metadata=metadata) for each, metadata in zip(records, trail, strict=True)
            ]

        log.append(f"{name} enters")
        try:
            yield stamp
        except BaseException as error:
            log.append(f"{name} sees {type(error).__name__}")
            raise
        log.append(f"{name} leaves")

    return middleware


def test_the_first_is_outermost_and_the_records_pass_through_all():
    log: list[str] = []
    with Client("memory://", enqueue_middleware=[noting(log, "a"), noting(log, "b")]) as client:
        handle = client.enqueue(JobRequest(type="t", metadata={"own": "1"}))
        info = asyncio.run(client._store.driver.inspect(handle.id, client._store.clock.now()))
    assert log == ["a enters", "b enters", "b stamps 1", "a stamps 1", "b leaves", "a leaves"]
    assert info.job.metadata == {"own": "1", "by": "ba"}


def test_every_way_to_enqueue_runs_the_middleware():
    log: list[str] = []
    harbor = Harbor("memory://", enqueue_middleware=[noting(log, "a")])

    @harbor.task
    def task() -> None: ...

    with harbor:
        task.enqueue()
        harbor.enqueue_many([task.s(), task.s()])
        harbor.client.enqueue_many([JobRequest(type="t")] * 3)
        flow = chain(*[task.s()] * 4).enqueue()
        found = harbor.flow(flow.id)
    assert [line for line in log if "stamps" in line] == [f"a stamps {number}" for number in (1, 2, 3, 4)]
    assert [node.job.metadata["by"] for node in found.nodes] == ["a"] * 4


@pytest.mark.parametrize("asynchronous", [False, True])
def test_jobs_on_the_callers_connection_run_the_middleware(asynchronous: bool):
    log: list[str] = []
    harbor, stored = Harbor(Sql(), enqueue_middleware=[noting(log, "a")]), list[Any]()

    @harbor.task
    def task() -> None: ...

    with harbor:
        bound = task.options(connection=stored)
        if asynchronous:
            harbor._store.portal.call(bound.aenqueue, "enqueue")
        else:
            bound.enqueue()
    assert [job.metadata for job in stored] == [{"by": "a"}]
    assert log == ["a enters", "a stamps 1", "a leaves"]


def test_middleware_sees_the_failure_and_stamps_once_for_all_retries(waits: Waits):
    log: list[str] = []
    faults = Faults()
    with Client(faults.wrap("memory://"), enqueue_middleware=[noting(log, "a")]) as client:
        faults.fail("enqueue", times=2)
        client.enqueue(JobRequest(type="t"))
        assert log == ["a enters", "a stamps 1", "a leaves"]
        log.clear()
        faults.fail("enqueue", times=100)
        with pytest.raises(BackendUnavailable):
            client.enqueue(JobRequest(type="t"))
    assert log == ["a enters", "a stamps 1", "a sees BackendUnavailable"]


@pytest.mark.parametrize("wrong", ["fewer", "others"])
def test_middleware_must_not_change_which_jobs_there_are(wrong: str):
    @contextmanager
    def middleware() -> Iterator[Stamp]:
        yield lambda records: [] if wrong == "fewer" else [msgspec.structs.replace(records[0], id="x")]

    with (
        Client("memory://", enqueue_middleware=[middleware]) as client,
        pytest.raises(ValueError, match="the same jobs in the same order"),
    ):
        client.enqueue(JobRequest(type="t"))


def test_an_error_in_middleware_reaches_the_caller_and_nothing_is_stored():
    @contextmanager
    def middleware() -> Iterator[Stamp]:
        raise PermissionError("no tenant")
        yield

    with Client("memory://", enqueue_middleware=[middleware]) as client:
        with pytest.raises(PermissionError):
            client.enqueue(JobRequest(type="t", id="j"))
        assert client._store.portal.call(client._store.driver.queues, "queues") == []
