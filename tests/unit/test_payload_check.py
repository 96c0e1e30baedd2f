"""Arguments at untyped places: what arrives is what was sent, or the call is refused. Generated, not enumerated."""

import datetime as dt
import enum
import functools
import uuid
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskharbor import Harbor
from taskharbor.model.codec import JsonCodec
from taskharbor.tasks.signature import Signature


class Colour(enum.Enum):
    RED = "red"


class Text(enum.StrEnum):
    A = "a"


class Number(enum.IntEnum):
    ONE = 1


@dataclass
class Point:
    x: int


class Record(msgspec.Struct):
    x: int


@dataclass
class Open:
    x: Any
    rest: "list[Open] | None" = None


class OpenRecord(msgspec.Struct, rename="camel"):
    an_x: Any


class OpenDict(TypedDict):
    x: Any


class OpenTuple(NamedTuple):
    x: Any


Pair = namedtuple("Pair", "a b")

NATIVE = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
CHANGED = st.sampled_from(
    [
        b"abc",
        bytearray(b"abc"),
        {1, 2},
        frozenset({1}),
        (1, 2),
        Pair(1, 2),
        Decimal("1.5"),
        uuid.UUID(int=7),
        dt.datetime(2030, 1, 1, tzinfo=dt.UTC),
        dt.date(2030, 1, 1),
        dt.time(12),
        dt.timedelta(seconds=5),
        Colour.RED,
        Text.A,
        Number.ONE,
        Point(1),
        Record(1),
    ]
)


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
        max_leaves=6,
    )


def same(a: Any, b: Any) -> bool:
    """Equal, with the same types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def bare(x):
    pass


def annotated(x: Any) -> None:
    pass


def an_object(x: object) -> None:
    pass


@functools.lru_cache(maxsize=10)
def signature_of(function: Callable[..., Any]) -> Signature:
    return Signature(function, JsonCodec())


def through(function: Callable[..., Any], value: Any) -> Any:
    signature = signature_of(function)
    return signature.decode(signature.encode({"x": value}))["x"]


@given(value=nested(st.one_of(NATIVE, CHANGED)))
@pytest.mark.parametrize("function", [bare, annotated, an_object])
def test_a_value_arrives_as_it_was_sent_or_the_call_is_refused(function: Callable[..., Any], value: Any) -> None:
    refused, arrived = "", None
    try:
        arrived = through(function, value)
    except (TypeError, ValueError) as error:
        refused = str(error)
    assert "annotate the parameter" in refused or same(arrived, value)


@given(value=nested(NATIVE))
@pytest.mark.parametrize("function", [bare, annotated, an_object])
def test_values_that_json_knows_are_never_refused(function: Callable[..., Any], value: Any) -> None:
    assert same(through(function, value), value)


@pytest.mark.parametrize(
    ("annotation", "fits"),
    [
        (dict, lambda value: {"a": value}),
        (dict[str, Any], lambda value: {"a": value}),
        (Mapping[str, Any], lambda value: {"a": value}),
        (list, lambda value: [value]),
        (Sequence[Any], lambda value: [value]),
        (list[Any] | None, lambda value: [value]),
        (tuple[int, Any], lambda value: (1, value)),
        (tuple[Any, ...], lambda value: (value,)),
        (dict[str, Any] | list[Any] | str, lambda value: {"a": [value]}),
        (Any | None, lambda value: value),
        (list[dict[str, list[Any]]], lambda value: [{"a": [value]}]),
        (Open, lambda value: Open(1, [Open(value)])),
        (Open, lambda value: {"x": value}),
        (OpenRecord, OpenRecord),
        (OpenRecord, lambda value: {"anX": value}),
        (OpenDict, lambda value: {"x": value}),
        (OpenTuple, OpenTuple),
    ],
)
def test_untyped_places_of_an_annotation_are_checked(annotation: Any, fits: Callable[[Any], Any]) -> None:
    def function(x):
        pass

    function.__annotations__["x"] = annotation
    through(function, fits("text"))
    for changed in (b"abc", Decimal(1), (1, 2), Colour.RED):
        with pytest.raises(TypeError, match=r"parameter 'x': a value of type \w+ would come back as"):
            through(function, fits(changed))


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (bytes, b"abc"),
        (set[int], {1}),
        (tuple[int, ...], (1, 2)),
        (list[int], (1, 2)),  # what the handler receives is what its annotation says
        (dict[str, bytes], {"a": b"x"}),
        (Decimal | None, Decimal(1)),
        (Colour, Colour.RED),
        (str, Text.A),
        (Point, Point(1)),
        (list[Point], [Point(1)]),
    ],
)
def test_annotated_values_are_not_checked(annotation: Any, value: Any) -> None:
    def function(x):
        pass

    function.__annotations__["x"] = annotation
    assert through(function, value) == (list(value) if annotation == list[int] else value)


@pytest.mark.parametrize("value", [OrderedDict(a=1), type("Safe", (str,), {})("x"), type("Items", (list,), {})([1])])
def test_subclasses_of_what_json_knows_come_back_equal(value: Any) -> None:
    assert through(bare, value) == value


def test_the_texts_of_the_errors() -> None:
    harbor = Harbor("memory://")

    @harbor.task(name="store")
    def store(data, *more, **named) -> None:
        pass

    with pytest.raises(TypeError) as told:
        store.enqueue(b"secret")
    assert str(told.value) == (
        "store: parameter 'data': a value of type bytes would come back as text; annotate the parameter (data: bytes), "
        "or send what JSON holds"
    )
    with pytest.raises(TypeError, match=r"parameter 'data': .* datetime would come back as text at \$\.data\[0\]\.at;"):
        store.enqueue([{"at": dt.datetime(2030, 1, 1, tzinfo=dt.UTC)}])
    with pytest.raises(TypeError, match=r"'more': a value of type tuple would come back as a list at \$\.more\[1\]"):
        store.enqueue(1, 2, (3,))
    with pytest.raises(TypeError, match=r"'named': a value of type set would come back as a list at \$\.named\.tags"):
        store.s(1, tags={1})._call()
    harbor.close()
