"""Error text: what the store keeps of an exception that a handler raised. Nothing here raises."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from types import TracebackType

from taskharbor.model.bounds import clean_error
from taskharbor.model.errors import RetryLater
from taskharbor.model.naming import class_name

_OURS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_FRAMES = 20  # of each exception, the innermost
_EXCEPTIONS = 10  # described for one failure: itself, its causes, the members of its groups

_Related = Callable[[BaseException], BaseException | None]
_cause: _Related = BaseException.__dict__["__cause__"].__get__
_context: _Related = BaseException.__dict__["__context__"].__get__
_suppresses: Callable[[BaseException], bool] = BaseException.__dict__["__suppress_context__"].__get__
_traceback: Callable[[BaseException], TracebackType | None] = BaseException.__dict__["__traceback__"].__get__
_members: Callable[[BaseException], tuple[BaseException, ...]] = BaseExceptionGroup.__dict__["exceptions"].__get__


def summary(error: BaseException) -> str:
    """One line: class and message, even of an exception whose `__str__` raises.

    >>> summary(ValueError("no such account"))
    'ValueError: no such account'
    """
    try:
        text = str.__str__(str(error))  # a subclass of str may refuse to be formatted
    except BaseException as second:
        text = f"(its text could not be read: {class_name(second)})"
    return f"{class_name(error)}: {text}" if text else class_name(error)


def blamed(error: BaseException) -> BaseException:
    """What a failure is known by: mostly the error itself; for `raise RetryLater(…) from other` that other one."""
    cause = _cause(error) if issubclass(type(error), RetryLater) else None
    return error if cause is None else cause


def describe(error: BaseException) -> str:
    """The summary, where it was raised (innermost frame last, our own frames left out) and its notes.

    Then the same of what caused it and, for an exception group, of its members.
    """
    parts: list[str] = []
    for role, one in _family(error):
        parts += [role + clean_error(summary(one)), *_frames(one), *_notes(one)]
    return clean_error("\n\n".join(parts))


def _family(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """The exception, its members and its causes, nearest first, each once; causes may form a ring.

    They are read through the descriptors of BaseException: a subclass may return anything for `__cause__` or
    `exceptions`, or raise.
    """
    waiting, seen = [("", error)], set[int]()
    while waiting and len(seen) < _EXCEPTIONS:
        role, one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield role, one
        if issubclass(type(one), BaseExceptionGroup):
            waiting += [("in the group: ", member) for member in _members(one)]
        cause, context = _cause(one), _context(one)
        if cause is not None:
            waiting.append(("caused by ", cause))
        elif context is not None and not _suppresses(one):
            waiting.append(("while handling ", context))


def _frames(error: BaseException) -> list[str]:
    try:
        frames = traceback.walk_tb(_traceback(error))
        theirs = [(frame, line) for frame, line in frames if not frame.f_code.co_filename.startswith(_OURS)]
        extracted = traceback.StackSummary.extract(iter(theirs[-_FRAMES:]))
        return ["".join(extracted.format()).rstrip()] if extracted else []
    except BaseException:  # source is read through loaders, which may be the user's
        return []


def _notes(error: BaseException) -> list[str]:
    try:
        notes = tuple(getattr(error, "__notes__", ()))
        return [str.__str__(note) for note in notes if issubclass(type(note), str)]
    except BaseException:
        return []
