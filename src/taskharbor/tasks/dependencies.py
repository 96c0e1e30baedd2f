"""The graph of what a handler's injected parameters need, compiled once when the task is declared.

    sync(user_id, db = Depends(session), http = Given())
                         └── session(app = Given(), ctx: JobContext)

Each function is one node, whichever parameters ask for it: it is called once a job. Nodes are in the order of need: a
node after all that it needs itself. Those that run on the event loop come first; the rest run in the thread of the
handler. What can never work (a cycle, a parameter without a value, something of a web request) is a TypeError here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from taskharbor.model.naming import callable_name
from taskharbor.model.safe_repr import shows
from taskharbor.tasks.annotations import Unresolved, called, hints_of, is_context, without_partials
from taskharbor.tasks.injected import (
    DependsMarker,
    GivenMarker,
    Marker,
    marker_of,
    part_of_a_request,
    request_parameter,
)

_EMPTY = inspect.Parameter.empty
_UNFILLED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

Replacements: TypeAlias = Mapping[Any, Callable[..., Any]]
"""What replaces which dependency: by `key_of` the function."""


class GivenSource(msgspec.Struct, frozen=True, eq=False):
    """What the lifespan gave, as a parameter wants it. `wanted`: its type; Any for the whole. `where`: for errors."""

    wanted: Any
    where: str


class ContextSource(msgspec.Struct, frozen=True):
    """The context of the job."""


@shows("name")
class DependencyNode(msgspec.Struct, frozen=True, eq=False):
    """One function that is called for a job. `closes`: it yields its value, and is resumed when the job has ended."""

    function: Callable[..., Any]
    name: str
    is_async: bool
    closes: bool
    parameters: tuple[tuple[str, Source], ...]


Source: TypeAlias = DependencyNode | GivenSource | ContextSource


@shows("on_loop", "in_thread")
class Injection(msgspec.Struct, frozen=True, eq=False):
    """What the injected parameters of one handler receive, and which nodes run where."""

    parameters: tuple[tuple[str, Source], ...]
    on_loop: tuple[DependencyNode, ...]
    in_thread: tuple[DependencyNode, ...]
    given: tuple[GivenSource, ...]

    @property
    def nodes(self) -> tuple[DependencyNode, ...]:
        """All functions that it calls."""
        return self.on_loop + self.in_thread


class InjectedParameters(msgspec.Struct, frozen=True):
    """The injected parameters of a handler: name, marker and annotation of each. `is_complete`: an annotation that
    cannot be resolved yet may hold another one."""

    parameters: tuple[tuple[str, Marker, Any], ...]
    is_complete: bool


def declared_parameters(function: Callable[..., Any], name: str) -> InjectedParameters:
    """The injected parameters of a function, as far as they can be seen now."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return InjectedParameters((), True)  # its layout says why
    found, complete, hints = [], True, hints_of(function, signature)
    for parameter in signature.parameters.values():
        hint = hints.get(parameter.name, _EMPTY)
        marker = _marker_of(parameter, hint, name)
        if marker is not None and not is_context(hint):
            found.append((parameter.name, marker, hint))
        complete = complete and (marker is not None or not isinstance(hint, Unresolved))
    return InjectedParameters(tuple(found), complete)


def compile_injection(
    task: str, parameters: InjectedParameters, *, is_coroutine: bool, replacements: Replacements | None = None
) -> Injection | None:
    """The injection of a handler; None if it has no injected parameters, TypeError if they cannot be given."""
    if not parameters.parameters:
        return None
    graph = _Graph(task, replacements or {})
    sources = tuple(
        (name, graph.source(marker, hint, f"parameter {name!r} of {task}"))
        for name, marker, hint in parameters.parameters
    )
    nodes = tuple(graph.nodes)
    on_loop = nodes if is_coroutine else tuple(each for each in nodes if each in _needed_on_loop(nodes))
    in_thread = tuple(each for each in nodes if each not in on_loop)
    return Injection(sources, on_loop, in_thread, tuple(graph.given))


def key_of(function: Callable[..., Any]) -> Any:
    """What tells functions apart: two reads of a bound method are one function; an object without hash is itself."""
    try:
        hash(function)
    except TypeError:
        return id(function)
    return function


