"""Error text: what is kept of an exception that a handler raised. It never raises itself."""

from __future__ import annotations

import traceback

from taskharbor.model.limits import clean_error


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
    """The summary and where it was raised, innermost frame last, as much of it as a store keeps."""
    head = clean_error(summary(error))
    try:
        frames = "".join(traceback.format_list(traceback.extract_tb(error.__traceback__)[-20:]))
    except Exception:
        return head
    return clean_error(f"{head}\n\n{frames}") if frames else head
