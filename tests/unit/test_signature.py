"""Signatures: calls bound to parameters, arguments written and read by name, errors that tell without showing."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import functools
import json
import threading
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pydantic
import pytest

from taskharbor.model.codec import JsonCodec
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.payload_errors import PayloadMismatch, describe
from taskharbor.tasks.signature import Signature

if TYPE_CHECKING:
    from nowhere import Ghost  # type: ignore[import-not-found]  # there is no such module


@dataclass
class User:
    id: uuid.UUID
    born: datetime
    balance: Decimal = Decimal(0)

    def __post_init__(self) -> None:
        if self.balance < 0:
            raise ValueError(f"balance {self.balance}")


class Order(pydantic.BaseModel):
    items: list[int]


USER = User(uuid.UUID(int=1), datetime(2000, 1, 1, tzinfo=UTC), Decimal("1.50"))


def send(to: str, subject: str = "Hello", *, urgent: bool = False) -> str: ...
def context_first(ctx: JobContext, a: int) -> None: ...
def context_last(a: int, *, ctx: JobContext | None = None) -> None: ...
def annotated_context(a: int, ctx: Annotated[JobContext, "here"]) -> None: ...
def spread(a: int, /, b: int = 2, *rest: int, c: int = 3, **more: str) -> None: ...
def typed(user: User, orders: list[Order], parts: dict[str, User | None] = {}) -> User: ...  # noqa: B006 - never changed
def bare(x, y=None): ...
def later(x: Later) -> Later: ...
def nothing() -> None: ...
def ghost(x: Ghost) -> None: ...
def impossible(x: int | Custom) -> None: ...
def odd(__x: int, self: int = 1) -> None: ...
def keys(counts: dict[int, str]) -> None: ...
def gathers(**fields: Any) -> None: ...


class Custom:
    pass


@dataclass
class Later:
    n: int


def of(function: Any) -> Signature:
    return Signature(function, JsonCodec())


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "bound"),
    [
        (send, ("a",), {}, {"to": "a"}),
        (send, ("a", "b"), {"urgent": True}, {"to": "a", "subject": "b", "urgent": True}),
        (send, (), {"to": "a"}, {"to": "a"}),
        (context_first, (5,), {}, {"a": 5}),
        (context_last, (5,), {}, {"a": 5}),
        (annotated_context, (), {"a": 5}, {"a": 5}),
        (spread, (1,), {}, {"a": 1}),
        (spread, (1, 2, 3, 4), {"c": 5, "x": "y"}, {"a": 1, "b": 2, "rest": [3, 4], "c": 5, "more": {"x": "y"}}),
        (spread, (1,), {"a": "z", "rest": "q"}, {"a": 1, "more": {"a": "z", "rest": "q"}}),
        (nothing, (), {}, {}),
        (bare, (1,), {"y": 2}, {"x": 1, "y": 2}),
        (functools.partial(send, urgent=True), ("a",), {}, {"to": "a"}),
    ],
)
def test_bind(function: Any, args: Any, kwargs: Any, bound: Any) -> None:
    assert of(function).bind(args, kwargs) == bound


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "told"),
    [
        (
            send,
            (),
            {},
            "send: missing parameter 'to'; its signature is (to: str, subject: str = 'Hello', *, urgent: bool = False)",
        ),
        (send, ("a", "b", "c"), {}, "send: expected at most 2 positional arguments, got 3"),
        (send, ("a",), {"to": "b"}, "send: parameter 'to' is given twice"),
        (send, ("a",), {"sbject": "b"}, "send: unexpected parameter 'sbject'"),
        (spread, (), {"a": 1}, "spread: missing parameter 'a'"),
        (context_first, (), {"a": 1, "ctx": 2}, "context_first: unexpected parameter 'ctx'"),
        (nothing, (1,), {}, "nothing: expected at most 0 positional arguments, got 1"),
    ],
)
def test_a_wrong_call_names_the_parameter_and_the_signature(function: Any, args: Any, kwargs: Any, told: str) -> None:
    with pytest.raises(TypeError) as caught:
        of(function).bind(args, kwargs)
    assert told in str(caught.value)
    assert "its signature is (" in str(caught.value)


def test_positional_only_is_not_given_by_name() -> None:
    def only(a: int, /) -> None: ...

    with pytest.raises(TypeError, match="'a' is given by name, but is positional-only"):
        of(only).bind((), {"a": 1})


def test_a_partial_binding_may_lack_parameters() -> None:
    signature = of(send)
    assert signature.bind((), {"urgent": True}, partial=True) == {"urgent": True}
    assert signature.lacking({"urgent": True}) == ("to",)
    assert signature.lacking({"to": "a"}) == ()
    assert of(context_first).lacking({}) == ("a",)
    assert of(spread).lacking({}) == ("a",)
    assert signature.encode({"urgent": True}, partial=True) == b'{"urgent":true}'
    with pytest.raises(TypeError, match="'to' is missing"):
        signature.encode({"urgent": True})


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (send, {"to": "a", "subject": "b", "urgent": True}),
        (typed, {"user": USER, "orders": [Order(items=[1])], "parts": {"a": None, "b": USER}}),
        (later, {"x": Later(1)}),
        (odd, {"__x": 1, "self": 2}),
        (keys, {"counts": {1: "a", 2: "b"}}),
        (spread, {"a": 1, "b": 2, "rest": [3], "c": 4, "more": {"x": "y"}}),
        (bare, {"x": [1, {"a": None}], "y": 2.5}),
        (nothing, {}),
    ],
)
def test_arguments_come_back_typed(function: Any, arguments: Any) -> None:
    signature = of(function)
    assert signature.decode(signature.encode(arguments)) == arguments


def test_the_payload_is_an_object_by_name() -> None:
    assert json.loads(of(spread).encode(of(spread).bind((1, 2, 3), {"x": "y"}))) == {
        "a": 1,
        "b": 2,
        "rest": [3],
        "more": {"x": "y"},
    }


def test_defaults_are_filled_in_and_mutable_ones_are_copied_for_each_job() -> None:
    assert of(send).decode(b'{"to":"a"}') == {"to": "a", "subject": "Hello", "urgent": False}
    assert of(spread).decode(b'{"a":1}') == {"a": 1, "b": 2, "rest": [], "c": 3, "more": {}}
    shared: list[int] = []

    def collect(into: list[int] = shared) -> None: ...

    signature = of(collect)
    signature.decode(b"{}")["into"].append(1)
    assert signature.decode(b"{}")["into"] == shared == []

    locks: list[Any] = [threading.Lock()]

    def keep(into: list[Any] = locks) -> None: ...

    assert of(keep).decode(b"{}")["into"], "what cannot be copied is given as it is"


@pytest.mark.parametrize(
    ("function", "arguments", "kind", "told"),
    [
        (send, {"to": 98765}, TypeError, "send: parameter 'to': expected str, got int"),
        (send, {"to": "a", "urgent": "98765"}, TypeError, "parameter 'urgent': expected bool, got str"),
        (
            typed,
            {"user": {"id": "98765", "born": 1}, "orders": []},
            TypeError,
            "parameter 'user': Invalid UUID at $.user.id",
        ),
        (
            typed,
            {"user": USER, "orders": [{"items": ["98765x"]}]},
            TypeError,
            "parameter 'orders': items.0: Input should be a valid integer",
        ),
        (
            typed,
            {"user": {"id": str(USER.id), "born": "2000-01-01T00:00:00Z", "balance": "-98765"}, "orders": []},
            TypeError,
            "parameter 'user': refused with ValueError",
        ),
        (
            typed,
            {"user": {"id": str(USER.id)}, "orders": []},
            TypeError,
            "parameter 'user': the field 'born' is missing at $.user",
        ),
        (bare, {"x": float("nan")}, ValueError, "bare: parameter 'x': $.x is nan"),
        (bare, {"x": 1, "y": [Decimal("NaN")]}, ValueError, "parameter 'y': $.y[0] is a Decimal NaN"),
        (bare, {"x": {1: "98765"}}, TypeError, "parameter 'x': $.x has a key of type int"),
        (bare, {"x": object()}, TypeError, "parameter 'x': object cannot be written as JSON"),
        (bare, {"x": "\ud800"}, ValueError, "parameter 'x': the text holds a lone surrogate"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused_by_the_call(
    function: Any, arguments: Any, kind: Any, told: str
) -> None:
    with pytest.raises(kind) as caught:
        of(function).encode(arguments)
    assert told in str(caught.value)
    assert "98765" not in str(caught.value)


def test_an_argument_that_contains_itself() -> None:
    itself: list[Any] = []
    itself.append(itself)
    with pytest.raises(ValueError, match="parameter 'x': the value is nested too deeply for JSON, or contains itself"):
        of(bare).encode({"x": itself})


@pytest.mark.parametrize(
    ("function", "payload", "told"),
    [
        (send, b'{"to":98765}', "send: parameter 'to': expected str, got int"),
        (send, b"{}", "send: parameter 'to' is missing"),
        (
            send,
            b'{"to":"a","sbject":"98765"}',
            "send: there is no parameter 'sbject'; expected 'to', 'subject', 'urgent'",
        ),
        (send, b"[98765]", "send: parameter 'to': expected str, got array"),
        (send, b"null", "send: parameter 'to': expected str, got None"),
        (send, b"{98765", "send: the payload is not readable"),
        (send, b"", "send: the payload is not readable"),
        (send, b'{"to":"\xff98765"}', "send: the payload is not UTF-8"),
        (send, b"[" * 100_000, "send: the payload is nested too deeply"),
        (typed, b"98765", "typed: expected an object with 'user', 'orders', 'parts', got int"),
        (nothing, b'{"a":98765}', "nothing: there is no parameter 'a'; expected none"),
        (nothing, b"98765", "nothing: expected an object with no fields, got int"),
        (keys, b'{"counts":{"98765x":"a"}}', "keys: parameter 'counts': expected int, got str"),
        (spread, b'{"a":1,"x":98765}', "spread: parameter 'more': expected str, got int at $.more[...]"),
    ],
)
def test_a_payload_that_does_not_fit_names_parameter_and_types(function: Any, payload: bytes, told: str) -> None:
    with pytest.raises(PayloadMismatch) as caught:
        of(function).decode(payload)
    assert str(caught.value).startswith(told)
    assert "98765" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (msgspec.ValidationError("Expected `int`, got `str` - at `$.to`"), "parameter 'to': expected int, got str"),
        (msgspec.ValidationError("Invalid UUID - at `$.to[0]`"), "parameter 'to': Invalid UUID at $.to[0]"),
        (msgspec.ValidationError("Expected `int`, got `canary` - at `$.to`"), "parameter 'to': does not fit its type"),
        (msgspec.ValidationError("Expected `int`, got 'canary' - at `$.to`"), "parameter 'to': does not fit its type"),
        (msgspec.ValidationError("canary is no number - at `$.to`"), "parameter 'to': does not fit its type"),
        (msgspec.ValidationError("the value 'canary' is too long"), "does not fit its type"),
        (msgspec.DecodeError("JSON is malformed: invalid number (byte 3)"), "not readable: JSON is malformed: invalid"),
        (msgspec.DecodeError("JSON is malformed: `canary` (byte 3)"), "not readable: DecodeError"),
    ],
)
def test_an_unknown_message_of_msgspec_is_hidden(error: Exception, told: str) -> None:
    text = describe(error, ("to",))
    assert text.startswith(told)
    assert "canary" not in text


@pytest.mark.parametrize(
    ("annotation", "payload", "told"),
    [
        (Annotated[int, msgspec.Meta(ge=10)], "1", "expected int >= 10"),
        (Annotated[float, msgspec.Meta(lt=1.5)], "2.5", "expected float < 1.5"),
        (Annotated[str, msgspec.Meta(min_length=3)], '"a"', "expected str of length >= 3"),
        (Annotated[str, msgspec.Meta(pattern="^a$")], '"b"', "expected str matching regex '^a$'"),
        (Annotated[int, msgspec.Meta(multiple_of=3)], "4", "expected int that's a multiple of 3"),
        (Annotated[datetime, msgspec.Meta(tz=True)], '"2030-01-01T00:00:00"', "expected datetime with a timezone"),
        (tuple[int, int], "[1]", "expected array of length 2"),
        (datetime, '"98765"', "Invalid RFC3339 encoded datetime"),
        (timedelta, '"98765"', "Invalid ISO8601 duration"),
        (uuid.UUID, '"98765"', "Invalid UUID"),
        (bytes, '"9"', "Invalid base64 encoded string"),
        (Decimal, '"98765x"', "Invalid decimal string"),
    ],
)
def test_a_known_message_of_msgspec_is_shown(annotation: Any, payload: str, told: str) -> None:
    def function(x: Any) -> None: ...

    function.__annotations__["x"] = annotation
    with pytest.raises(PayloadMismatch) as caught:
        of(function).decode(b'{"x":%s}' % payload.encode())
    assert f"parameter 'x': {told}" in str(caught.value)
    assert "98765" not in str(caught.value)


def test_an_enum_value_is_not_shown() -> None:
    from tests.unit.test_codec import Colour

    def paint(colour: Colour) -> None: ...

    paint.__annotations__["colour"] = Colour
    with pytest.raises(PayloadMismatch, match="parameter 'colour': not one of the expected values") as caught:
        of(paint).decode(b'{"colour":"secret"}')
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("function", "payload", "values"),
    [
        (send, b'"ada"', ("ada", "Hello", False)),
        (bare, b"[1,2]", ([1, 2], None)),
        (context_first, b"5", (5,)),
        (nothing, b"null", ()),
        (gathers, b'{"a":1,"b":2}', ({"a": 1, "b": 2},)),
        (gathers, b'{"fields":{"a":1}}', ({"a": 1},)),
        (spread, b'{"a":1,"x":"y"}', (1, 2, [], 3, {"x": "y"})),
    ],
)
def test_a_payload_that_is_not_an_object_is_the_only_argument(function: Any, payload: bytes, values: Any) -> None:
    assert of(function).values(payload) == values


def test_annotations_are_resolved_at_the_first_use_and_refused_when_they_cannot_be() -> None:
    with pytest.raises(TypeError, match="ghost: the annotation 'Ghost' cannot be resolved; define or import it"):
        of(ghost).bind((1,), {})
    with pytest.raises(TypeError, match=r"impossible: parameter 'x': int \| .*Custom cannot be read from JSON"):
        of(impossible).bind((1,), {})
    with pytest.raises(TypeError, match="its parameters cannot be read"):
        of(dict.update).bind((1,), {})


def test_a_context_imported_for_the_type_checker_alone() -> None:
    namespace: dict[str, Any] = {}
    exec("from __future__ import annotations\ndef run(ctx: JobContext, a: int): ...", namespace)
    assert of(namespace["run"]).bind((1,), {}) == {"a": 1}


def test_return_types() -> None:
    async def co() -> list[int]: ...

    def workflow() -> int | Custom: ...

    co.__annotations__["return"] = list[int]
    workflow.__annotations__["return"] = int | Custom
    assert of(send).return_type is str
    assert of(co).return_type == list[int]
    assert of(bare).return_type is Any
    assert of(workflow).return_type is Any


class Text:
    """An application's own codec: JSON with a mark in front, types honoured for one parameter by hand."""

    def __init__(self, honour: bool = True) -> None:
        self.asked: list[Any] = []
        self.honour = honour

    def encode(self, value: Any) -> bytes:
        return b"text:" + json.dumps(value, default=str, allow_nan=False).encode()

    def decode(self, data: bytes, type: Any = Any) -> Any:
        self.asked.append(type)
        if not data.startswith(b"text:"):
            raise ValueError("secret")
        value = json.loads(data[5:])
        if self.honour and isinstance(value, dict) and "when" in value:
            value["when"] = datetime.fromisoformat(value["when"])
        return value


def at(when: datetime, note: str = "") -> None: ...


def test_another_codec_does_the_whole_work() -> None:
    codec = Text()
    signature = Signature(at, codec)
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    payload = signature.encode(signature.bind((moment,), {}))
    assert payload.startswith(b'text:{"when"')
    assert signature.decode(payload) == {"when": moment, "note": ""}
    assert codec.asked[-1].__required_keys__ == {"when"}
    assert codec.asked[-1].__optional_keys__ == {"note"}
    for wrong, told in [
        (b'text:{"wehn": 1}', "at: parameter 'when' is missing"),
        (b'text:{"when": "2030-01-01", "x": 1}', "at: there is no parameter 'x'"),
        (b"nothing", "at: the payload is not readable: ValueError"),
    ]:
        with pytest.raises(PayloadMismatch) as caught:
            signature.decode(wrong)
        assert str(caught.value).startswith(told)
    assert signature.values(b'text:"2030-01-01T00:00:00+00:00"') == (moment, "")
    with pytest.raises(ValueError, match="parameter 'when': Out of range float values"):
        signature.encode({"when": float("nan")})
    assert signature.encode({"note": "x"}, partial=True) == b'text:{"note": "x"}'
