"""The text of the error for a payload that does not fit a handler: the parameter, what was expected, what was received.

It never quotes a value, for a payload may hold secrets and errors are logged. msgspec's own messages say what is wrong
in English sentences, some of which quote the value. So only sentences that are known to quote none are shown, word for
word from the versions that were read; any other message, such as one of a future version, becomes "does not fit".
"""

from __future__ import annotations

import re

import msgspec

from taskharbor.model.json_hooks import Refused

_WITH_PATH = re.compile(r"(.*) - at (?:`?key`? in )?`(\$[^`]*)`", re.DOTALL)
_PARAMETER = re.compile(r"\$\.([^.\[`]+)")
_NULL = re.compile(r"\bnull\b")
_FIELD = re.compile(r"Object (missing required|contains unknown) field `(.*)`", re.DOTALL)
# The two long ones stay text until an error needs them: compiling them was 1 % of what importing a worker costs.
_WITHOUT_A_VALUE = (
    r"Expected `[^`]+`"
    r"(?:, got `(?:int|float|str|bool|null|bytes|array|object|list|tuple|dict|set|NoneType)`"
    r"| [<>]=? [-+.\de]+| that's a multiple of [\d.]+| with (?:a|no) timezone component| matching regex .*"
    r"| of (?:at least |at most )?length (?:[<>]= )?\d+(?: to \d+)?(?:, got \d+)?)?"
    r"|Invalid (?:UUID(?: bytes)?|decimal string|epoch timestamp|ISO8601 duration|base64 encoded string"
    r"|RFC3339 encoded (?:datetime|date|time))"
    r"|(?:Integer value|Number|Timestamp is|Duration is) out of range ?"
    r"|Only units 'D', 'H', 'M', and 'S' are supported when parsing ISO8601 durations"
)
_MALFORMED = (
    r"Input data was truncated"
    r"|JSON is malformed: (?:invalid (?:number|character|escaped character|utf-16 surrogate pair)"
    r"|invalid (?:character in unicode escape|escape character in string)"
    r"|unexpected end of (?:hex escape|escaped utf-16 surrogate pair)|expected '.'(?: or '.')?"
    r"|trailing (?:characters|comma in (?:array|object))|object keys must be strings) \(byte \d+\)"
)


class PayloadMismatch(ValueError):
    """A payload does not fit the handler's parameters. The same payload never will, so the job is not retried."""


def describe(error: BaseException, parameters: tuple[str, ...]) -> str:
    """One sentence for what a decoder raised."""
    if not isinstance(error, msgspec.ValidationError):
        return _unreadable(error)
    text, place = str(error), "$"
    if (found := _WITH_PATH.fullmatch(text)) is not None:
        text, place = found[1], found[2]
    parameter = _PARAMETER.match(place)
    if (field := _FIELD.fullmatch(text)) is not None:
        return _wrong_field(field[1] == "missing required", field[2][:100], parameter, place, parameters)
    text = _what_is_wrong(error, text)
    if parameter is None:
        return text
    return f"parameter {parameter[1]!r}: {text}" + (f" at {place}" if place != f"$.{parameter[1]}" else "")


def _wrong_field(
    is_missing: bool, name: str, parameter: re.Match[str] | None, place: str, parameters: tuple[str, ...]
) -> str:
    """For a name that is missing or unknown: among the parameters themselves, or inside one of them."""
    if parameter is not None:
        what = f"the field {name!r} is missing" if is_missing else f"there is no field {name!r}"
        return f"parameter {parameter[1]!r}: {what} at {place}"
    if is_missing:
        return f"parameter {name!r} is missing"
    return f"there is no parameter {name!r}; expected {', '.join(map(repr, parameters)) or 'none'}"


def _what_is_wrong(error: msgspec.ValidationError, text: str) -> str:
    """The decoder's message without the value."""
    cause = error.__cause__
    if isinstance(cause, Refused):
        return text  # our own words
    if cause is not None:
        return f"refused with {type(cause).__name__}"  # the user's own check: its text may quote the value
    if text.startswith(("Invalid enum value", "Invalid value")):
        return "not one of the expected values"  # the message goes on with the value
    if re.fullmatch(_WITHOUT_A_VALUE, text, re.DOTALL) is None:
        return "does not fit its type"
    return _NULL.sub("None", text.replace("`", "").replace("Expected", "expected", 1)).rstrip()


def _unreadable(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 (byte {error.start})"
    if isinstance(error, msgspec.DecodeError) and re.fullmatch(_MALFORMED, str(error)) is not None:
        return f"not readable: {error}"
    return f"not readable: {type(error).__name__}"
