"""What a failure is known by: the class of its error, and a fingerprint that failures with the same cause share.

The fingerprint is made of the job's type, the class, and the deepest function of the application in the traceback. It
has no line numbers and no text, so it stays the same over deployments, and from argument to argument.

An exception is the user's object, so nothing here runs code of its class, and nothing raises.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from hashlib import sha256
from types import CodeType, TracebackType
from typing import Any

import msgspec

from taskharbor.model.error_class import error_class_of, storable

CRASHED_CLASS = "taskharbor.Crashed"
LOST_CLASS = "taskharbor.Lost"
"""Stands for a class where a job took its workers down: no exception is known."""

_ORIGIN = "__taskharbor_origin__"
_DIGITS = 16
_OURS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_attributes: Callable[[BaseException], dict[str, Any]] = BaseException.__dict__["__dict__"].__get__
_traceback: Callable[[BaseException], TracebackType | None] = BaseException.__dict__["__traceback__"].__get__


class Cause(msgspec.Struct, frozen=True):
    """What a failure is known by, as a record keeps it."""

    error_class: str
    fingerprint: str


def cause_of(job_type: str, error: BaseException, handler: Callable[..., Any] | None = None) -> Cause:
    """The cause of a failure. `handler`: the function that failed; its package is the application's.

    >>> cause_of("mail:send", KeyError("ada")).error_class
    'KeyError'
    """
    return cause_named(job_type, *origin_of(error, handler))


def cause_named(job_type: str, error_class: str, place: str = "") -> Cause:
    """The cause of a failure whose class and place are known, or have another name.

    >>> cause_named("mail:send", CRASHED_CLASS).fingerprint
    '6f0bfc9cb71c9b90'
    """
    known = "\n".join((job_type, error_class, place)).encode(errors="replace")
    return Cause(error_class, sha256(known).hexdigest()[:_DIGITS])


def origin_of(error: BaseException, handler: Callable[..., Any] | None = None) -> tuple[str, str]:
    """The class of an error, and the deepest function of the application in its traceback: `module:function`."""
    try:
        error_class, place = _attributes(error).get(_ORIGIN) or (error_class_of(type(error)), _place(error, handler))
        return storable(str.__str__(error_class)), str.__str__(place)
    except BaseException:
        return "", ""


def note_origin(error: BaseException, error_class: str, place: str) -> None:
    """Remember where an error comes from that was raised in another process: its traceback stayed there."""
    try:
        BaseException.__setattr__(error, _ORIGIN, (error_class, place))
    except BaseException:  # its class allows no attributes
        return


def _place(error: BaseException, handler: Callable[..., Any] | None) -> str:
    """The deepest function of the application; if none is of the application, the deepest that is not ours.

    An application may be installed as a package: what has the handler's package counts as well, wherever it is.
    """
    deepest = of_application = ""
    raised, package = _traceback(error), _package(handler)
    while raised is not None:
        frame, raised = raised.tb_frame, raised.tb_next
        code = frame.f_code
        if code.co_filename.startswith(_OURS):
            continue
        module = frame.f_globals.get("__name__")
        name = module if type(module) is str else "?"
        deepest = f"{'__main__' if name == '__mp_main__' else name}:{code.co_qualname}"
        if name.partition(".")[0] == package or _is_of_application(code):
            of_application = deepest
    return of_application or deepest


def _package(function: Callable[..., Any] | None) -> str:
    try:
        while isinstance(function, partial):
            function = function.func
        return "" if function is None else str.partition(function.__module__, ".")[0]
    except BaseException:  # a callable of the user's own may raise, or have no module
        return ""


def _is_of_application(code: CodeType) -> bool:
    path = code.co_filename
    if path.startswith(("<frozen ", *_libraries())):
        return False
    return not any(each in path for each in _INSTALLED)


@cache
def _libraries() -> tuple[str, ...]:
    """The folders of Python's own library and of installed packages. `sysconfig` loads much, and only failures ask."""
    import sysconfig

    paths = sysconfig.get_paths()
    return tuple({os.path.join(path, "") for name, path in paths.items() if name.endswith(("stdlib", "lib"))})
