"""Annotations of callables, resolved to types: all at once, or one by one where some cannot be resolved yet."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from taskharbor.tasks.context import JobContext

UNRESOLVED = object()
"""Stands for an annotation that cannot be resolved now: what it names may be defined further down in its module."""


def called(function: Callable[..., Any]) -> Any:
    """What a call of a callable runs, and so what has its annotations: a function, a method or an `__init__`."""
    target: Any = function
    while isinstance(target, functools.partial):
        target = target.func
    if not inspect.isroutine(target):
        target = type(target).__call__ if not inspect.isclass(target) else target.__init__
    return target


def hints_of(function: Callable[..., Any], name: str, without: Collection[str] = ()) -> dict[str, Any]:
    """The annotations as types; TypeError with advice for one that cannot be resolved. `without`: parameters whose
    annotations nothing needs."""
    target = called(function)
    annotated: Any = target
    namespace = None
    if without:
        kept = {each: kind for each, kind in getattr(target, "__annotations__", {}).items() if each not in without}
        annotated, namespace = SimpleNamespace(__annotations__=kept), _namespace(target)
    try:
        return get_type_hints(annotated, namespace, include_extras=True)
    except NameError as error:
        if error.name == JobContext.__name__:  # imported for the type checker alone
            return get_type_hints(annotated, namespace, {JobContext.__name__: JobContext}, include_extras=True)
        raise TypeError(
            f"{name}: the annotation {error.name!r} cannot be resolved; define or import it in the module of the "
            "function (not inside another function, nor under `if TYPE_CHECKING`)"
        ) from None


def hints_now(function: Callable[..., Any]) -> dict[str, Any] | None:
    """The annotations as types, or None if one of them cannot be resolved."""
    try:
        return get_type_hints(called(function), include_extras=True)
    except Exception:
        return None


def hint_of(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The annotation of one parameter as a type; `Parameter.empty` if it has none, UNRESOLVED if it names something
    unknown."""
    annotation = parameter.annotation
    if not isinstance(annotation, str):
        return annotation
    holder = SimpleNamespace(__annotations__={parameter.name: annotation})
    known = {JobContext.__name__: JobContext, **_namespace(called(function))}
    try:
        return get_type_hints(holder, known, include_extras=True)[parameter.name]
    except Exception:
        return UNRESOLVED


def unaliased(annotation: Any) -> Any:
    """What an alias of the `type` statement stands for; anything else as it is. Known by name: Python 3.11 has none."""
    while type(annotation).__name__ == "TypeAliasType":
        try:
            annotation = annotation.__value__
        except NameError:  # it names something that is not defined yet
            return UNRESOLVED
    return annotation


def _namespace(target: Any) -> dict[str, Any]:
    return getattr(inspect.unwrap(target), "__globals__", {})


def is_context(annotation: Any) -> bool:
    """Whether a parameter with this annotation receives the context of the job."""
    annotation = unaliased(annotation)
    origin = get_origin(annotation)
    if origin is Annotated:
        return is_context(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return any(is_context(part) for part in get_args(annotation))
    return annotation is JobContext
