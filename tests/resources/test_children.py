"""process=True: what handlers need is opened in the child, once for its lifespan and once for each job."""

import os
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from taskharbor import Harbor
from taskharbor.policy.retry import Fixed
from taskharbor.testing import drain
from tests.resources import app
from tests.worker.workbench import Bench, heard_test, job, run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where child processes write their journal."""
    monkeypatch.setenv("FOLDER", str(tmp_path))
    monkeypatch.setattr(app, "FOLDER", tmp_path)
    return tmp_path


def lines(folder: Path, *, parent: bool = False) -> list[list[str]]:
    """Who wrote, what: in the order in which it was written."""
    found = [line.split() for line in (folder / "journal").read_text().splitlines()]
    return [[pid, word, what] for word, what, pid, _ in found if (pid == str(os.getpid())) is parent]


async def results(bench: Bench, *ids: str) -> list[Any]:
    return [msgspec.json.decode((await bench.info(id)).job.result or b"null") for id in ids]


def worker_on(bench: Bench, **options: Any) -> Any:
    worker = bench.worker(lifespan=app.resources, retry=Fixed(3600), **options)
    for task in app.harbor.tasks.values():
        worker._handlers.add(task.handler)
    return worker


@heard_test
async def test_a_child_enters_the_lifespan_once_and_leaves_it_when_the_worker_stops(bench: Bench, folder: Path) -> None:
    worker = worker_on(bench, concurrency=1)
    await bench.enqueue(job("a", "awaited"), job("b", "plain"), job("c", "without", payload=b'{"x":5}'))
    await bench.enqueue(job("d", "fails"))
    await worker.arun(until_empty=True)
    a, b, c = await results(bench, "a", "b", "c")
    child = a[0]
    assert child == b[0] == c[0] != os.getpid()
    assert (a[1:], b[1:], c[1:]) == (["session a", True], ["session b", True], [5])
    assert (await bench.info("d")).job.last_error.startswith("ValueError: of the handler")
    by_child = [line[1:] for line in lines(folder)]
    assert by_child[0] == ["enter", "-"]
    assert by_child[-1] == ["leave", "-"]
    assert Counter(word for word, *_ in by_child) == {"enter": 1, "leave": 1, "open": 3, "close": 3}
    assert [line[1] for line in lines(folder, parent=True)] == ["enter", "leave"]
    for id in "abd":
        assert by_child.index(["open", id]) < by_child.index(["close", id])


def test_a_child_whose_lifespan_fails_fails_its_job_and_ends(folder: Path) -> None:
    """The parent could enter its own; the next job gets another child."""
    (folder / "child-fails").touch()

    async def scene() -> None:
        bench = Bench()
        worker = worker_on(bench, concurrency=1)
        await bench.enqueue(job("a", "awaited"), job("b", "without", payload=b'{"x":5}'))
        await worker.arun(until_empty=True)
        for id in "ab":
            record = (await bench.info(id)).job
            assert record.last_error.startswith("LifespanFailed: the lifespan resources failed at app.py:")
            assert (record.attempts, record.lost) == (1, 0)
        assert [line[1] for line in lines(folder)] == ["enter", "enter"]
        assert len({line[0] for line in lines(folder)}) == 2

    run(scene())


def test_a_child_whose_lifespan_was_cancelled_fails_its_job(folder: Path) -> None:
    """It must not wait for ever."""
    (folder / "child-is-cancelled").touch()

    async def scene() -> None:
        bench = Bench()
        await bench.enqueue(job("a", "awaited"))
        await worker_on(bench).arun(until_empty=True)
        assert (await bench.info("a")).job.last_error.startswith("LifespanFailed: the lifespan resources failed at app")

    run(scene())


def test_children_enter_the_harbors_lifespan_where_the_workers_is_not_for_them(folder: Path) -> None:
    """`drain`, and a worker that shares what its program has opened, have lifespans that no child can import."""
    with Harbor("memory://", lifespan=app.resources) as harbor:
        task = harbor.task(name="again", process=True)(app.without.function)
        job = task.enqueue(5)
        assert drain(harbor) == 1
        child, five = job.result(1)
        assert (child != os.getpid(), five) == (True, 5)
        shared = app.Resources.__new__(app.Resources)
        job = task.enqueue(6)
        harbor.worker(lifespan=lambda: nullcontext(shared)).run(until_empty=True)
        assert job.result(1)[1] == 6
    assert [line[1] for line in lines(folder)] == ["enter", "leave"] * 2


def test_a_lifespan_that_no_child_can_import_is_refused_if_there_is_no_other(folder: Path) -> None:
    with Harbor("memory://") as harbor:
        task = harbor.task(name="again", process=True, max_attempts=1)(app.without.function)
        job = task.enqueue(5)
        harbor.worker(lifespan=lambda: nullcontext()).run(until_empty=True)
        assert "lifespan: process=True: expected functions that a child process can import" in job.info().job.last_error


def test_a_child_that_does_not_leave_is_killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskharbor.worker.child_processes.LEAVE_S", 0.5)
    (folder / "child-hangs").touch()

    async def scene() -> None:
        bench = Bench()
        await bench.enqueue(job("a", "awaited"))
        await worker_on(bench).arun(until_empty=True)
        child = (await results(bench, "a"))[0][0]
        assert [line[1] for line in lines(folder)] == ["enter", "open", "close", "leave"]
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)

    run(scene())


@heard_test
async def test_without_a_lifespan_a_plain_function_stays_in_the_main_thread_of_its_child(
    bench: Bench, folder: Path
) -> None:
    worker = bench.worker(concurrency=1)
    for function in (app.alone, app.mixed, app.coroutine):
        worker.register(function.__name__, function, process=True)
    await bench.enqueue(job("a", "alone"), job("b", "mixed"), job("c", "coroutine"))
    await worker.arun(until_empty=True)
    a, b, c = await results(bench, "a", "b", "c")
    assert a[1:] == ["plain a", True]
    assert b[1:] == ["plain b", "async b"]
    assert c[1:] == ["plain c", "async c"]
    (child,) = {a[0], b[0], c[0]}
    assert child != os.getpid()


@heard_test
async def test_call_middleware_of_a_child_is_in_the_thread_of_the_handler(bench: Bench, folder: Path) -> None:
    worker = bench.worker(call_middleware=[app.layer])
    worker.register("mixed", app.mixed, process=True)
    await bench.enqueue(job("b", "mixed"))
    await worker.arun(until_empty=True)
    assert await bench.state("b") == "done"
    layer, handler = lines(folder)
    assert (layer[1], handler[1]) == ("layer", "mixed")
    assert layer[2] == handler[2]


def test_an_override_reaches_the_child_if_it_can_be_imported_there() -> None:
    harbor = Harbor("memory://")
    task = harbor.task(name="alone", process=True, max_attempts=1)(app.alone)
    with harbor.override({app.db: app.fake_db}):
        job = task.enqueue()
        drain(harbor)
        assert job.result()[1] == "fake"
    with harbor.override({app.db: lambda: "local"}):
        job = task.enqueue()
        drain(harbor)
        assert "override: process=True: expected functions that a child process can import" in job.info().job.last_error
    job = task.enqueue()
    drain(harbor)
    assert job.result()[1] == f"plain {job.id}"
    harbor.close()
