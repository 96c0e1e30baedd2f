"""What msgspec does not know of a user's types: pydantic's models and types, subclasses of text and numbers, and the
fields of records (dataclasses, msgspec structs, pydantic models, attrs classes, named tuples), found once per class.

This module never imports pydantic: it uses the loaded one when a type of the user's is pydantic's. pydantic's errors
about a value are repeated without the value.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Hashable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, TypeVar, get_args

import msgspec

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


KEYS_OF_ITS_OWN: Final[Mapping[str, str | None]] = {}
"""The keys of a class that reads dicts with a function of its own: nobody else knows them."""

_NOTHING: Final[Mapping[str, Any]] = {}
_Answer = TypeVar("_Answer")


def once_for_each_class(answer: Callable[[type], _Answer]) -> Callable[[type], _Answer]:
    """Remember the answer to a question about a class. Classes that are made at run time do not fill the memory."""
    return lru_cache(maxsize=1000)(answer)


@once_for_each_class
def fields_of(kind: type) -> tuple[str, ...] | None:
    """The names of a record's fields; None if the class is none."""
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    if _is_model(kind):
        return tuple(kind.model_fields)  # type: ignore[attr-defined]  # a pydantic model
    if hasattr(kind, "__attrs_attrs__"):
        return tuple(field.name for field in kind.__attrs_attrs__)
    return getattr(kind, "_fields", None) if issubclass(kind, tuple) else None


@once_for_each_class
def keys_of(kind: type) -> tuple[Mapping[str, str | None], bool]:
    """The fields of a record by the keys of a dict that stands for it, and whether pydantic reads that dict.

    Computed fields are among them: a model writes them, too. None instead of a field: the tag that chooses the type.
    """
    if issubclass(kind, msgspec.Struct):
        keys: dict[str, str | None] = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
        tag = kind.__struct_config__.tag_field
        return ({**keys, tag: None} if tag is not None else keys), False
    if not _is_model(kind):
        return {name: name for name in fields_of(kind) or ()}, False
    model: Any = kind
    if any(each.info.mode in ("before", "wrap") for each in model.__pydantic_decorators__.model_validators.values()):
        return KEYS_OF_ITS_OWN, True
    keys = {field.alias or name: name for name, field in model.model_computed_fields.items()}
    if goes_by_name(model):
        keys |= {name: name for name in model.model_fields}
    return keys | _keys_of_model(model), True


def _keys_of_model(model: Any) -> dict[str, str | None]:
    by_name = model.model_config.get("populate_by_name") or model.model_config.get("validate_by_name")
    keys: dict[str, str | None] = {}
    for name, field in model.model_fields.items():
        if field.validation_alias is None or by_name:
            keys[name] = name
        for alias in getattr(field.validation_alias, "choices", (field.validation_alias,)):
            key = alias if isinstance(alias, str) else next(iter(getattr(alias, "path", ())), None)
            if isinstance(key, str):
                keys[key] = name if isinstance(alias, str) else None  # a path takes a part of what is there
    return keys


@lru_cache(maxsize=1000)
def goes_by_name(annotation: Hashable) -> bool:
    """Whether a pydantic model in an annotation is written and read by the names of its fields.

    By alias it could not read what it writes: its aliases are for one direction only, or others for each. pydantic
    reads by name since 2.11.
    """
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or "by_name" not in pydantic.TypeAdapter.validate_python.__kwdefaults__:
        return False
    waiting: list[Any] = [annotation]
    seen: set[type] = set()
    for part in waiting:  # which grows meanwhile
        waiting += get_args(part)
        if isinstance(part, type) and _is_model(part) and part not in seen:
            seen.add(part)
            model: Any = part
            keys, fields = _keys_of_model(model), model.model_fields
            if any(keys.get(field.serialization_alias or name) != name for name, field in fields.items()):
                return True
            waiting += [field.annotation for field in fields.values()]
    return False


def field_of(value: Any, name: str, otherwise: Any) -> Any:
    """The value of a field, read past pydantic's descriptor, which warns of a deprecated one."""
    inside = getattr(value, "__dict__", _NOTHING)
    return inside[name] if name in inside else getattr(value, name, otherwise)


def items_of(value: Any) -> tuple[Any, ...] | None:
    """The items of the JSON array that a record is written as: of a named tuple, of an `array_like` struct."""
    if isinstance(value, tuple):
        return tuple(value)
    if isinstance(value, msgspec.Struct) and value.__struct_config__.array_like:
        tag, items = value.__struct_config__.tag, msgspec.structs.astuple(value)
        return items if tag is None else (tag, *items)
    return None


def root_of(value: Any) -> str | None:
    """The only field of a pydantic model that is read from a value which is not a dict."""
    return "root" if getattr(type(value), "__pydantic_root_model__", False) else None


def extra_of(value: Any) -> Mapping[str, Any]:
    """The values of a pydantic model that allows others than its fields."""
    return getattr(value, "__pydantic_extra__", None) or _NOTHING


def private_of(value: Any) -> Mapping[str, Any]:
    """The private attributes of a pydantic model."""
    return getattr(value, "__pydantic_private__", None) or _NOTHING


def _is_model(kind: type) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)
