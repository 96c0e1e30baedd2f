"""Checks of what a program is put together from (a codec, a clock, observers, middleware), and of plain arguments.

They run where it is given. Otherwise the first job would show the mistake, or an observer that stays silent. They check
only what can be called, so that any object of the right shape will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


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


def refuse_unknown(what: str, given: Iterable[str], known: Iterable[str], hints: Mapping[str, str]) -> None:
    """TypeError for the first option that is not known, with advice.

    >>> refuse_unknown("worker", ["concurency"], ["concurrency", "lease"], {})
    Traceback (most recent call last):
    TypeError: worker: unknown option 'concurency'; did you mean 'concurrency'? expected one of: concurrency, lease
    """
    for name in given:
        if name not in known:
            advice = hints.get(name) or f"{did_you_mean(name, known)}expected one of: {', '.join(known)}"
            raise TypeError(f"{what}: unknown option {name!r}; {advice}")


def explains_unknown(what: str, hints: Mapping[str, str]) -> Callable[[F], F]:
    """Let an `__init__` refuse an unknown option with advice. Its signature stays as it is."""

    def decorate(init: F) -> F:
        kinds = signature(init).parameters.values()
        known = [each.name for each in kinds if each.kind is each.KEYWORD_ONLY]
        accepted = {each.name for each in kinds}

        @wraps(init)
        def checked(self: Any, *args: Any, **given: Any) -> None:
            if not accepted.issuperset(given):
                refuse_unknown(what, (name for name in given if name not in accepted), known, hints)
            init(self, *args, **given)

        return cast(F, checked)

    return decorate


def at_least_one(value: Any, name: str) -> int:
    """A number of things to read, or TypeError / ValueError."""
    if type(value) is not int:
        raise TypeError(f"{name}: expected a whole number, got {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name}: expected 1 or more, got {value}")
    return value


def one_of(kind: type[E], value: Any, name: str) -> E:
    """A member of an enumeration by its value, or ValueError that names all of them."""
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(str(member) for member in kind)
        raise ValueError(f"{name}: expected one of {known}, got {value!r}") from None
