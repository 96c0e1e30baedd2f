"""The shapes of FastAPI, Starlette and Litestar, known by name: none of them is imported.

One function may be a dependency of endpoints and of tasks. FastAPI's own `Depends` is understood. What a dependency can
get from a web request only (the request itself, a header, a query parameter) is found when the task is declared.
"""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from taskharbor.model.naming import full_name, lineage
from taskharbor.tasks.annotations import unaliased

_FRAMEWORKS = frozenset({"fastapi", "starlette", "litestar"})
_OF_A_REQUEST = frozenset(
    {"Request", "Response", "WebSocket", "HTTPConnection", "BackgroundTasks", "SecurityScopes", "UploadFile"}
)


def is_depends(value: object) -> bool:
    """Whether a value is what FastAPI's `Depends(…)` or `Security(…)` returns."""
    return hasattr(value, "dependency") and any(kind.__name__ == "Depends" for kind in lineage(type(value)))


def is_security(value: object) -> bool:
    """Whether it is what `Security(…)` returns."""
    return any(kind.__name__ == "Security" for kind in lineage(type(value)))


def request_parameter(value: object) -> str | None:
    """The name of what reads a value from the request, such as `Query` or `Header`; None for anything else."""
    for kind in lineage(type(value)):
        if full_name(kind).startswith("fastapi.params.") and not is_depends(value):
            return type(value).__name__
    return None


def part_of_a_request(annotation: Any) -> str | None:
    """The name of what an annotation wants of a web request, such as `Request`; None if it wants none of it."""
    annotation = unaliased(annotation)
    if get_origin(annotation) is Annotated:
        first, *others = get_args(annotation)
        names = [part_of_a_request(first), *map(request_parameter, others)]
        return next((name for name in names if name is not None), None)
    if get_origin(annotation) in (Union, UnionType):
        return next((name for name in map(part_of_a_request, get_args(annotation)) if name is not None), None)
    plain = get_origin(annotation) or annotation  # Litestar's Request is generic
    if isinstance(plain, type):
        for kind in lineage(plain):
            if kind.__name__ in _OF_A_REQUEST and full_name(kind).partition(".")[0] in _FRAMEWORKS:
                return kind.__name__
    return None
