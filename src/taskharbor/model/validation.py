"""Checks of what a program is put together from: a codec, a clock, observers, middleware.

They run where it is given. Otherwise the first job would show the mistake, or an observer that stays silent. They check
only what can be called, so that any object of the right shape will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def callables(value: Iterable[F], what: str) -> tuple[F, ...]:
    """The functions as a tuple, or TypeError if one cannot be called.

    >>> callables([print], "observers")
    (<built-in function print>,)
    """
    if not isinstance(value, Iterable):
        raise TypeError(f"{what}: expected a list of functions, got {type(value).__name__}; put it into a list")
    given = tuple(value)
    for each in given:
        if not callable(each):
            raise TypeError(f"{what}: expected functions or other callables, got {type(each).__name__}")
    return given


def with_methods(value: T, what: str, *names: str) -> T:
    """The object itself, or TypeError if it lacks one of these methods."""
    if isinstance(value, type):
        raise TypeError(f"{what}: expected an object, got the class {value.__name__}; call it")
    for name in names:
        if not callable(getattr(value, name, None)):
            raise TypeError(
                f"{what}: expected an object with the methods {', '.join(names)}, got {type(value).__name__} "
                f"without {name}"
            )
    return value


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The beginning of advice for a name that is not known; empty if none of the known ones is like it.

    >>> did_you_mean("quue", ["name", "queue"])
    "did you mean 'queue'? "
    """
    from difflib import get_close_matches  # here: only errors need it

    near = get_close_matches(name, known, 1)
    return f"did you mean {near[0]!r}? " if near else ""
