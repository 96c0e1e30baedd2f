"""Injected parameters as a task declares them: found at declaration, never part of a payload, never lacking."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from taskharbor import Depends, Given, Harbor, InvalidJob, JobContext, JobInfo, JobRequest
from taskharbor.flow import chain
from taskharbor.tasks.handler import Handler
from taskharbor.testing import drain, enqueued

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]  # for the type checker alone, as in many programs


class Session:
    pass


opened: list[str] = []


def session() -> Iterator[Session]:
    opened.append("session")
    yield Session()


def noted() -> str:
    opened.append("noted")
    return "injected"


def test_a_function_with_the_signature_of_another() -> None:
    """As decorators make them that leave `__wrapped__` out."""

    def mine(number: int, text: str = Depends(noted)) -> None: ...

    def shown(*args: Any, **kwargs: Any) -> str:
        return f"{args} {kwargs}"

    shown.__signature__ = inspect.signature(mine)  # type: ignore[attr-defined]  # Python allows it
    shown.__annotations__ = {}
    harbor = Harbor("memory://")
    job = harbor.task(shown).enqueue(1)
    drain(harbor)
    assert job.result() == "(1, 'injected') {}"


async def asession(inner: Session = Depends(session)) -> AsyncIterator[Session]:
    yield inner


SessionDep = Annotated[Session, Depends(session)]


@asynccontextmanager
async def gives_a_session() -> AsyncIterator[Session]:
    yield Session()


def by_default(user: int, db: Session = Depends(session)) -> None: ...
def by_keyword(user: int, *, db: Session = Depends(session)) -> None: ...
def annotated(db: Annotated[Session, Depends(session)], user: int) -> None: ...
def aliased(db: SessionDep, user: int) -> None: ...
def named_only_for_types(user: int, db: Unknown = Depends(session)) -> None: ...
def several(ctx: JobContext, user: int, db: Session = Depends(session), app: Session = Given()) -> None: ...
def optional(user: int, db: SessionDep | None = None) -> None: ...
async def awaited(user: int, db: Session = Depends(asession)) -> None: ...
def plain(user: int, name: str = "x", tags: tuple[str, ...] = ()) -> None: ...


INJECTED = [by_default, by_keyword, annotated, aliased, named_only_for_types, several, optional, awaited]


@pytest.mark.parametrize("function", INJECTED)
def test_an_injected_parameter_is_no_argument_of_a_call(function: Any) -> None:
    harbor = Harbor("memory://")
    task = harbor.task(name="t")(function)
    task.enqueue(42)
    task.enqueue(user=42)
    assert [job.payload for job in enqueued(harbor, task)] == [b'{"user":42}'] * 2
    with pytest.raises(TypeError, match=r"t: unexpected parameter 'db': it is injected when a worker runs the job"):
        task.enqueue(42, db=Session())
    with pytest.raises(TypeError, match=r"missing parameter 'user'; its signature is \(user: int\)"):
        task.enqueue()
    with pytest.raises(TypeError, match="expected at most 1 positional argument, got 2"):
        task.enqueue(42, Session())
    harbor.close()


@pytest.mark.parametrize("function", INJECTED)
def test_an_injected_parameter_is_found_when_the_task_is_declared(function: Any) -> None:
    handler = Handler("t", function)
    assert handler.is_resolved
    assert handler.injection is not None
    assert not handler.is_direct


@pytest.mark.parametrize("function", [plain, lambda ctx, a: None, print])
def test_other_tasks_have_nothing_to_inject(function: Any) -> None:
    handler = Handler("t", function)
    assert handler.injection is None
    assert not handler.is_special


def test_an_annotation_that_names_something_further_down_may_hold_one() -> None:
    """As where tasks are declared above what they need."""
    module = SimpleNamespace()
    code = """
from __future__ import annotations
from typing import Annotated
from taskharbor import Depends, Harbor
harbor = Harbor("memory://")
@harbor.task(name="t")
async def task(user: int, db: Later) -> str:
    return f"{user} {db}"
