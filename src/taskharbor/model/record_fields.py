"""The fields of records: dataclasses, msgspec structs, pydantic models, attrs classes and named tuples.

They are found once for each class. This module never imports pydantic: it uses the loaded one.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar, get_args

import msgspec

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
