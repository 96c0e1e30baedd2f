"""Reprs that keep secrets. A repr ends up in logs and tracebacks without anybody having decided so.

A class that can hold a payload, a result, error text, a token or an address with its password names the fields that
may be shown; a field that is added later is hidden until it is named, too.
"""

from __future__ import annotations


def shown(value: object, *names: str) -> str:
    """The repr of a value by these of its fields, and that there are more.

    >>> from types import SimpleNamespace
    >>> shown(SimpleNamespace(user="ada", password="secret"), "user")
    "SimpleNamespace(user='ada', …)"
    """
    told = [f"{name}={getattr(value, name)!r}" for name in names]
    return f"{type(value).__qualname__}({', '.join((*told, '…'))})"
