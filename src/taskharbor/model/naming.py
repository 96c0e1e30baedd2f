"""Names of classes and callables that may be broken: reading one runs none of their code.

A metaclass may raise in `__qualname__`, an object in `__getattr__`, and a name may be a subclass of str that refuses to
be formatted. Code that reports such an object must not fail with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_qualname: Callable[[type], str] = type.__dict__["__qualname__"].__get__
_module: Callable[[type], object] = type.__dict__["__module__"].__get__
_mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__


def class_name(value: object) -> str:
    """The qualified name of a value's class, whatever its metaclass or its `__class__` returns.

    >>> class_name(ValueError("no such account"))
    'ValueError'
    """
    return qualified_name(type(value))


def qualified_name(kind: type) -> str:
    """The qualified name of a class, whatever its metaclass returns."""
    return str.__str__(_qualname(kind))


def module_name(kind: type) -> str:
    """The module of a class, as it says itself; `?` if that is not a text."""
    module = _module(kind)
    return str.__str__(module) if issubclass(type(module), str) else "?"


def full_name(kind: type) -> str:
    """A class as its module and qualified name.

    >>> full_name(KeyError)
    'builtins.KeyError'
    """
    return f"{module_name(kind)}.{qualified_name(kind)}"


def lineage(kind: type) -> tuple[type, ...]:
    """The class and those it inherits from, whatever its metaclass returns."""
    return _mro(kind)


def callable_name(function: Callable[..., Any]) -> str:
    """The qualified name of a function, or of the class of another callable, such as a partial.

    >>> callable_name(print), callable_name(class_name)
    ('print', 'class_name')
    """
    try:
        return str.__str__(function.__qualname__)
    except BaseException:
        return class_name(function)
