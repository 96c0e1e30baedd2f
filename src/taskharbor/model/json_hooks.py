"""Types that msgspec does not know itself: pydantic's models and types, and subclasses of text and numbers.

pydantic is never imported for its own sake: only a type of the user's that is pydantic's leads to it. What it says
about a value that does not fit is repeated without the value.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from functools import lru_cache
from typing import Any, get_args

_KEYS_ONLY = (type(None), bool, tuple, frozenset)


def to_plain(value: Any) -> Any:
    """A value the JSON encoder does not know, as one it does; TypeError if there is none."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    for plain in (str, int, float):  # subclasses: numpy.float64, markupsafe.Markup, IntFlag-like numbers
        if isinstance(value, plain):
            return plain.__str__(value) if plain is str else plain(value)
    kind: Any = type(value)
    if _is_pydantic(kind):
        return _adapter(kind).dump_python(value, mode="json", round_trip=True)
    if type(value) in _KEYS_ONLY:  # the encoder knows these, so it asks about them as keys
        raise TypeError(
            f"a dict has a key of type {type(value).__name__}, which JSON cannot hold; make the keys text or send pairs"
        )
    raise TypeError(
        f"{type(value).__name__} cannot be written as JSON; use plain values, dataclasses, msgspec structs or pydantic "
        "models, or give your own codec="
    )


def from_plain(type: Any, value: Any) -> Any:
    """A decoded value as a type the JSON decoder does not know; ValueError if it does not fit."""
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
    """A value does not fit; the text is ours and holds nothing of the value."""


def adapted(annotation: Any) -> Any:
    """A class that stands for an annotation which only pydantic can read (a union of models), or None."""
    if not any(_is_pydantic(part) for part in _parts(annotation)):
        return None
    return _Anything("Adapted", (), {"_taskharbor_annotation": annotation})


class _Anything(type):
    """The decoder checks what a hook answers with isinstance; pydantic has checked it already."""

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
    """What pydantic complains about: where and why. A validator of the user's may quote the value: left out."""
    if not hasattr(error, "errors"):
        return f"refused with {type(error).__name__}"
    told = []
    for item in error.errors(include_url=False, include_input=False, include_context=False)[:5]:
        place = ".".join(str(part) for part in item["loc"]) or "the value"
        why = "refused by a validator" if item["type"] in ("value_error", "assertion_error") else item["msg"]
        told.append(f"{place}: {why}")
    return "; ".join(told)
