"""Annotations of callables, resolved to types one by one: some may name what is not defined yet."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from taskharbor.tasks.context import JobContext


class Unresolved:
    """Stands for an annotation that cannot be resolved now: what it names may be defined further down in its module."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def refusal(self, name: str) -> Exception:
        """The error for a function of this name, with advice."""
        if not isinstance(self.error, NameError):
            return self.error
        return TypeError(
            f"{name}: the annotation {self.error.name!r} cannot be resolved; define or import it in the module of the "
            "function (not inside another function, nor under `if TYPE_CHECKING`)"
        )


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


def hints_of(function: Callable[..., Any], signature: inspect.Signature) -> dict[str, Any]:
    """The annotations as types, by parameter, and that of the result by "return"; Unresolved for one that names
    something unknown. `JobContext` is known everywhere: a module may import it for the type checker alone."""
    target = called(function)
    known = {JobContext.__name__: JobContext, **getattr(inspect.unwrap(target), "__globals__", {})}
    written = {each.name: each.annotation for each in signature.parameters.values()}
    written["return"] = getattr(target, "__annotations__", {}).get("return", inspect.Signature.empty)
    hints: dict[str, Any] = {}
    for name, annotation in written.items():
        if annotation is not inspect.Signature.empty:
            holder = SimpleNamespace(
                __annotations__={name: annotation}, __type_params__=getattr(target, "__type_params__", ())
            )
            try:
                hints[name] = get_type_hints(holder, known, include_extras=True)[name]
            except Exception as error:
                hints[name] = Unresolved(error)
    return hints


def unaliased(annotation: Any) -> Any:
    """What an alias of the `type` statement stands for; anything else as it is. Known by name: Python 3.11 has none."""
    while type(annotation).__name__ == "TypeAliasType":
        try:
            annotation = annotation.__value__
        except NameError as error:  # it names something that is not defined yet
            return Unresolved(error)
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


def is_context(annotation: Any) -> bool:
    """Whether a parameter with this annotation receives the context of the job."""
    return any(kind is JobContext for kind, _ in flattened(annotation))
