"""Which arguments need no comparison with what arrives, found once for each annotation.

Most arguments are plain values for plain annotations, and those arrive as they are. So a call costs one look at the
type of each argument; only values of other types are walked through, by `model/arrival.py`.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

import msgspec
from msgspec import inspect

from taskharbor.model.arrival import PLAIN

_NONE = frozenset({type(None)})  # given where None is not expected, it is refused when it is decoded
_OF_SCALARS: dict[type[inspect.Type], frozenset[type]] = {
    inspect.AnyType: frozenset({*PLAIN, list, dict}),  # payload_check has looked inside
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
