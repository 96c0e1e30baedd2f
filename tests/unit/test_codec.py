"""The JSON codec: what it writes, what it brings back, and what it refuses without changing or showing it."""

from __future__ import annotations

import dataclasses
import enum
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskharbor.model.codec import Codec, JsonCodec, readable, type_name

codec = JsonCodec()
NAN = float("nan")


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: float
    y: float | None = None


@dataclasses.dataclass
class Hidden:
    """A field that equality does not see."""

    x: float | None = dataclasses.field(default=None, compare=False)


class Box(msgspec.Struct):
    counts: dict[int, str]
    at: datetime | None = None


class Model(pydantic.BaseModel):
    a: int = pydantic.Field(alias="A")
    when: datetime

    @pydantic.computed_field
    def twice(self) -> int:
        return self.a * 2


class Strict(pydantic.BaseModel, extra="forbid"):
    name: str

    @pydantic.field_validator("name")
    @classmethod
    def check(cls, value: str) -> str:
        if value == "secret":
            raise ValueError(f"no {value}")
        return value


NOW = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("ada", str),
        (NOW, datetime),
        (date(2030, 1, 2), date),
        (timedelta(seconds=1.5), timedelta),
        (uuid.UUID(int=7), uuid.UUID),
        (Decimal("1.10"), Decimal),
        (Colour.RED, Colour),
        (b"\x00\xff", bytes),
        ({1, 2}, set[int]),
        (frozenset({"a"}), frozenset[str]),
        ((1, "a"), tuple[int, str]),
        (Point(1.0), Point),
        ([Point(1.0, 2.0)], list[Point]),
        ({"a": Point(1.0)}, dict[str, Point]),
        (Box({1: "a"}, NOW), Box),
        ({1: "a"}, dict[int, str]),
        ({uuid.UUID(int=7): 1}, dict[uuid.UUID, int]),
        (2**200, int),
        (-(2**80), int),
        (Model(A=1, when=NOW), Model),
        ([Model(A=1, when=NOW)], list[Model]),
        ({"a": Model(A=1, when=NOW)}, dict[str, Model]),
        (None, Model | None),
        (Model(A=1, when=NOW), Model | None),
        (Strict(name="ada"), Model | Strict),
        ([Strict(name="ada"), 5], list[Strict | int]),
        (pydantic.AnyUrl("https://example.com/"), pydantic.AnyUrl),
        (5, Annotated[int, msgspec.Meta(ge=0)]),
        ({"any": [1, None]}, object),
    ],
)
def test_typed_values_come_back_as_they_were(value: Any, kind: Any) -> None:
    assert codec.decode(codec.encode_as(value, kind), kind) == value


def test_is_a_codec() -> None:
    assert isinstance(codec, Codec)
    assert repr(codec) == "JsonCodec()"


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    )
)
def test_plain_json_round_trips(value: Any) -> None:
    assert codec.decode(codec.encode(value)) == value


class MyText(str):
    __slots__ = ()


class MyInt(int):
    pass


class MyFloat(float):
    pass


def test_subclasses_of_text_and_numbers_are_written_as_what_they_are() -> None:
    assert codec.encode([MyText("a"), MyInt(2), MyFloat(1.5)]) == b'["a",2,1.5]'
    with pytest.raises(ValueError, match=r"\$\[0\] is nan"):
        codec.encode([MyFloat(NAN)])


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (NAN, r"\$ is nan"),
        (float("inf"), r"\$ is inf"),
        (float("-inf"), r"\$ is -inf"),
        ({"a": [1.0, NAN]}, r"\$\.a\[1\] is nan"),
        (Point(NAN), r"\$\.x is nan"),
        ([Point(1.0, float("inf"))], r"\$\[0\]\.y is inf"),
        (Hidden(NAN), r"\$\.x is nan"),
        (Decimal("NaN"), r"\$ is a Decimal NaN"),
        ({"a": Decimal("-Infinity")}, r"\$\.a is a Decimal -Infinity"),
        ({"null": None, "x": NAN}, r"\$\.x is nan"),
        ({NAN: 1}, r"a key of \$ is nan"),
        ({float("inf"): 1}, r"a key of \$ is inf"),
        (pydantic.create_model("M", x=(float, ...))(x=NAN), r"\$\.x is nan"),
    ],
)
def test_nan_and_infinity_are_refused_at_any_depth(value: Any, where: str) -> None:
    with pytest.raises(ValueError, match=where):
        codec.encode(value)
    kind = type(value) if dataclasses.is_dataclass(value) else Any
    with pytest.raises(ValueError, match=where):
        codec.encode_as(value, kind)


