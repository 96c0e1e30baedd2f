"""The lifespan of a worker process, as a program declares it: `Harbor(dsn, lifespan=resources)`.

@asynccontextmanager
async def resources() -> AsyncIterator[App]:
    async with create_pool() as pool:
        yield App(pool)

Of what it gave (the `App`), a parameter with `Given()` receives

    the object itself, if the annotation fits it (or there is none)
    otherwise the field whose declared type is the annotation, else the one whose type or value fits it

Two fields that fit equally well are an error, which names them: a name alone does not decide.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from operator import attrgetter, itemgetter
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from taskharbor.model.codec import type_name
from taskharbor.model.naming import callable_name, class_name, lineage
from taskharbor.tasks.annotations import unaliased

Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]
"""A function that returns an asynchronous context manager: entered before the first job, left after the last."""

Getter = Callable[[Any], Any]
_MAX_FIELDS_SHOWN = 20


def check_lifespan(lifespan: Lifespan | None) -> Lifespan | None:
    """The lifespan itself, or TypeError if it can never be entered."""
    if lifespan is None:
        return None
    expected = "lifespan: expected a function without parameters that is decorated with @asynccontextmanager"
    given: Any = lifespan
    if not callable(given):
        hint = "; name the function without calling it" if hasattr(given, "__aenter__") else ""
        raise TypeError(f"{expected}, got {class_name(given)}{hint}")
    name = callable_name(given)
    if inspect.isasyncgenfunction(given):
        raise TypeError(f"{expected}, got {name} without the decorator")
    inner = inspect.unwrap(given)
    if inspect.iscoroutinefunction(given) or inspect.isgeneratorfunction(inner):
        raise TypeError(f"{expected}, got {name}, which is not an async generator")
    try:
        inspect.signature(given).bind()
    except TypeError:
        raise TypeError(f"{expected}, got {name}{inspect.signature(given)}") from None
    except ValueError:
        return lifespan  # its parameters cannot be read
    return lifespan


class GivenMismatch(TypeError):
    """The lifespan did not give what a parameter asks for."""


def getter(given: Any, annotation: Any) -> Getter:
    """The function that reads what a parameter with this annotation receives; GivenMismatch if nothing fits, or more
    than one field does."""
    wanted = _plain(annotation)
    if wanted is Any or wanted is object or _is_instance(given, wanted):
        return lambda given: given
    fields = _fields(given)
    exact = [name for name, (declared, _) in fields.items() if _is_same(declared, wanted)]
    fitting = exact or [name for name, (declared, value) in fields.items() if _fits(declared, value, wanted)]
    if len(fitting) == 1:
        return itemgetter(fitting[0]) if isinstance(given, Mapping) else attrgetter(fitting[0])
    kind, shown = class_name(given), _named(wanted)
    if fitting:
        raise GivenMismatch(
            f"the lifespan gave {_article(kind)}, and its fields {_listed(fitting)} are all of the type {shown}; let "
            f"the parameter depend on a function that takes the whole {kind} and returns one of them"
        )
    if given is None:
        raise GivenMismatch(
            f"expected {_article(shown)}, but the lifespan gave nothing; let it yield what handlers need"
        )
    has = f"whose fields are {_described(fields)}" if fields else "which has no fields"
    raise GivenMismatch(
        f"expected {_article(shown)}, or a field of that type; the lifespan gave {_article(kind)}, {has}"
    )


def _fields(given: Any) -> dict[str, tuple[Any, Any]]:
    """The public fields of an object by name: declared type (Any: not declared) and value. A mapping's items."""
    if isinstance(given, Mapping):
        return {name: (Any, value) for name, value in given.items() if isinstance(name, str)}
    try:
        declared = get_type_hints(type(given))
    except Exception:  # an annotation that cannot be resolved: the values decide
        declared = {}
    names = [*declared, *getattr(given, "_fields", ()), *getattr(given, "__dict__", ())]
    found: dict[str, tuple[Any, Any]] = {}
    for name in dict.fromkeys(names):
        if not name.startswith("_") and hasattr(given, name):
            found[name] = (_plain(declared.get(name, Any)), getattr(given, name))
    return found


def _is_same(declared: Any, wanted: Any) -> bool:
    """Whether two annotations name one type; `Pool` and `Pool[int]` do."""
    if declared is Any:
        return False
    return bool(declared == wanted) or get_origin(declared) is wanted or get_origin(wanted) is declared


def _fits(declared: Any, value: Any, wanted: Any) -> bool:
    if _is_other(declared, wanted) or _is_other(type(value), wanted):
        return False
    if isinstance(declared, type) and isinstance(wanted, type):
        try:
            if issubclass(declared, wanted):
                return True
        except TypeError:  # a protocol that cannot be checked at run time
            return False
    return _is_instance(value, wanted)


def _is_other(kind: Any, wanted: Any) -> bool:
    """Whether a type is another of the same generic: `Repository[User]`, or a class of it, for `Repository[Order]`.
    An instance does not show it."""
    origin = get_origin(wanted)
    if not isinstance(origin, type) or origin is UnionType:
        return False
    known = get_origin(kind) or kind
    classes = lineage(known) if isinstance(known, type) else ()
    bases = [base for each in classes for base in vars(each).get("__orig_bases__", ())]
    return any(
        isinstance(has, type) and isinstance(wants, type) and has is not wants
        for alias in (kind, *bases)
        if get_origin(alias) is origin
        for has, wants in zip(get_args(alias), get_args(wanted), strict=False)
    )


def _is_instance(value: Any, wanted: Any) -> bool:
    if get_origin(wanted) in (Union, UnionType):
        return any(_is_instance(value, each) for each in get_args(wanted))
    kind = get_origin(wanted) or wanted
    try:
        return isinstance(kind, type) and isinstance(value, kind)
    except TypeError:
        return False


def _plain(annotation: Any) -> Any:
    """An annotation without `Annotated`, `| None` and aliases."""
    annotation = unaliased(annotation)
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        parts = [each for each in get_args(annotation) if each is not NoneType]
        return _plain(parts[0]) if len(parts) == 1 else annotation
    return annotation


def _listed(names: Iterable[str]) -> str:
    *others, last = map(repr, names)
    return f"{', '.join(others)} and {last}"


def _described(fields: Mapping[str, tuple[Any, Any]]) -> str:
    shown = [
        f"{name}: {class_name(value) if declared is Any else _named(declared)}"
        for name, (declared, value) in list(fields.items())[:_MAX_FIELDS_SHOWN]
    ]
    return ", ".join([*shown, "…"] if len(fields) > _MAX_FIELDS_SHOWN else shown)


def _named(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and get_origin(kind) is None else type_name(kind)


def _article(name: str) -> str:
    return f"an {name}" if name[:1].lower() in "aeiou" else f"a {name}"
