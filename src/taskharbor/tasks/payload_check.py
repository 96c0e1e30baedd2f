"""Arguments at places that no annotation types: only what JSON brings back as it was may stand there.

Where an annotation names a type, a value is converted both ways. At a place without one (a parameter without an
annotation, `Any`, what a bare `dict` or `list` holds) a handler would receive text for bytes or a datetime, and a list
for a set or a tuple: a change of type that nobody asked for, found out only by the first job. So the call is refused.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect

from taskharbor.model.json_hooks import to_plain

PLAIN = frozenset({str, int, float, bool, type(None)})
_NAMES = {str: "text", list: "a list", dict: "a dict", int: "a number", float: "a number", bool: "True or False"}


class Changed(TypeError):
    """A value would come back as another type; the text says which, where and what to do."""


def check_of(annotation: Any) -> Callable[[Any, str], None] | None:
    """What looks at a value and its place, and raises Changed; None if the annotation types every place.

    >>> check_of(list[int]) is None
    True
    >>> check_of(dict)({"at": b"x"}, "$.x")
    Traceback (most recent call last):
    ...
    taskharbor.tasks.payload_check.Changed: a value of type bytes would come back as text at $.x.at; ...
    """
    try:
        info = inspect.type_info(annotation)
    except Exception:  # a type that only a library of its own reads: that one types it
        return None
    if not _is_open(info, set()):
        return None

    def check(value: Any, place: str) -> None:
        _look(info, value, place, place)

    return check


def _is_open(info: inspect.Type, seen: set[int]) -> bool:
    """Whether there is a place in it that has no type."""
    if _is_untyped(info):
        return True
    if id(info) in seen:  # a type that contains itself
        return False
    seen.add(id(info))
    return any(_is_open(part, seen) for part in _parts(info))


def _is_untyped(info: inspect.Type) -> bool:
    return isinstance(info, inspect.AnyType) or (isinstance(info, inspect.CustomType) and info.cls is object)


def _parts(info: Any) -> Iterator[inspect.Type]:
    """The types inside a type. (Keys of dicts have a rule of their own, in the codec.)"""
    for name in ("type", "item_type", "value_type"):  # Metadata, collections, dicts
        if hasattr(info, name):
            yield getattr(info, name)
    yield from getattr(info, "item_types", ())  # tuples
    yield from getattr(info, "types", ())  # unions
    for field in getattr(info, "fields", ()):
        yield field.type


def _look(info: Any, value: Any, place: str, root: str) -> None:
    """Look at the untyped places of a value that has this type. What has another shape, the reader refuses."""
    if type(value) in PLAIN:
        return
    if _is_untyped(info):
        _keep(value, place, root)
    elif isinstance(info, inspect.Metadata):
        _look(info.type, value, place, root)
    elif isinstance(info, inspect.UnionType):
        if any(_is_untyped(each) for each in info.types):
            _keep(value, place, root)
        else:
            for each in info.types:
                _look(each, value, place, root)
    elif hasattr(info, "fields"):
        for field in info.fields:
            given = value.get(field.encode_name) if isinstance(value, dict) else getattr(value, field.name, None)
            _look(field.type, given, f"{place}.{field.name}", root)
    elif hasattr(info, "value_type") and isinstance(value, Mapping):
        for key, item in value.items():
            _look(info.value_type, item, _at(place, key), root)
    elif isinstance(value, list | tuple | set | frozenset):
        if hasattr(info, "item_types"):
            for index, (each, item) in enumerate(zip(info.item_types, value, strict=False)):
                _look(each, item, f"{place}[{index}]", root)
        elif hasattr(info, "item_type"):
            for index, item in enumerate(value):
                _look(info.item_type, item, f"{place}[{index}]", root)


def _keep(value: Any, place: str, root: str) -> None:
    """Raise unless JSON brings the value back as it was. Subclasses of what JSON knows come back equal: they may."""
    if isinstance(value, enum.Enum):
        raise _changed(value, place, root)
    if isinstance(value, dict):
        for key, item in value.items():
            if type(item) not in PLAIN:
                _keep(item, _at(place, key), root)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if type(item) not in PLAIN:
                _keep(item, f"{place}[{index}]", root)
    elif not isinstance(value, str | int | float | None):
        raise _changed(value, place, root)


def _changed(value: Any, place: str, root: str) -> Changed:
    kind, becomes = type(value).__name__, type(msgspec.json.decode(msgspec.json.encode(value, enc_hook=to_plain)))
    told = f"a value of type {kind} would come back as {_NAMES.get(becomes, becomes.__name__)}"
    if place == root:
        name = root.removeprefix("$.")
        return Changed(f"{told}; annotate the parameter ({name}: {kind}), or send what JSON holds")
    return Changed(
        f"{told} at {place}; annotate the parameter with the types inside (a dataclass, dict[str, {kind}], …), or send "
        "what JSON holds"
    )


def _at(place: str, key: Any) -> str:
    return f"{place}.{key}" if isinstance(key, str) and key.isidentifier() else f"{place}[…]"
