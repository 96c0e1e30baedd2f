"""Handlers: what the worker calls for every job."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from taskharbor import Exponential, Harbor, InvalidJob
from taskharbor.model.codec import JsonCodec
from taskharbor.model.job import JobRecord
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.handler import Handler, HandlerRegistry, PayloadMismatch, load_reference

CONTEXT = JobContext(JobRecord(id="1", type="t"))
harbor = Harbor("memory://")


def plain(to: str, subject: str = "Hello") -> str:
    return f"{to}: {subject}"


async def coroutine(ctx: JobContext, a: int) -> int:
    return a


def only_context(ctx: JobContext) -> None: ...
def named_context(*, ctx: JobContext) -> None: ...
def everything(a: int, /, ctx: JobContext, b: int = 2, *rest: int, c: int = 3, **more: str) -> None: ...
def nothing() -> None: ...
def counted() -> dict[int, str]: ...
def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@harbor.task(process=True)
def declared(a: int) -> int:
    return a + 1


class Callable_:
    def __call__(self, a: int) -> int:
        return a

    def method(self, a: int) -> int:
        return a

    async def amethod(self, a: int) -> int:
        return a


class Awaited:
    async def __call__(self, a: int) -> int:
        return a


@pytest.mark.parametrize(
    ("function", "payload", "bound"),
    [
        (plain, b'{"to":"ada"}', (("ada", "Hello"), {})),
        (plain, b'"ada"', (("ada", "Hello"), {})),
        (coroutine, b'{"a":5}', ((CONTEXT, 5), {})),
        (only_context, b"{}", ((CONTEXT,), {})),
        (named_context, b"{ }", ((), {"ctx": CONTEXT})),
        (nothing, b"{}", ((), {})),
        (nothing, b" {} ", ((), {})),
        (everything, b'{"a":1}', ((1, CONTEXT, 2), {"c": 3})),
        (everything, b'{"a":1,"b":5,"rest":[6,7],"c":8,"more":{"x":"y"}}', ((1, CONTEXT, 5, 6, 7), {"c": 8, "x": "y"})),
        (Callable_(), b'{"a":5}', ((5,), {})),
        (Callable_().method, b'{"a":5}', ((5,), {})),
        (functools.partial(plain, subject="x"), b'{"to":"ada"}', (("ada",), {"subject": "x"})),
    ],
)
def test_bind(function: Any, payload: bytes, bound: Any) -> None:
    handler = Handler("t", function)
    assert handler.bind(payload, CONTEXT) == bound
    assert handler.bind(payload, CONTEXT) == bound  # the first call prepares, the second one is prepared
    if not handler.is_coroutine:
        function(*bound[0], **bound[1])


@pytest.mark.parametrize("function", [plain, coroutine, nothing, only_context])
def test_a_payload_that_does_not_fit(function: Any) -> None:
    handler = Handler("t", function)
    for _ in range(2):
        with pytest.raises(PayloadMismatch, match="t: there is no parameter 'x'"):
            handler.bind(b'{"x":1}', CONTEXT)


def test_two_jobs_do_not_share_a_kwargs_dict() -> None:
    handler = Handler("t", nothing)
    assert handler.bind(b"{}", CONTEXT)[1] is not handler.bind(b"{}", CONTEXT)[1]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (plain, False),
        (coroutine, True),
        (Callable_(), False),
        (Callable_().method, False),
        (Callable_().amethod, True),
        (Awaited(), True),
        (functools.partial(coroutine, a=1), True),
        (functools.partial(functools.partial(Awaited(), a=1)), True),
        (functools.partial(plain), False),
        (asyncio.sleep, True),
    ],
)
def test_coroutines_are_recognised(function: Any, expected: bool) -> None:
    assert Handler("t", function).is_coroutine is expected


@pytest.mark.parametrize("function", [generator, async_generator, functools.partial(generator)])
def test_a_generator_function_is_refused(function: Any) -> None:
    with pytest.raises(TypeError, match="t: expected a handler that returns, got one that yields"):
        Handler("t", function)


def test_results() -> None:
    handler = Handler("t", plain)
    assert handler.encode_result(None) is None
    assert handler.encode_result({"a": [1]}) == b'{"a":[1]}'
    with pytest.raises(ValueError, match=r"t: the result: \$.a is nan"):
        handler.encode_result({"a": float("nan")})
    with pytest.raises(TypeError, match="t: the result: object cannot be written"):
        handler.encode_result(object())
    with pytest.raises(TypeError, match=r"t: the result: .* key of type int"):
        handler.encode_result({1: "a"})
    assert Handler("t", counted).encode_result({1: "a"}) == b'{"1":"a"}'


def test_another_codec_writes_results() -> None:
    class Marked(JsonCodec):
        pass

    class Other:
        def encode(self, value: Any) -> bytes:
            return b"other"

        def decode(self, data: bytes, type: Any = Any) -> Any:
            return {}

    assert Handler("t", plain, codec=Other()).encode_result(5) == b"other"
    assert Handler("t", plain, codec=Marked()).encode_result(5) == b"5"


def test_options_are_checked() -> None:
    policy = Exponential()
    handler = Handler("t", plain, retry=policy, timeout=1.5, unrecoverable=KeyError)
    assert (handler.retry, handler.timeout, handler.unrecoverable) == (policy, timedelta(seconds=1.5), (KeyError,))
    assert Handler("t", plain, unrecoverable=[KeyError, OSError]).unrecoverable == (KeyError, OSError)
    with pytest.raises(TypeError, match="retry: expected a policy"):
        Handler("t", plain, retry=5)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ValueError, match="t: timeout: expected more than zero"):
        Handler("t", plain, timeout=0)
    with pytest.raises(TypeError, match="unrecoverable: expected exception types"):
        Handler("t", plain, unrecoverable=["KeyError"])  # type: ignore[list-item]  # wrong on purpose
    with pytest.raises(TypeError, match="expected a function or another callable"):
        Handler("t", 5)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InvalidJob, match="type: expected 1 to 255"):
        Handler("", plain)


def test_a_process_needs_a_function_that_a_child_can_import(monkeypatch: pytest.MonkeyPatch) -> None:
    def nested() -> None: ...

    cases: list[tuple[Any, str]] = [
        (lambda: None, "got a lambda"),
        (nested, "got a function inside another"),
        (Callable_(), "expected a function of a module, got Callable_"),
        (functools.partial(plain), "got partial"),
        (Callable_().method, "got method"),
    ]
    for function, told in cases:
        with pytest.raises(TypeError, match=told):
            Handler("t", function, process=True)
    assert Handler("t", plain, process=True).reference == (__name__, "plain")

    def typed_in() -> None: ...

    typed_in.__module__, typed_in.__qualname__ = "__main__", "typed_in"
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/script.py", raising=False)
    Handler("t", typed_in, process=True)
    monkeypatch.delattr(sys.modules["__main__"], "__file__")
    with pytest.raises(TypeError, match=r"was typed in.*put it into a file"):
        Handler("t", typed_in, process=True)


def test_a_reference_leads_back_to_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _this_module())
    assert load_reference(*Handler("t", plain, process=True).reference) is plain
    assert load_reference(*declared.handler.reference) is declared.function


def _this_module() -> Any:
    import types

    module = types.ModuleType(__name__)
    module.__dict__.update(globals())
    return module


def test_registry() -> None:
    registry = HandlerRegistry()
    first = Handler("b", plain)
    registry.add(first)
    registry.add(Handler("a", nothing))
    assert registry.get("b") is first
    assert registry.get("c") is None
    assert registry.types() == ("a", "b")
    assert "a" in registry
    assert len(registry) == 2
    with pytest.raises(ValueError, match=r"two handlers named 'b': .*plain and .*nothing; give one another name="):
        registry.add(Handler("b", nothing))


def test_prepare_raises_what_is_wrong_with_the_annotations() -> None:
    def lost(x: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(TypeError, match="'Nowhere' cannot be resolved"):
        Handler("t", lost).prepare()
    assert "Handler('t'" in repr(Handler("t", plain))