def made() -> str:
    return "made"
Later = Annotated[str, Depends(made)]
"""
    sys.modules["tests.resources.further_down"] = module  # type: ignore[assignment]  # only its names are read
    try:
        vars(module)["__name__"] = "tests.resources.further_down"
        exec(code, vars(module))
        assert not module.task.handler.is_resolved
        job = module.task.enqueue(42)
        assert drain(module.harbor) == 1
        assert job.result() == "42 made"
        assert module.task.handler.is_resolved
        module.harbor.close()
    finally:
        del sys.modules["tests.resources.further_down"]


# A payload cannot replace it


def rest_of(user: int, db: str = Depends(noted), **rest: str) -> str:
    return db + str(rest)


def keyword_rest(*, db: str = Depends(noted), ctx: JobContext, **rest: str) -> str:
    return db + str(rest)


def nothing_injected(*, ctx: JobContext, **rest: str) -> str:
    return str(rest)


@pytest.mark.parametrize(
    ("function", "payload"),
    [
        (nothing_injected, '{"rest": {"ctx": "stolen"}}'),
        (nothing_injected, '{"ctx": "stolen"}'),
        (by_default, '{"user": 1, "db": "stolen"}'),
        (annotated, '{"user": 1, "db": "stolen"}'),
        (several, '{"user": 1, "app": "stolen"}'),
        (rest_of, '{"user": 1, "db": "stolen"}'),
        (rest_of, '{"user": 1, "rest": {"db": "stolen"}}'),
        (keyword_rest, '{"rest": {"db": "stolen"}}'),
        (keyword_rest, '{"db": "stolen"}'),
        (keyword_rest, '{"rest": {"ctx": "stolen"}}'),
    ],
)
def test_a_payload_cannot_give_an_injected_parameter_or_the_context(function: Any, payload: str) -> None:
    """Another program may have stored it, by type and payload. The job is dead at once: nothing is called."""
    opened.clear()
    harbor = Harbor("memory://", lifespan=gives_a_session)
    harbor.task(name="t")(function)
    harbor.client.enqueue(JobRequest(type="t", payload=json.loads(payload)))
    drain(harbor)
    (job,) = list(harbor.jobs())
    assert job.state == "dlq"
    assert job.job.attempts == 1
    assert re.search(r"(unexpected|there is no) parameter '(db|app|ctx)'", job.job.reason), job.job.reason
    assert opened == []
    assert "stolen" not in job.job.reason + job.job.last_error
    harbor.close()


def test_names_that_are_free_still_reach_the_rest() -> None:
    harbor = Harbor("memory://")
    task = harbor.task(name="t")(rest_of)
    job = task.enqueue(1, colour="red")
    with pytest.raises(TypeError, match="unexpected parameter 'db': it is injected"):
        task.enqueue(1, db="stolen")
    with pytest.raises(TypeError, match="unexpected parameter 'ctx': it receives the context"):
        harbor.task(name="k")(keyword_rest).enqueue(ctx="stolen")  # type: ignore[arg-type]  # wrong on purpose
    drain(harbor)
    assert job.result() == "injected{'colour': 'red'}"
    harbor.close()


def test_an_injected_parameter_cannot_be_amended() -> None:
    harbor = Harbor("memory://")
    task = harbor.task(name="t")(by_default)
    job = task.enqueue(1)
    with pytest.raises((TypeError, InvalidJob), match="unexpected parameter 'db'"):
        job.amend(payload={"db": "stolen"})
    job.amend(payload={"user": 2})
    assert enqueued(harbor, task, user=2)
    harbor.close()


# Workflows


def test_an_injected_parameter_is_never_lacking_in_a_flow() -> None:
    harbor = Harbor("memory://")

    @harbor.task
    def fetch() -> int:
        return 7

    @harbor.task
    def store(user: int, db: str = Depends(lambda: "db"), other: str = Depends(lambda: "other")) -> str:
        return f"{user} {db} {other}"

    assert store.s()._lacking() == ("user",)
    assert store.s(1)._lacking() == ()
    run = chain(fetch.s(), store.s()).enqueue()
    drain(harbor)
    assert run.result() == "7 db other"
    harbor.close()


def test_an_on_dead_task_may_have_injected_parameters() -> None:
    harbor = Harbor("memory://")
    seen: list[str] = []

    @harbor.on_dead("*")
    def mourn(info: JobInfo, how: Annotated[str, Depends(lambda: "loudly")]) -> None:
        seen.append(f"{info.job.reason} {how}")

    @harbor.task(max_attempts=1, name="fails")
    def fails() -> None:
        raise ValueError("no")

    fails.enqueue()
    drain(harbor)
    assert seen == ["failed 1 of 1 attempts loudly"]
    harbor.close()


# A direct call


def test_a_direct_call_has_to_give_injected_parameters() -> None:
    harbor = Harbor("memory://")

    @harbor.task(name="shop.sync")
    def sync(user: int, db: str = Depends(lambda: "injected"), app: str = Given()) -> str:
        return f"{user} {db} {app}"

    assert sync(1, "mine", app="here") == "1 mine here"
    with pytest.raises(TypeError, match=r"shop.sync: parameter '(db|app)' is injected .* sync\(…, (db|app)=…\)"):
        sync(1)
    with pytest.raises(TypeError, match="parameter 'app' is injected"):
        sync(1, db="mine")


def test_a_dependency_that_is_called_directly_says_why_it_has_no_value() -> None:
    def pool(app: Any = Given(), db: Any = Depends(session)) -> Any:
        return app.pool, db

    with pytest.raises(AttributeError, match=r"Given\(\) has no attribute 'pool': a worker replaces it"):
        pool()
    with pytest.raises(AttributeError, match=r"Depends\(session\) has no attribute 'execute'"):
        inspect.signature(pool).parameters["db"].default.execute()


# Mistakes, found at declaration


def ring_a(b: RingB = 0) -> int:
    return b


def ring_b(a: int = Depends(ring_a)) -> int:
    return a


RingB = Annotated[int, Depends(ring_b)]


def needs_a_value(limit: int) -> int:
    return limit


def positional_only(app: Session = Given(), /) -> Session:
    return app


def without_brackets(app: Session = Given) -> Session:  # type: ignore[assignment]  # the mistake under test
    return app


def cannot_be_chosen(app: Unknown = Given()) -> None: ...


@pytest.mark.parametrize(
    ("declare", "told"),
    [
        (lambda: Depends(ring_b), "t: its dependencies need each other: ring_b → ring_a → ring_b"),
        (lambda: Depends(needs_a_value), "t: parameter 'limit' of the dependency needs_a_value has no value"),
        (lambda: Depends(positional_only), "t: parameter 'app' of the dependency positional_only: expected one that"),
        (
            lambda: Depends(without_brackets),
            r"without_brackets: parameter 'app': expected Given\(\), got it",
        ),
        (lambda: Depends(cannot_be_chosen), r"cannot_be_chosen: Given\(\) is chosen by type, and its annotation"),
        (lambda: Depends, r"t: parameter 'db': expected Depends\(function\), got it without its brackets"),
        (lambda: Depends(Session()), "Depends: expected a function, got Session; name the function without calling"),  # type: ignore[call-overload]  # wrong on purpose
        (lambda: Depends(asession()), "Depends: expected a function, got async_generator"),  # type: ignore[call-overload]  # wrong on purpose
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_can_never_work_is_refused_at_declaration(declare: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):

        @Harbor("memory://").task(name="t")
        def task(user: int, db: Any = declare()) -> None: ...  # noqa: B008 - the default is what is tested


def test_a_coroutine_that_was_called_too_early_does_not_warn() -> None:
    async def made() -> int:
        return 1

    with pytest.raises(TypeError, match="expected a function, got coroutine"):
        Depends(made())  # type: ignore[call-overload]  # wrong on purpose