class _Graph:
    """Compiles nodes, each after what it needs. `nodes` keeps them alive, so that an `id` stands for one function."""

    def __init__(self, task: str, replacements: Replacements) -> None:
        self.nodes: list[DependencyNode] = []
        self.given: list[GivenSource] = []
        self._task = task
        self._replacements = replacements
        self._made: dict[Any, DependencyNode] = {}
        self._under_way: list[Callable[..., Any]] = []

    def source(self, marker: Marker, hint: Any, where: str) -> Source:
        if isinstance(marker, GivenMarker):
            if isinstance(hint, Unresolved):
                raise TypeError(
                    f"{where}: Given() is chosen by type, and its annotation cannot be resolved; define or import it "
                    "in the module of the function (not under `if TYPE_CHECKING`)"
                )
            given = GivenSource(Any if hint is _EMPTY else hint, where)
            self.given.append(given)
            return given
        if marker.is_security:
            raise self._refused(where, "Security(…)")
        if marker.function is None:
            raise TypeError(f"{where}: expected Depends(function), got Depends() without a class to make one of")
        return self._node(marker)

    def _node(self, marker: DependsMarker) -> DependencyNode:
        assert marker.function is not None
        function = self._replacements.get(key_of(marker.function), marker.function)
        key = key_of(function)
        if marker.is_cached and (made := self._made.get(key)) is not None:
            return made
        if any(key_of(each) == key for each in self._under_way):
            names = [callable_name(each) for each in (*self._under_way, function)]
            raise TypeError(f"{self._task}: its dependencies need each other: {' → '.join(names)}")
        self._under_way.append(function)
        parameters = tuple(self._parameters(function, marker.is_web))
        self._under_way.pop()
        is_async, closes = _colour(function)
        node = DependencyNode(function, callable_name(function), is_async, closes, parameters)
        if marker.is_cached:
            self._made[key] = node
        self.nodes.append(node)
        return node

    def _parameters(self, function: Callable[..., Any], is_web: bool) -> Iterator[tuple[str, Source]]:
        name = callable_name(function)
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return  # a builtin: called without arguments
        hints = hints_of(function, signature)
        for parameter in signature.parameters.values():
            if parameter.kind in _UNFILLED:
                continue
            hint = hints.get(parameter.name, _EMPTY)
            where = f"{self._task}: parameter {parameter.name!r} of the dependency {name}"
            source = self._source_of(parameter, hint, where, is_web)
            if source is None:
                continue
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise TypeError(f"{where}: expected one that can be given by name, got a positional-only one")
            yield parameter.name, source

    def _source_of(self, parameter: inspect.Parameter, hint: Any, where: str, is_web: bool) -> Source | None:
        """What a parameter of a dependency receives; None if its own default stays."""
        asked = part_of_a_request(hint) or request_parameter(parameter.default)
        if asked is not None:
            raise self._refused(where, asked)
        if is_context(hint):
            return ContextSource()
        marker = _marker_of(parameter, hint, where)
        if marker is not None:
            return self.source(marker, hint, where)
        if parameter.default is _EMPTY:
            raise TypeError(
                f"{where} has no value: in a web application it may be a query parameter, but a worker has no request; "
                "give it Depends(…), Given() or a default, or annotate it with JobContext"
            )
        if is_web:
            raise self._refused(where, "a query parameter")
        return None

    def _refused(self, where: str, what: str) -> TypeError:
        return TypeError(
            f"{where} asks for {what}, which only a web request has; a worker runs {self._task} without one. Let the "
            "task depend on a function that does not need it"
        )


def _marker_of(parameter: inspect.Parameter, hint: Any, where: str) -> Marker | None:
    try:
        return marker_of(parameter.default, hint)
    except TypeError as error:
        raise TypeError(f"{where}: parameter {parameter.name!r}: {error}") from None


def _needed_on_loop(nodes: tuple[DependencyNode, ...]) -> set[DependencyNode]:
    """The coroutines among the nodes, and what they need: a value is made where it is used first."""
    found: set[DependencyNode] = set()
    for node in reversed(nodes):  # what needs a node comes after it
        if node.is_async or node in found:
            found.add(node)
            found.update(source for _, source in node.parameters if isinstance(source, DependencyNode))
    return found


def _colour(function: Callable[..., Any]) -> tuple[bool, bool]:
    """Whether a call is awaited, and whether its value is closed afterwards; also of a decorated function."""
    for each in (without_partials(function), called(function), inspect.unwrap(called(function))):
        if inspect.isasyncgenfunction(each):
            return True, True
        if inspect.isgeneratorfunction(each):
            return False, True
        if inspect.iscoroutinefunction(each):
            return True, False
    return False, False
