"""Reprs that keep secrets: a repr ends up in logs and tracebacks without a decision to put it there.

A class that can hold a payload, a result, error text, a token or an address with its password names the fields that
its repr shows. A field that is added later stays hidden until it is named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def shown(value: object, *names: str) -> str:
    """The repr of a value with these fields, and an ellipsis for the others.

    >>> from types import SimpleNamespace
    >>> shown(SimpleNamespace(user="ada", password="secret"), "user")
    "SimpleNamespace(user='ada', …)"
    """
    fields = [f"{name}={getattr(value, name)!r}" for name in names]
    return f"{type(value).__qualname__}({', '.join((*fields, '…'))})"


def shows(*names: str) -> Callable[[type[T]], type[T]]:
    """Give a class a repr with these fields, and an ellipsis for the others.

    >>> @shows("user")
    ... class Login:
    ...     user, password = "ada", "secret"
    >>> Login()
    Login(user='ada', …)
    """

    def decorate(kind: type[T]) -> type[T]:
        kind.__repr__ = lambda self: shown(self, *names)  # type: ignore[method-assign]  # what a class statement would set
        return kind

    return decorate
