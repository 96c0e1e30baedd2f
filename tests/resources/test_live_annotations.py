"""Injected parameters in a module whose annotations are objects: here is no `from __future__ import annotations`."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Annotated, Any, Optional

import pytest
from typing_extensions import TypeAliasType

from taskharbor import Depends, Harbor, JobContext
from taskharbor.testing import drain


def number() -> int:
    return 7


class Request:
    """Stands for Litestar's, which is generic."""

    __module__ = "litestar.connection"

    def __class_getitem__(cls, user: Any) -> Any:
        from types import GenericAlias

        return GenericAlias(cls, (user,))


Number = Annotated[int, Depends(number)]
Alias = TypeAliasType("Alias", Annotated[int, Depends(number)])  # what the `type` statement of Python 3.12 makes
AliasOfAlias = TypeAliasType("AliasOfAlias", Alias | None)
Context = TypeAliasType("Context", JobContext)


def in_a_union(x: int, n: Number | None = None) -> list[Any]:
    return [x, n]


def in_an_optional(x: int, n: Optional[Number] = None) -> list[Any]:  # noqa: UP045 - as many programs write it
    return [x, n]


def by_an_alias(x: int, n: Alias) -> list[Any]:
    return [x, n]


def by_an_alias_of_an_alias(x: int, n: AliasOfAlias = None) -> list[Any]:
    return [x, n]


async def with_a_context_by_an_alias(ctx: Context, x: int, n: Alias) -> list[Any]:
    assert isinstance(ctx, JobContext)
    return [x, n]


@pytest.mark.parametrize(
    "function",
    [in_a_union, in_an_optional, by_an_alias, by_an_alias_of_an_alias, with_a_context_by_an_alias],
    ids=lambda function: function.__name__,
)
def test_a_marker_is_found_wherever_an_annotation_holds_it(function: Callable[..., Any]) -> None:
    harbor = Harbor("memory://")
    task = harbor.task(function)
    with pytest.raises(TypeError, match="'n'"):
        task.enqueue(1, n=2)
    job = task.enqueue(1)
    drain(harbor)
    assert job.result() == [1, 7]
    harbor.close()


def test_a_generic_request_is_refused_by_its_name() -> None:
    def user(request: Request[int]) -> None: ...  # type: ignore[type-arg]  # see the class

    def task(user: None = Depends(user)) -> None: ...

    with pytest.raises(TypeError, match=r"parameter 'request' of the dependency .*user asks for Request"):
        Harbor("memory://").task(task)


def awaited_later(function: Callable[[], Coroutine[Any, Any, int]]) -> Callable[[], Any]:
    """A decorator whose wrapper is a plain function: some return the coroutine, some a value."""

    @wraps(function)
    def wrapper() -> Any:
        coroutine = function()
        if wrapper.returns_value:  # type: ignore[attr-defined]  # set below
            coroutine.close()
            return 8
        return coroutine

    wrapper.returns_value = False  # type: ignore[attr-defined]  # a switch of this test
    return wrapper


@awaited_later
async def decorated() -> int:
    return 7


@pytest.mark.parametrize("returns_value", [False, True])
def test_a_wrapper_of_a_coroutine_function_may_be_plain(returns_value: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decorated, "returns_value", returns_value)
    harbor = Harbor("memory://")

    @harbor.task
    def work(n: int = Depends(decorated)) -> int:
        return n

    job = work.enqueue()
    drain(harbor)
    assert job.result() == (8 if returns_value else 7)
    harbor.close()
