"""msgspec's hooks for types that it does not know: pydantic's models and types, and subclasses of text and numbers.

This module never imports pydantic: it uses the loaded one when a type of the user's is pydantic's. pydantic's errors
about a value are repeated without the value.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from functools import lru_cache
from typing import Any, get_args

_KEYS_ONLY = (type(None), bool, tuple, frozenset)


def to_plain(value: Any) -> Any:
    """Convert a value that the JSON encoder does not know to one that it does, or TypeError."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    for plain in (str, int, float):  # subclasses: numpy.float64, markupsafe.Markup, IntFlag-like numbers
        if isinstance(value, plain):
            return plain.__str__(value) if plain is str else plain(value)
    kind: Any = type(value)
    if _is_pydantic(kind):
        return _adapter(kind).dump_python(value, mode="json", round_trip=True)
    if type(value) in _KEYS_ONLY:  # the encoder knows these as values, so here they are keys
        raise TypeError(
            f"a dict has a key of type {type(value).__name__}, which JSON cannot hold; make the keys text or send pairs"
        )
    raise TypeError(
        f"{type(value).__name__} cannot be written as JSON; use plain values, dataclasses, msgspec structs or pydantic "
        "models, or give your own codec="
    )


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
    try:
        return _adapter(type if annotation is None else annotation).validate_python(value)
    except ValueError as error:
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


def _without_values(error: Any) -> str:
    """Where pydantic found an error, and which. The text of a user's own validator may quote the value: left out."""
    if not hasattr(error, "errors"):
        return f"refused with {type(error).__name__}"
    found = []
    for item in error.errors(include_url=False, include_input=False, include_context=False)[:5]:
        place = ".".join(str(part) for part in item["loc"]) or "the value"
        why = "refused by a validator" if item["type"] in ("value_error", "assertion_error") else item["msg"]
        found.append(f"{place}: {why}")
    return "; ".join(found)