def test_text_that_looks_like_nan_or_a_number_is_accepted() -> None:
    for text in ("null", "NaN", "Infinity", '"1":', "nan"):
        assert codec.decode(codec.encode({text: [text]})) == {text: [text]}
    assert codec.decode(codec.encode({"1": {"2": None}})) == {"1": {"2": None}}


@pytest.mark.parametrize(
    ("value", "kind"), [({1: "a"}, "int"), ({"a": [{1.5: 2}]}, "float"), ({"x": {"y": {-3: 1}}}, "int")]
)
def test_keys_that_are_numbers_are_refused_unless_the_type_brings_them_back(value: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=f"key of type {kind}.*make the keys text"):
        codec.encode(value)
    with pytest.raises(TypeError, match=f"key of type {kind}"):
        codec.encode_as(value, dict[str, Any] if "a" in value or "x" in value else dict)


@pytest.mark.parametrize("key", [None, (1, 2), True])
def test_keys_that_json_cannot_hold_are_refused(key: Any) -> None:
    with pytest.raises(TypeError, match=f"key of type {type(key).__name__}"):
        codec.encode({"a": {key: 1}})


def test_structures_that_contain_themselves_are_refused() -> None:
    itself: list[Any] = []
    itself.append(itself)
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for value in (itself, {"a": itself}, deep):
        with pytest.raises(ValueError, match="nested too deeply for JSON, or contains itself"):
            codec.encode(value)
    with pytest.raises(ValueError, match="nested too deeply"):
        codec.decode(b"[" * 100_000 + b"]" * 100_000)


def test_a_dataclass_that_contains_itself_is_refused() -> None:
    point = Point(1.0)
    point.y = point  # type: ignore[assignment]  # a cycle, on purpose
    with pytest.raises(ValueError, match="contains itself"):
        codec.encode(point)


@pytest.mark.parametrize("value", ["\ud800", {"\ud800": 1}, ["a", "\udfff"]])
def test_lone_surrogates_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="lone surrogate"):
        codec.encode(value)


def test_numbers_of_thousands_of_digits_are_a_value_error() -> None:
    with pytest.raises(ValueError, match="digits"):
        codec.encode(10**5000)
    with pytest.raises(ValueError, match="out of range"):
        codec.decode(b"1" * 5000)


def test_a_value_that_cannot_be_encoded_is_named_by_its_type() -> None:
    with pytest.raises(TypeError, match="object cannot be written as JSON; use plain values"):
        codec.encode([object()])


class Custom:
    pass


@pytest.mark.parametrize("data", [b"", b"{", b"NaN", b'"\xff"', b"1e999", b'"\\ud800"', b"{}x"])
def test_bytes_that_are_not_json_are_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the sentence is the parser's
        codec.decode(data)


def test_a_type_that_json_cannot_be_read_as_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"cannot be read from JSON.*annotate with plain types"):
        codec.decode(b"1", int | Custom)
    with pytest.raises(ValueError, match="Custom cannot be read from JSON"):
        codec.decode(b"1", Custom)
    assert readable(list[int]) == list[int]
    assert type_name(int) == "int"
    assert type_name(int | None) == "int | None"


def test_an_error_of_pydantic_does_not_show_the_value() -> None:
    for kind in (Strict, list[Strict | int]):
        data = b'{"name":"secret"}' if kind is Strict else b'[{"name":"secret"}]'
        with pytest.raises(ValueError, match="refused by a validator") as caught:
            codec.decode(data, kind)
        assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match="name: Input should be a valid string") as caught:
        codec.decode(b'{"name":98765}', Strict)
    assert "98765" not in str(caught.value)


def test_decoders_of_types_made_at_run_time_do_not_pile_up() -> None:
    own = JsonCodec()
    for _ in range(1500):
        own.decode(b"{}", msgspec.defstruct("Made", []))
    assert len(own._readers) < 1100


def test_an_unhashable_annotation_still_decodes() -> None:
    assert codec.decode(b"5", Annotated[int, {"not": "hashable"}]) == 5
