"""Other functions in the place of dependencies, for the length of a block."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from taskharbor import Depends, Given, Harbor, JobContext
from taskharbor.testing import drain


class Service:
    def session(self) -> str:
        return "real method"


service = Service()


async def session() -> AsyncIterator[str]:
    yield "real session"


def repository(db: str = Depends(session)) -> str:
    return f"repository on {db}"


def other() -> str:
    return "other"


@asynccontextmanager
async def resources() -> AsyncIterator[str]:
    raise AssertionError("the real resources")
    yield ""


def ran(harbor: Harbor) -> Any:
    job = harbor.tasks["t"].enqueue()
    assert drain(harbor) == 1
    return job.result()


def harbor_with(lifespan: Any = None) -> Harbor:
    harbor = Harbor("memory://", lifespan=lifespan)

    @harbor.task(name="t")
    def read(repository: str = Depends(repository), method: str = Depends(service.session)) -> str:
        return f"{repository}, {method}"

    return harbor


def test_what_a_dependency_needs_is_replaced_wherever_it_is_needed() -> None:
    harbor = harbor_with()
    assert ran(harbor) == "repository on real session, real method"
    with harbor.override({session: lambda: "fake"}):
        assert ran(harbor) == "repository on fake, real method"
    assert ran(harbor) == "repository on real session, real method"
    harbor.close()


def test_a_bound_method_is_the_same_each_time_it_is_read() -> None:
    harbor = harbor_with()
    with harbor.override({service.session: lambda: "fake"}):
        assert ran(harbor) == "repository on real session, fake"
    harbor.close()


def test_a_replacement_may_be_of_any_kind_and_have_its_own_dependencies() -> None:
    harbor = harbor_with()
    closed: list[str] = []

    async def fake_async(ctx: JobContext) -> AsyncIterator[str]:
        yield f"async fake of {ctx.job.type}"
        closed.append("async")

    def fake_plain(base: str = Depends(other)) -> Iterator[str]:
        yield f"fake of {base}"
        closed.append("plain")

    with harbor.override({session: fake_async, repository: fake_plain}):
        assert ran(harbor) == "fake of other, real method"
    with harbor.override({session: fake_async}):
        assert ran(harbor) == "repository on async fake of t, real method"
    assert closed == ["plain", "async"]
    harbor.close()


def test_blocks_may_be_nested_and_end_with_an_exception() -> None:
    harbor = harbor_with()
    with harbor.override({session: lambda: "outer", service.session: lambda: "outer"}):
        try:
            with harbor.override({session: lambda: "inner"}):
                assert ran(harbor) == "repository on inner, outer"
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        assert ran(harbor) == "repository on outer, outer"
    assert ran(harbor) == "repository on real session, real method"
    harbor.close()


def test_blocks_that_overlap_end_one_by_one() -> None:
    """As where tests run at once: the end of one neither ends nor keeps the other."""
    harbor = harbor_with()
    first = harbor.override({session: lambda: "first", service.session: lambda: "first"})
    second = harbor.override({session: lambda: "second"})
    first.__enter__()
    second.__enter__()
    assert ran(harbor) == "repository on second, first"
    first.__exit__(None, None, None)
    assert ran(harbor) == "repository on second, real method"
    second.__exit__(None, None, None)
    assert ran(harbor) == "repository on real session, real method"
    harbor.close()


def test_the_lifespan_is_replaced_by_itself() -> None:
    harbor = harbor_with(resources)

    @harbor.task(name="given")
    def given(app: str = Given()) -> str:
        return app

    @asynccontextmanager
    async def fake() -> AsyncIterator[str]:
        yield "fake resources"

    with harbor.override({resources: fake}):
        jobs = [given.enqueue(), given.enqueue()]
        drain(harbor)
        jobs.append(given.enqueue())
        harbor.worker().run(until_empty=True)
        assert [job.result() for job in jobs] == ["fake resources"] * 3
    given.enqueue()
    with pytest.raises(AssertionError, match="the real resources"):
        drain(harbor)
    harbor.close()


def test_a_worker_that_runs_already_uses_it_for_the_jobs_that_begin() -> None:
    harbor = harbor_with()
    worker = harbor.worker()
    job = harbor.tasks["t"].enqueue()
    with harbor.override({session: lambda: "fake"}):
        worker.run(until_empty=True)
    assert job.result() == "repository on fake, real method"
    harbor.close()


def wants_a_value(limit: int) -> int:
    return limit


@pytest.mark.parametrize(
    ("replacements", "error", "told"),
    [
        ({session: "fake"}, TypeError, "expected a function in the place of session, got str; write lambda: …"),
        ({other: lambda: ""}, ValueError, "nothing depends on other; expected the lifespan, or a function that a task "
         r"names in Depends\(…\): Service.session, repository, session"),
        ([session], TypeError, "expected a dict such as .*, got list"),
    ],
)  # fmt: skip
def test_an_override_that_would_do_nothing_is_refused(replacements: Any, error: type[Exception], told: str) -> None:
    harbor = harbor_with()
    with pytest.raises(error, match=told), harbor.override(replacements):
        raise AssertionError("the block must not begin")


def test_a_replacement_that_cannot_work_fails_its_jobs_by_name() -> None:
    harbor = harbor_with()
    with harbor.override({session: wants_a_value}):
        job = harbor.tasks["t"].enqueue()
        with pytest.raises(TypeError, match="t: parameter 'limit' of the dependency wants_a_value has no value"):
            drain(harbor)
    assert job.status() == "ready"
    harbor.close()
