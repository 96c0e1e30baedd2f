"""What to say when a payload does not fit a handler: the parameter, what was expected and what came; never a value."""

from __future__ import annotations

import re

import msgspec

from taskharbor.model.json_hooks import Refused

_AT = re.compile(r"(.*) - at (?:`?key`? in )?`(\$.*)`", re.DOTALL)
_PARAMETER = re.compile(r"\$\.([^.\[`]+)")
_NULL = re.compile(r"\bnull\b")
_FIELD = re.compile(r"Object (missing required|contains unknown) field `(.*)`", re.DOTALL)


class PayloadMismatch(ValueError):
    """A payload does not fit the handler's parameters. The same payload never will, so the job is not retried."""


def describe(error: BaseException, parameters: tuple[str, ...]) -> str:
    """One sentence for what a decoder raised."""
    if not isinstance(error, msgspec.ValidationError):
        return _unreadable(error)
    text, place = str(error), "$"
    if (found := _AT.fullmatch(text)) is not None:
        text, place = found[1], found[2]
    named = _PARAMETER.match(place)
    if (field := _FIELD.fullmatch(text)) is not None:
        missing, name = field[1].startswith("missing"), field[2][:100]
        if named is not None:
            told = f"the field {name!r} is missing" if missing else f"there is no field {name!r}"
            return f"parameter {named[1]!r}: {told} at {place}"
        if missing:
            return f"parameter {name!r} is missing"
        return f"there is no parameter {name!r}; expected {', '.join(map(repr, parameters)) or 'none'}"
    cause = error.__cause__
    if cause is not None and not isinstance(cause, Refused):
        text = f"refused with {type(cause).__name__}"  # the user's own check: its text may quote the value
    elif text.startswith(("Invalid enum value", "Invalid value")):
        text = "not one of the expected values"  # msgspec quotes what came
    else:
        text = _NULL.sub("None", text.replace("`", "").replace("Expected", "expected", 1))
    if named is None:
        return text
    return f"parameter {named[1]!r}: {text}" + (f" at {place}" if place != f"$.{named[1]}" else "")


def _unreadable(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 (byte {error.start})"
    if isinstance(error, msgspec.DecodeError):
        return f"not readable: {error}"
    return f"not readable: {type(error).__name__}"
