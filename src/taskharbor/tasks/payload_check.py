"""Checks of arguments at untyped places: only values that JSON returns unchanged are allowed there.

Where an annotation names a type, a value is converted both ways. At an untyped place (a parameter without an
annotation, `Any`, the items of a bare `dict` or `list`) a handler would receive text for bytes or a datetime, and a
list for a set or a tuple. Only the first job would show that change of type, so the call is refused.

Most arguments are plain values for plain annotations, and those arrive as they are. So a call costs one look at the
type of each argument (`trust_of`); only values of other types are walked through, by `model/arrival.py`.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect

from taskharbor.model.arrival import PLAIN, is_secret, secret_loss
from taskharbor.model.json_hooks import to_plain

_NAMES = {str: "text", list: "a list", dict: "a dict", int: "a number", float: "a number", bool: "True or False"}

_NONE = frozenset({type(None)})  # given where None is not expected, it is refused when it is decoded
_OF_SCALARS: dict[type[inspect.Type], frozenset[type]] = {
    inspect.AnyType: frozenset({*PLAIN, list, dict}),  # `check_of` has looked inside
    inspect.NoneType: _NONE,
    inspect.BoolType: frozenset({bool}),
    inspect.IntType: frozenset({int}),
    inspect.FloatType: frozenset({float}),
    inspect.StrType: frozenset({str}),
    inspect.BytesType: frozenset({bytes}),
    inspect.ByteArrayType: frozenset({bytearray}),
    inspect.DateTimeType: frozenset({str}),  # not datetime: an offset with seconds is cut
    inspect.TimeType: frozenset({str}),
    inspect.DateType: frozenset({str, datetime.date}),
    inspect.TimeDeltaType: frozenset({str, datetime.timedelta}),
    inspect.UUIDType: frozenset({str, uuid.UUID}),
    inspect.DecimalType: frozenset({str, int, float, decimal.Decimal}),
}


class Changed(TypeError):
    """A value would come back as another type; the text says which, where, and what to do."""


def check_of(annotation: Any) -> Callable[[Any, str], None] | None:
    """A function that checks a value at a place, and raises Changed; None if the annotation types every place.

    >>> check_of(list[int]) is None
    True
    >>> check_of(dict)({"at": b"x"}, "$.x")
    Traceback (most recent call last):
    ...
    taskharbor.tasks.payload_check.Changed: a value of type bytes would come back as text at $.x.at; ...
    """
    try:
        info = inspect.type_info(annotation)
    except Exception:  # a type that only another library knows: that library converts it
        return None
    if not _is_open(info, set()):
        return None

    def check(value: Any, place: str) -> None:
        _check(info, value, place, place)

    return check


def _is_open(info: inspect.Type, seen: set[int]) -> bool:
    """Whether the type has an untyped place."""
    if _is_untyped(info):
        return True
    if id(info) in seen:  # a type that contains itself
        return False
    seen.add(id(info))
    return any(_is_open(part, seen) for part in _parts(info))


def _is_untyped(info: inspect.Type) -> bool:
    return isinstance(info, inspect.AnyType) or (isinstance(info, inspect.CustomType) and info.cls is object)


def _parts(info: Any) -> Iterator[inspect.Type]:
    """The types inside a type. (The codec checks the keys of dicts.)"""
    for name in ("type", "item_type", "value_type"):  # Metadata, collections, dicts
        if hasattr(info, name):
            yield getattr(info, name)
    yield from getattr(info, "item_types", ())  # tuples
    yield from getattr(info, "types", ())  # unions
    for field in getattr(info, "fields", ()):
        yield field.type


def _check(info: Any, value: Any, place: str, root: str) -> None:
    """Check the untyped places of a value of this type. A value of another shape is refused when it is decoded."""
    if type(value) in PLAIN:
        return
    if _is_untyped(info):
        _check_untyped(value, place, root)
    elif isinstance(info, inspect.Metadata):
        _check(info.type, value, place, root)
    elif isinstance(info, inspect.UnionType):
        if any(_is_untyped(each) for each in info.types):
            _check_untyped(value, place, root)
        else:
            for each in info.types:
                _check(each, value, place, root)
    elif hasattr(info, "fields"):
        for field in info.fields:
            given = value.get(field.encode_name) if isinstance(value, dict) else getattr(value, field.name, None)
            _check(field.type, given, f"{place}.{field.name}", root)
    elif hasattr(info, "value_type") and isinstance(value, Mapping):
        for key, item in value.items():
            _check(info.value_type, item, _at(place, key), root)
    elif isinstance(value, list | tuple | set | frozenset):
        if hasattr(info, "item_types"):
            for index, (each, item) in enumerate(zip(info.item_types, value, strict=False)):
                _check(each, item, f"{place}[{index}]", root)
        elif hasattr(info, "item_type"):
            for index, item in enumerate(value):
                _check(info.item_type, item, f"{place}[{index}]", root)


def _check_untyped(value: Any, place: str, root: str) -> None:
    """Changed unless JSON returns an equal value, as it does for subclasses of the types that it knows."""
    if isinstance(value, enum.Enum):
        raise _changed(value, place, root)
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str:
                _check_key(key, place)
            if type(item) not in PLAIN:
                _check_untyped(item, _at(place, key), root)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if type(item) not in PLAIN:
                _check_untyped(item, f"{place}[{index}]", root)
    elif not isinstance(value, str | int | float | None):
        raise _changed(value, place, root)


def _check_key(key: Any, place: str) -> None:
    if isinstance(key, enum.Enum) or not isinstance(key, str):
        raise Changed(
            f"a key of type {type(key).__name__} would come back as text at {place}; make the keys text, or annotate "
            f"with dict[{type(key).__name__}, …]"
        )


def _changed(value: Any, place: str, root: str) -> Changed:
    if is_secret(type(value)):
        loss = secret_loss(type(value))
        return Changed(f"{loss.what} at {place}; {loss.mend}")
    kind, becomes = type(value).__name__, type(msgspec.json.decode(msgspec.json.encode(value, enc_hook=to_plain)))
    what = f"a value of type {kind} would come back as {_NAMES.get(becomes, becomes.__name__)}"
    if place == root:
        name = root.removeprefix("$.")
        return Changed(f"{what}; annotate the parameter ({name}: {kind}), or send what JSON holds")
    return Changed(
        f"{what} at {place}; annotate the parameter with the types inside (a dataclass, dict[str, {kind}], …), or send "
        "what JSON holds"
    )


def _at(place: str, key: Any) -> str:
    return f"{place}.{key}" if isinstance(key, str) and key.isidentifier() else f"{place}[…]"


# Trust


class Trust(msgspec.Struct, frozen=True):
    """What is trusted at a place: values of these types; and of others, those that `==` finds equal."""

    types: frozenset[type]
    by_equality: bool


def trust_of(annotation: Any) -> Trust:
    """How far the values of an annotation are trusted.

    >>> sorted(kind.__name__ for kind in trust_of(str | None).types), trust_of(list[int]).by_equality
    (['NoneType', 'str'], True)
    """
    try:
        info = inspect.type_info(annotation)
    except Exception:  # a type that only another library knows
        return Trust(_NONE, False)
    return Trust(_NONE | _types(info), _by_equality(info))


def _types(info: Any) -> frozenset[type]:
    if isinstance(info, inspect.Metadata):
        return _types(info.type)
    if isinstance(info, inspect.UnionType):
        return frozenset().union(*map(_types, info.types))
    if isinstance(info, inspect.EnumType):
        return frozenset({str, int, info.cls})
    if isinstance(info, inspect.LiteralType):
        return frozenset({str, int})
    if isinstance(info, inspect.ListType) and isinstance(info.item_type, inspect.AnyType):
        return frozenset({list})
    return _OF_SCALARS.get(type(info), frozenset())


def _by_equality(info: Any) -> bool:
    """Whether equal values are as good as the same: there is no record inside, whose == may leave fields out."""
    if isinstance(info, inspect.Metadata):
        return _by_equality(info.type)
    if isinstance(info, inspect.UnionType):
        return all(map(_by_equality, info.types))
    if isinstance(info, inspect.ListType | inspect.SetType | inspect.FrozenSetType | inspect.VarTupleType):
        return _by_equality(info.item_type)
    if isinstance(info, inspect.TupleType):
        return all(map(_by_equality, info.item_types))
    if isinstance(info, inspect.DictType):
        return _by_equality(info.key_type) and _by_equality(info.value_type)
    # A time without a zone equals one in a zone whose offset depends on the day.
    is_scalar = type(info) in _OF_SCALARS and not isinstance(info, inspect.TimeType)
    return is_scalar or isinstance(info, inspect.EnumType | inspect.LiteralType)
