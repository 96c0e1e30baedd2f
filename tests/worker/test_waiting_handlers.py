"""A handler that waits for another job keeps its slot: without a limit of time that is refused, of every colour."""

from pathlib import Path
from typing import Any

import pytest

from taskharbor import BlockingCall, Harbor, JobDead
from taskharbor.flow import chain
from taskharbor.store import jobs
from tests.worker import waiting_handlers as handlers

COLOURS = {
    "plain": handlers.plain,
    "coroutine": handlers.coroutine,
    "own loop": handlers.own_loop,
    "process": handlers.process,
}


@pytest.fixture
def harbor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The harbor of the handlers on a store that child processes share."""
    dsn = f"sqlite:///{tmp_path}/jobs.db"
    monkeypatch.setenv("WAITING_STORE", dsn)
    before = handlers.harbor._store.drivers
    handlers.harbor._store.use(dsn)
    yield handlers.harbor
    handlers.harbor.close()
    handlers.harbor._store.drivers = before


@pytest.mark.parametrize("flow", [False, True], ids=["job", "flow"])
@pytest.mark.parametrize("colour", COLOURS)
def test_a_wait_without_a_timeout_is_refused_with_a_hint(harbor: Harbor, colour: str, flow: bool) -> None:
    handle = COLOURS[colour].enqueue(flow, None)
    harbor.worker(concurrency=1).run(until_empty=True)
    with pytest.raises(JobDead) as caught:
        handle.result(1)
    assert caught.value.error_class == "taskharbor.BlockingCall"
    for word in ("in a handler", "slot", "return chain(…)", "timeout=…"):
        assert word in str(caught.value)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_wait_with_a_timeout_is_allowed(harbor: Harbor, colour: str) -> None:
    handle = COLOURS[colour].enqueue(False, 0.05)
    harbor.worker(concurrency=1).run(until_empty=True)
    with pytest.raises(JobDead) as caught:
        handle.result(1)
    assert caught.value.error_class == "TimeoutError"


def test_a_finished_result_is_read_without_waiting(harbor: Harbor) -> None:
    ended = handlers.leaf.enqueue()
    harbor.worker().run(until_empty=True)
    handle = handlers.finished.enqueue(ended.id)
    harbor.worker().run(until_empty=True)
    assert handle.result(1) == 7


def test_a_thread_that_a_handler_starts_may_wait(harbor: Harbor) -> None:
    handle = handlers.beside.enqueue()
    harbor.worker(concurrency=1).run(until_empty=True)
    assert handle.status() == "done"
    assert handlers.answers.get(timeout=60) == 7


def test_outside_of_handlers_waiting_is_allowed(harbor: Harbor) -> None:
    handle = handlers.leaf.enqueue()
    with pytest.raises(TimeoutError):
        handle.result(0)
    harbor.worker().run(until_empty=True)
    assert handle.result() == 7


# What a timeout says


def test_a_timeout_says_that_no_worker_serves_the_queue(harbor: Harbor) -> None:
    job = handlers.leaf.options(queue="vip").enqueue()
    flow = chain(handlers.leaf.s().options(queue="vip"), handlers.leaf.s()).enqueue()
    told = "no worker has served its queue 'vip' in the last minute; start one"
    with pytest.raises(TimeoutError, match=f"^job {job.id} is ready after 0 seconds; {told}"):
        job.result(0)
    with pytest.raises(TimeoutError, match=f"^flow {flow.id} runs after 0 seconds; {told}"):
        flow.result(0)


def test_a_timeout_does_not_say_so_if_a_worker_serves_it(harbor: Harbor) -> None:
    seen: list[str] = []

    @harbor.task(name="asks")
    def asks() -> None:
        waits = handlers.leaf.enqueue()
        try:
            waits.result(0)
        except TimeoutError as error:
            seen.append(str(error))

    asks.enqueue()
    harbor.worker(concurrency=1).run(until_empty=True)
    del harbor.tasks["asks"], harbor.handlers._handlers["asks"]
    (told,) = seen
    assert told.endswith("is ready after 0 seconds; it goes on, ask again later")


def test_a_store_that_cannot_list_workers_changes_nothing(harbor: Harbor, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any) -> Any:
        raise BlockingCall("away")

    monkeypatch.setattr(jobs, "is_served", away)
    handle = handlers.leaf.enqueue()
    with pytest.raises(TimeoutError, match="it goes on, ask again later"):
        handle.result(0)
    scheduled = handlers.leaf.options(delay=60).enqueue()
    with pytest.raises(TimeoutError, match="is scheduled after 0 seconds; it goes on, ask again later"):
        scheduled.result(0)
