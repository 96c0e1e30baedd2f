"""What may be seen of a job's payload and result: nothing, unless it was asked for.

Error text is shown, for it is what an operator looks for; but a handler's error may quote what it was given, so the
values of the hidden payload are taken out of it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from taskharbor.cli.text import first_line
from taskharbor.model.job import JobRecord

MASK = "•••"
_SHORTEST = 4  # shorter values say little, and would be found everywhere
_PIECE = 16  # so much of a value in one run is no accident


@dataclass(frozen=True)
class Reveal:
    """How much to show: everything, everything but some fields, or nothing."""

    show: bool = False
    fields: frozenset[str] = frozenset()

    @classmethod
    def of(cls, show_payload: bool, redact: tuple[str, ...]) -> Reveal:
        """From the options: naming what to hide is asking to see the rest."""
        return cls(show_payload or bool(redact), frozenset(name.lower() for name in redact))

    def value(self, data: bytes | None) -> Any:
        """Stored bytes as they may be shown; None if they may not."""
        if data is None or not self.show:
            return None
        return self._masked(read(data))

    def text(self, text: str, job: JobRecord) -> str:
        """Error text without the hidden values of the job's payload."""
        if not text:
            return text
        hidden = {form for value in self._hidden(read(job.payload)) for form in _forms(value)}
        for form in sorted(hidden, key=len, reverse=True):
            text = text.replace(form, MASK)
        return _without_pieces(text, hidden)

    def why(self, job: JobRecord) -> str:
        """Why a job ended as it did, in one line: the recorded reason, and the last error where that says more."""
        reason, error = first_line(self.text(job.reason, job)), first_line(self.text(job.last_error, job))
        if reason and reason in error:  # the text of an Unrecoverable is both
            return error
        return f"{reason}: {error}" if reason and error and error not in reason else reason or error

    def _masked(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: MASK if str(key).lower() in self.fields else self._masked(item) for key, item in value.items()}
        return [self._masked(item) for item in value] if isinstance(value, list) else value

    def _hidden(self, value: Any, inside: bool = False) -> Iterator[Any]:
        hidden = inside or not self.show
        if isinstance(value, dict):
            for key, item in value.items():
                yield from self._hidden(item, hidden or str(key).lower() in self.fields)
        elif isinstance(value, list):
            for item in value:
                yield from self._hidden(item, hidden)
        elif hidden:
            yield value


HIDDEN = Reveal()


def read(data: bytes) -> Any:
    """Stored bytes as JSON has them; what is no JSON as text, and what is no text as base64."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _forms(value: Any) -> set[str]:
    """A value as error text may quote it."""
    if isinstance(value, bool) or value is None:
        return set()
    if not isinstance(value, str):
        text = str(value)
        return {text} if len(text) >= _SHORTEST else set()
    if len(value.strip()) < _SHORTEST:
        return set()
    lines = (line.strip() for line in value.splitlines())
    return {
        value,
        value.strip(),
        repr(value)[1:-1],
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        *(line for line in lines if len(line) >= _SHORTEST),
    }


def _without_pieces(text: str, forms: set[str]) -> str:
    """The text without runs of long values: a store cuts long errors, and replaces what it cannot keep."""
    pieces = {form[at : at + _PIECE] for form in forms for at in range(len(form) - _PIECE + 1)}
    kept: list[str] = []
    start = at = 0  # what lies before `start` is dealt with
    while at + _PIECE <= len(text):
        if text[at : at + _PIECE] not in pieces:
            at += 1
            continue
        end = at + _PIECE
        while end < len(text) and text[end - _PIECE + 1 : end + 1] in pieces:
            end += 1
        kept += (text[start:at], MASK)
        start = at = end
    return "".join((*kept, text[start:]))
