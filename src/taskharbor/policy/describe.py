"""Error text: what is kept of an exception that a handler raised. It never raises itself."""

from __future__ import annotations

import os
import traceback

from taskharbor.model.limits import clean_error

_OURS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")


def name_of(error: BaseException) -> str:
    """The name of the exception's class."""
    return type(error).__qualname__


def summary(error: BaseException) -> str:
    """One line: class and message. An exception whose `__str__` raises is described all the same.

    >>> summary(ValueError("no such account"))
    'ValueError: no such account'
    """
    try:
        text = str(error)
    except BaseException as second:
        text = f"(its text could not be read: {type(second).__qualname__})"
    return f"{name_of(error)}: {text}" if text else name_of(error)


def describe(error: BaseException) -> str:
    """The summary, where it was raised (innermost frame last, our own frames left out) and its notes."""
    head = clean_error(summary(error))
    return clean_error("\n\n".join([head, *_frames(error), *_notes(error)]))


def _frames(error: BaseException) -> list[str]:
    try:
        frames = traceback.extract_tb(error.__traceback__)
        theirs = [frame for frame in frames if not frame.filename.startswith(_OURS)]
        return ["".join(traceback.format_list(theirs[-20:])).rstrip()] if theirs else []
    except Exception:
        return []


def _notes(error: BaseException) -> list[str]:
    try:
        return [note for note in getattr(error, "__notes__", ()) if isinstance(note, str)]
    except Exception:
        return []
