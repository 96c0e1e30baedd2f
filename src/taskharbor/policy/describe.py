"""Error text: what is kept of an exception that a handler raised. It never raises itself."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator

from taskharbor.model.limits import clean_error

_OURS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_FRAMES = 20  # of each exception, the innermost
_EXCEPTIONS = 10  # told of one failure: itself, its causes, the members of its groups


def name_of(error: BaseException) -> str:
    """The name of the exception's class."""
    return type(error).__qualname__


def summary(error: BaseException) -> str:
    """One line: class and message. An exception whose `__str__` raises is described all the same.

    >>> summary(ValueError("no such account"))
    'ValueError: no such account'
    """
    try:
        text = str.__str__(str(error))  # a subclass of str may refuse to be formatted
    except BaseException as second:
        text = f"(its text could not be read: {type(second).__qualname__})"
    return f"{name_of(error)}: {text}" if text else name_of(error)


def describe(error: BaseException) -> str:
    """The summary, where it was raised (innermost frame last, our own frames left out) and its notes.

    Then the same of what caused it and, for an exception group, of its members.
    """
    parts: list[str] = []
    for said, one in _family(error):
        parts += [said + clean_error(summary(one)), *_frames(one), *_notes(one)]
    return clean_error("\n\n".join(parts))


def _family(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """The exception, its members and its causes, nearest first, each once; causes may form a ring."""
    waiting, seen = [("", error)], set[int]()
    while waiting and len(seen) < _EXCEPTIONS:
        said, one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield said, one
        if isinstance(one, BaseExceptionGroup):
            waiting += [("in the group: ", member) for member in one.exceptions]
        if one.__cause__ is not None:
            waiting.append(("caused by ", one.__cause__))
        elif one.__context__ is not None and not one.__suppress_context__:
            waiting.append(("while handling ", one.__context__))


def _frames(error: BaseException) -> list[str]:
    try:
        frames = traceback.walk_tb(error.__traceback__)
        theirs = [(frame, line) for frame, line in frames if not frame.f_code.co_filename.startswith(_OURS)]
        told = traceback.StackSummary.extract(iter(theirs[-_FRAMES:]))
        return ["".join(told.format()).rstrip()] if told else []
    except Exception:
        return []


def _notes(error: BaseException) -> list[str]:
    try:
        return [note for note in getattr(error, "__notes__", ()) if isinstance(note, str)]
    except Exception:
        return []
