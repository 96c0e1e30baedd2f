"""Composing: steps become chains, groups and chords, which nest freely. Nothing is stored before `.enqueue()`.

A part is checked when it is put in: that it is a step, that it lacks at most one parameter, that all steps are of one
harbor. Whether something comes before a step is known only when the whole flow is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast, overload

from taskharbor.client.access import StoreAccess
from taskharbor.client.client import Client
from taskharbor.flow.compile import Compiled, compile_flow, compile_spawn
from taskharbor.flow.handle import FlowHandle
from taskharbor.flow.on_failure import carries_steps, released_at_once
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued
from taskharbor.tasks.flow_metadata import MAX_DEPTH
from taskharbor.tasks.migration_hints import OF_FLOWS, missing
from taskharbor.tasks.task import Step, Task
from taskharbor.tasks.workflow import Spawned, Workflow

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Any_: TypeAlias = "Step[Any] | Flow[Any]"
"""What a flow is made of."""

METHOD = "flow.enqueue"  # how errors name the blocking method


class Flow(Workflow, Generic[R_co]):
    """Steps in a sequence, or side by side. Made by `chain`, `group` and `chord`; immutable, and may be enqueued again.

    If a handler returns one, it takes the place of the handler's job.
    """

    __slots__ = ("client", "connection", "depth", "kind", "on_failure", "parts")

    def __init__(
        self, kind: str, parts: tuple[Any_, ...], on_failure: Step[Any] | None = None, connection: Any = None
    ) -> None:
        self.kind = kind  # "chain", "group" or "chord"
        self.parts = parts
        self.on_failure = on_failure
        self.connection = connection
        inside = [part for part in parts if isinstance(part, Flow)]
        self.depth: int = 1 + max((part.depth for part in inside), default=0)
        if self.depth > MAX_DEPTH:
            raise ValueError(f"{kind}: expected parts nested at most {MAX_DEPTH} deep, got {self.depth}; flatten them")
        self.client = _one_client(kind, (*parts, on_failure) if on_failure is not None else parts)

    def __repr__(self) -> str:
        shown = [repr(part) for part in self.parts[:5]]
        more = len(self.parts) - len(shown)
        return f"{self.kind}({', '.join(shown)}{f', … {more} more' if more else ''})"

    if not TYPE_CHECKING:  # with it, a type checker would accept any attribute

        def __getattr__(self, name: str) -> Any:
            raise missing(f"a {self.kind}" if name in OF_FLOWS else "a workflow", name, OF_FLOWS, "flow")

    @property
    def is_parallel(self) -> bool:
        """Whether the parts run side by side; else one after the other."""
        return self.kind == "group"

    def options(self, *, connection: Any) -> Flow[R_co]:
        """The same flow, enqueued inside the caller's own transaction on that `connection`."""
        return Flow(self.kind, self.parts, self.on_failure, connection)

    def enqueue(self) -> FlowHandle[R_co]:
        """Store all jobs of the flow in one call, all or none; blocks until they are stored."""
        client, connection = self._client(), self._connection()
        prepared = _Prepared(self, client.default_queue)
        results = client.store(prepared.records, connection, METHOD)
        known = prepared.known(results)
        if carries_steps(known):
            records = client.blocking(lambda access: self._failure_steps(access, known), METHOD)
            if records:
                client.store(lambda now: records, connection, METHOD)
        return prepared.handle(client, results)

    async def aenqueue(self) -> FlowHandle[R_co]:
        """The same, awaited."""
        client, connection = self._client(), self._connection()
        prepared = _Prepared(self, client.default_queue)
        results = await client.astore(prepared.records, connection)
        known = prepared.known(results)
        if carries_steps(known):
            records = await self._failure_steps(client.awaited, known)
            if records:
                await client.astore(lambda now: records, connection)
        return prepared.handle(client, results)

    async def _failure_steps(self, access: StoreAccess, known: Mapping[str, JobRecord]) -> list[JobRecord]:
        client = self._client()
        return await released_at_once(client, known, client.budget(access, "enqueue"))

    def compile(self, parent: JobRecord, now: datetime) -> Spawned:
        """The flow as the jobs that take the place of a running one. The worker calls this."""
        queue = parent.queue if self.client is None else self.client.default_queue
        compiled = compile_spawn(self, parent, now, queue)
        return Spawned(tuple(compiled.jobs), compiled.end)

    def _client(self) -> Client:
        if self.client is None:
            raise ValueError(f"{self.kind}: expected at least one step, got none; only a chord may have an empty group")
        return self.client

    def _connection(self) -> Any:
        """The flow's own connection, or the one that steps of it name."""
        found = self.connection
        for part in self.parts:
            inner = part._connection() if isinstance(part, Flow) else part.task._options.connection
            if inner is not None and found is not None and inner is not found:
                raise ValueError(
                    f"{self.kind}: expected one connection= for the whole flow, got different ones; "
                    "say .options(connection=…) once, on the outermost part"
                )
            found = inner if found is None else found
        return found


class _Prepared:
    """A flow as it is being enqueued: compiled once, when the store's time is known."""

    def __init__(self, flow: Flow[Any], default_queue: str) -> None:
        self._flow = flow
        self._default_queue = default_queue
        self._compiled: Compiled | None = None

    @property
    def compiled(self) -> Compiled:
        assert self._compiled is not None, "records() was called before"
        return self._compiled

    def records(self, now: datetime) -> list[JobRecord]:
        self._compiled = compile_flow(self._flow, now, self._default_queue)
        return self._compiled.jobs

    def known(self, results: list[Enqueued]) -> dict[str, JobRecord]:
        """The steps that were found to be stored jobs, by the ids of those. If all were, there is no new flow."""
        if all(result.existed for result in results):
            return {}
        pairs = zip(self.compiled.jobs, results, strict=True)
        return {result.id: job for job, result in pairs if result.existed and result.id != job.id}

    def handle(self, client: Client, results: list[Enqueued]) -> FlowHandle[Any]:
        compiled = self.compiled
        end = results[[job.id for job in compiled.jobs].index(compiled.end)]
        return FlowHandle(client, compiled.flow_id, end.id, end.existed, compiled.returns, tuple(self.known(results)))


