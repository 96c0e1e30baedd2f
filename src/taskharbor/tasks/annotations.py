"""Annotations of callables, resolved to types: all at once, or one by one where some cannot be resolved yet."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterator
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from taskharbor.tasks.context import JobContext

UNRESOLVED = object()
"""Stands for an annotation that cannot be resolved now: what it names may be defined further down in its module."""


def without_partials(function: Callable[..., Any]) -> Any:
    """The callable that `functools.partial` was given, however often."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def called(function: Callable[..., Any]) -> Any:
    """What a call of a callable runs, and so what has its annotations: a function, a method or an `__init__`."""
    target = without_partials(function)
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


def flattened(annotation: Any) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The types that an annotation allows, each with what `Annotated[…]` adds to it.

    >>> list(flattened(Annotated[int, "years"] | None))
    [(<class 'int'>, ('years',)), (<class 'NoneType'>, ())]
    """
    annotation = unaliased(annotation)
    if get_origin(annotation) is Annotated:
        first, *added = get_args(annotation)
        yield from ((kind, (*more, *added)) for kind, more in flattened(first))
    elif get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from flattened(part)
    else:
        yield annotation, ()


def _namespace(target: Any) -> dict[str, Any]:
    return getattr(inspect.unwrap(target), "__globals__", {})


def is_context(annotation: Any) -> bool:
    """Whether a parameter with this annotation receives the context of the job."""
    return any(kind is JobContext for kind, _ in flattened(annotation))
