"""msgspec's hooks for types that it does not know: pydantic's models and types, and subclasses of text and numbers.

This module never imports pydantic: it uses the loaded one when a type of the user's is pydantic's. pydantic's errors
about a value are repeated without the value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import Any, get_args

import msgspec

from taskharbor.model.record_fields import goes_by_name

_BY_NAME = {"by_name": True, "by_alias": True}
_KEYS_ONLY = (type(None), bool, tuple, frozenset)
_BASES: dict[type, Callable[[Any], Any]] = {  # a datetime is a date, so it comes first
    datetime: lambda value: datetime.combine(date(value.year, value.month, value.day), _time(value), value.tzinfo),
    date: lambda value: date(value.year, value.month, value.day),
    Decimal: Decimal,
    bytes: bytes,
}


def to_plain(value: Any) -> Any:
    """Convert a value that the JSON encoder does not know to one that it does, or TypeError."""
    kind: Any = type(value)
    if hasattr(kind, "model_dump"):  # the class: an instance may answer to any name, as a Mock does
        return _dumped(value.model_dump, by_alias=not goes_by_name(kind))
    for plain in (str, int, float):  # subclasses: numpy.float64, markupsafe.Markup, IntFlag-like numbers
        if isinstance(value, plain):
            return plain.__str__(value) if plain is str else plain(value)
    for base, convert in _BASES.items():  # subclasses: freezegun's and pendulum's datetimes
        if isinstance(value, base):
            return convert(value)
    if _is_pydantic(kind):
        return _dumped(_adapter(kind).dump_python, value)
    if type(value) in _KEYS_ONLY:  # the encoder knows these as values, so here they are keys
        raise TypeError(
            f"a dict has a key of type {type(value).__name__}, which JSON cannot hold; make the keys text or send pairs"
        )
    raise TypeError(
        f"{type(value).__name__} cannot be written as JSON; use plain values, dataclasses, msgspec structs or pydantic "
        "models, or give your own codec="
    )


def _dumped(dump: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What pydantic writes. No warnings: they quote the value, and what they are about is compared (arrival.py)."""
    try:
        return dump(*args, mode="json", round_trip=True, warnings=False, **options)
    except ValueError as error:
        what = ": ".join(str(error).split(": ")[:2])  # then comes the text of a serializer, which may quote the value
        raise TypeError(f"{what}; send plain values, or give the model a serializer that takes this one") from None


def _time(value: datetime) -> time:
    return time(value.hour, value.minute, value.second, value.microsecond, fold=value.fold)


def from_plain(type: Any, value: Any) -> Any:
    """Convert a decoded value to a type that the JSON decoder does not know; ValueError if it does not fit."""
    if type is object:
        return value
    annotation = getattr(type, "_taskharbor_annotation", None)
    if annotation is None and not _is_pydantic(type):
        name = getattr(type, "__name__", repr(type))
        raise Refused(
            f"{name} cannot be read from JSON; annotate with plain types, dataclasses, msgspec structs or pydantic "
            "models"
        )
    annotation = type if annotation is None else annotation
    adapter, how = _adapter(annotation), _BY_NAME if goes_by_name(annotation) else {}
    try:
        return adapter.validate_python(value, **how)
    except Exception as error:
        try:  # a strict model reads text as a date, and a list as a tuple, only where it knows that it reads JSON
            return adapter.validate_json(msgspec.json.encode(value), **how)
        except Exception:
            raise Refused(_without_values(error)) from None


class Refused(ValueError):
    """A value does not fit. The text is our own and holds nothing of the value."""


def adapted(annotation: Any) -> Any:
    """A class that stands for an annotation which only pydantic can read (a union of models); None for others."""
    if not any(_is_pydantic(part) for part in _parts(annotation)):
        return None
    return _Anything("Adapted", (), {"_taskharbor_annotation": annotation})


class _Anything(type):
    """Passes the isinstance check of the decoder: pydantic has already checked the value."""

    def __instancecheck__(cls, instance: object) -> bool:
        return True


def _parts(annotation: Any) -> list[Any]:
    parts = [annotation]
    for inner in get_args(annotation):
        parts += _parts(inner)
    return parts


def _is_pydantic(type: Any) -> bool:
    return hasattr(type, "__get_pydantic_core_schema__") and "pydantic" in sys.modules


@lru_cache(maxsize=1000)
def _adapter(annotation: Hashable) -> Any:
    return sys.modules["pydantic"].TypeAdapter(annotation)


@lru_cache(maxsize=1)
def _plain_errors() -> frozenset[str]:
    """The kinds of errors whose text is pydantic's own and quotes nothing of the value."""
    known = get_args(sys.modules["pydantic_core"].core_schema.ErrorType)
    return frozenset(known) - {"value_error", "assertion_error", "union_tag_invalid"}


def _without_values(error: Any) -> str:
    """Where pydantic found an error, and which. The text of a user's own validator may quote the value: left out."""
    if not hasattr(error, "errors"):
        return f"refused with {type(error).__name__}"
    found = []
    for item in error.errors(include_url=False, include_input=False, include_context=False)[:5]:
        place = ".".join(str(part) for part in item["loc"]) or "the value"
        why = item["msg"] if item["type"] in _plain_errors() else "refused by a validator"
        found.append(f"{place}: {why}")
    return "; ".join(found)