@overload
def chain(last: Step[R] | Flow[R], /, *, on_failure: Step[Any] | None = None) -> Flow[R]: ...
@overload
def chain(a: Any_, last: Step[R] | Flow[R], /, *, on_failure: Step[Any] | None = None) -> Flow[R]: ...
@overload
def chain(a: Any_, b: Any_, last: Step[R] | Flow[R], /, *, on_failure: Step[Any] | None = None) -> Flow[R]: ...
@overload
def chain(a: Any_, b: Any_, c: Any_, last: Step[R] | Flow[R], /, *, on_failure: Step[Any] | None = None) -> Flow[R]: ...
@overload
def chain(
    a: Any_, b: Any_, c: Any_, d: Any_, last: Step[R] | Flow[R], /, *, on_failure: Step[Any] | None = None
) -> Flow[R]: ...
@overload
def chain(*parts: Any_, on_failure: Step[Any] | None = None) -> Flow[Any]: ...
def chain(*parts: Any_, on_failure: Step[Any] | None = None) -> Flow[Any]:
    """One after the other: each step may receive the result of the one before it. The last one's is the flow's.

    A step receives it in the one parameter that `.s(…)` left open. `on_failure`: a step that is released once if a job
    of the flow dies; its open parameter receives a `FlowFailure`.

    >>> from taskharbor import Harbor
    >>> with Harbor("memory://") as harbor:
    ...     @harbor.task(name="load")
    ...     def load(day: str) -> list[int]:
    ...         return [20, 22]
    ...     @harbor.task(name="total")
    ...     def total(numbers: list[int]) -> int:
    ...         return sum(numbers)
    ...     flow = chain(load.s("2030-01-01"), total.s()).enqueue()
    ...     harbor.worker().run(until_empty=True)
    ...     print(flow.status(), flow.result())
    succeeded 42
    """
    if not parts:
        raise ValueError("chain: expected at least one step, got none")
    return Flow("chain", tuple(_part(part, "chain") for part in parts), _failure_step(on_failure, "chain"))


@overload
def group(
    parts: Iterable[Step[R]] | Iterable[Flow[R]] | Iterable[Step[R] | Flow[R]],
    /,
    *,
    on_failure: Step[Any] | None = None,
) -> Flow[list[R]]: ...
@overload
def group(*parts: Step[R] | Flow[R], on_failure: Step[Any] | None = None) -> Flow[list[R]]: ...
def group(*parts: Any, on_failure: Step[Any] | None = None) -> Flow[list[Any]]:
    """Side by side: each receives what came before the group. The results are a list in the order of the group.

    Give the parts one by one, or as one list. `on_failure` is as for `chain`.
    """
    if len(parts) == 1 and not isinstance(parts[0], Step | Flow | Task | str) and isinstance(parts[0], Iterable):
        parts = tuple(parts[0])
    return Flow("group", tuple(_part(part, "group") for part in parts), _failure_step(on_failure, "group"))


def chord(
    members: Flow[Any] | Iterable[Any_],
    finalizer: Step[R] | Flow[R],
    /,
    *,
    on_failure: Step[Any] | None = None,
) -> Flow[R]:
    """A group, and one step after all of it, which receives the list of its results.

    The group is one made by `group`, or a list of steps. `on_failure` is as for `chain`.
    """
    header = members if isinstance(members, Flow) else group(members)
    if not header.is_parallel:
        raise TypeError(f"chord: expected a group and a step, got a {header.kind}; write chain({header.kind}(…), step)")
    return Flow("chord", (header, _part(finalizer, "chord")), _failure_step(on_failure, "chord"))


def _part(part: Any, kind: str) -> Any_:
    if isinstance(part, Flow):
        return part
    if not isinstance(part, Step):
        hint = f"write {part.name.rpartition('.')[2]}.s(…)" if isinstance(part, Task) else "make them with task.s(…)"
        raise TypeError(f"{kind}: expected steps or other flows, got {type(part).__name__}; {hint}")
    lacking = part.lacking()
    if len(lacking) > 1:
        raise TypeError(
            f"{kind}: {part.task.name}: expected at most one parameter without an argument, which receives the result "
            f"of what comes before; got {', '.join(map(repr, lacking))}; give all but one with .s(…)"
        )
    return part


def _failure_step(step: Any, kind: str) -> Step[Any] | None:
    if step is None:
        return None
    if not isinstance(step, Step):
        raise TypeError(f"{kind}: on_failure: expected a step such as alert.s(…), got {type(step).__name__}")
    return cast("Step[Any]", _part(step, f"{kind}: on_failure"))


def _one_client(kind: str, parts: Iterable[Any_]) -> Client | None:
    found: Client | None = None
    for part in parts:
        client = part.client if isinstance(part, Flow) else cast(Client, part.task._client)
        if client is not None and found is not None and client is not found:
            name = part.task.name if isinstance(part, Step) else part.kind
            raise ValueError(
                f"{kind}: expected steps of one harbor, got {name!r} of another; a flow is stored in one call to one "
                "store: declare its tasks on the same harbor"
            )
        found = found or client
    return found
