"""Injected parameters: what a worker gives to a handler beside the arguments of its job.

    db: Session = Depends(session)      what a function returns or yields, made for this job and closed after it
    http: AsyncClient = Given()         what the lifespan of the worker gave: the object, or the field of that type

Both are defaults, so that a call without them type-checks. `Annotated[Session, Depends(session)]` is understood too.
An injected parameter is no part of the payload: a caller cannot give it, and no result of a workflow is bound to it.

One function may be a dependency of endpoints and of tasks. FastAPI's own `Depends` is understood. What a dependency can
get from a web request only (the request itself, a header, a query parameter) is found when the task is declared.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar, get_origin, overload

from taskharbor.model.naming import callable_name, class_name, full_name, lineage
from taskharbor.tasks.annotations import flattened, unaliased

if TYPE_CHECKING:
    from contextlib import _AsyncGeneratorContextManager, _GeneratorContextManager

T = TypeVar("T")

_FRAMEWORKS = frozenset({"fastapi", "starlette", "litestar"})  # known by name: none of them is imported
_OF_A_REQUEST = frozenset(
    {"Request", "Response", "WebSocket", "HTTPConnection", "BackgroundTasks", "SecurityScopes", "UploadFile"}
)


class DependsMarker:
    """The default of a parameter whose value a function makes. Made by `Depends`.

    `is_web`: it is FastAPI's own. Its function may be None then, which stands for the annotated class.
    """

    __slots__ = ("function", "is_cached", "is_security", "is_web")

    def __init__(
        self,
        function: Callable[..., Any] | None,
        *,
        is_cached: bool = True,
        is_web: bool = False,
        is_security: bool = False,
    ) -> None:
        self.function = function
        self.is_cached = is_cached
        self.is_web = is_web
        self.is_security = is_security

    def __repr__(self) -> str:
        return f"Depends({'' if self.function is None else callable_name(self.function)})"

    def __getattr__(self, name: str) -> NoReturn:
        raise _not_injected(self, name)


class GivenMarker:
    """The default of a parameter that receives what the lifespan gave. Made by `Given`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Given()"

    def __getattr__(self, name: str) -> NoReturn:
        raise _not_injected(self, name)


Marker: TypeAlias = DependsMarker | GivenMarker


# A coroutine, an iterator and a context manager are results too, so the overloads overlap; the narrower come first.
@overload
def Depends(dependency: Callable[..., AsyncIterator[T]]) -> T: ...
@overload
def Depends(dependency: Callable[..., Iterator[T]]) -> T: ...
@overload
def Depends(dependency: Callable[..., _AsyncGeneratorContextManager[T]]) -> T: ...
@overload
def Depends(dependency: Callable[..., _GeneratorContextManager[T]]) -> T: ...
@overload
def Depends(dependency: Callable[..., Awaitable[T]]) -> T: ...
@overload
def Depends(dependency: Callable[..., T]) -> T: ...
def Depends(dependency: Any) -> Any:
    """The default of a parameter whose value a function makes for each job: `db: Session = Depends(session)`.

    The function is a plain one, a coroutine function, or a generator that yields the value and closes it when the job
    has ended. Its own parameters may be injected too, or receive the `JobContext`. It is called once a job, however
    many parameters ask for it.
    """
    if not callable(dependency):
        getattr(dependency, "close", lambda: None)()  # a coroutine that nothing awaits would warn
        raise TypeError(
            f"Depends: expected a function, got {class_name(dependency)}; name the function without calling it: "
            "Depends(session)"
        )
    return DependsMarker(dependency)


def Given() -> Any:
    """The default of a parameter that receives what the worker's lifespan gave: `http: AsyncClient = Given()`.

    That is the object that the lifespan yielded if the annotation fits it, otherwise the field of it that has the
    annotated type.
    """
    return GivenMarker()


def marker_of(default: object, annotation: Any) -> Marker | None:
    """The marker of a parameter: its default, or part of its `Annotated[…]`; None if it is not injected."""
    found, kind = _marker(default), unaliased(annotation)
    # `Annotated[Session, Depends(session)] | None = None`: type checkers want a default
    for part, added in flattened(annotation):
        kind = part if added else kind
        for each in added:
            found = found or _marker(each)
    if isinstance(found, DependsMarker) and found.function is None and callable(kind):
        found = DependsMarker(kind, is_cached=found.is_cached, is_web=found.is_web, is_security=found.is_security)
    return found


def _marker(value: object) -> Marker | None:
    if isinstance(value, DependsMarker | GivenMarker):
        return value
    if value is Given or value is Depends:
        raise TypeError(f"expected {'Given()' if value is Given else 'Depends(function)'}, got it without its brackets")
    if _is_depends_of_fastapi(value):
        return DependsMarker(
            getattr(value, "dependency", None),
            is_cached=getattr(value, "use_cache", True),
            is_web=True,
            is_security=any(kind.__name__ == "Security" for kind in lineage(type(value))),
        )
    return None


def _not_injected(marker: Marker, name: str) -> AttributeError:
    return AttributeError(
        f"{marker!r} has no attribute {name!r}: a worker replaces it when it runs a job; where you call the function "
        "yourself, give the parameter a value"
    )


def _is_depends_of_fastapi(value: object) -> bool:
    """Whether a value is what FastAPI's `Depends(…)` or `Security(…)` returns."""
    return hasattr(value, "dependency") and any(kind.__name__ == "Depends" for kind in lineage(type(value)))


def request_parameter(value: object) -> str | None:
    """The name of what reads a value from the request, such as `Query` or `Header`; None for anything else."""
    is_parameter = any(full_name(kind).startswith("fastapi.params.") for kind in lineage(type(value)))
    return type(value).__name__ if is_parameter and not _is_depends_of_fastapi(value) else None


def part_of_a_request(annotation: Any) -> str | None:
    """The name of what an annotation wants of a web request, such as `Request`; None if it wants none of it."""
    for kind, added in flattened(annotation):
        plain = get_origin(kind) or kind  # Litestar's Request is generic
        for each in lineage(plain) if isinstance(plain, type) else ():
            if each.__name__ in _OF_A_REQUEST and full_name(each).partition(".")[0] in _FRAMEWORKS:
                return each.__name__
        asked = next(filter(None, map(request_parameter, added)), None)
        if asked is not None:
            return asked
    return None
