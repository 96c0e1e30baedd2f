"""Composing: steps become chains, groups and chords, which nest freely. Nothing is stored before `.enqueue()`.

A part is checked when it is put in: that it is a step, that it lacks at most one parameter, that all steps are of one
harbor. Whether something comes before a step is known only when the whole flow is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast, overload

from taskharbor.flow.compile import Compiled, compile_flow, compile_spawn
from taskharbor.flow.handle import FlowHandle
from taskharbor.model.job import JobInfo, JobRecord, State, replace
from taskharbor.model.lease import Enqueued
from taskharbor.store.access import StoreCall
from taskharbor.store.flows import failed_externals
from taskharbor.store.session import Store
from taskharbor.tasks.failure_step import ON_FAILURE_KEY, failure_steps
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

    __slots__ = ("_connection", "_depth", "_kind", "_on_failure", "_parts", "_store")

    def __init__(
        self, kind: str, parts: tuple[Any_, ...], on_failure: Step[Any] | None = None, connection: Any = None
    ) -> None:
        self._kind = kind  # "chain", "group" or "chord"
        self._parts = parts
        self._on_failure = on_failure
        self._connection = connection
        inside = [part for part in parts if isinstance(part, Flow)]
        self._depth: int = 1 + max((part._depth for part in inside), default=0)
        if self._depth > MAX_DEPTH:
            raise ValueError(f"{kind}: expected parts nested at most {MAX_DEPTH} deep, got {self._depth}; flatten them")
        self._store = _one_store(kind, (*parts, on_failure) if on_failure is not None else parts)

    def __repr__(self) -> str:
        shown = [repr(part) for part in self._parts[:5]]
        more = len(self._parts) - len(shown)
        return f"{self._kind}({', '.join(shown)}{f', … {more} more' if more else ''})"

    if not TYPE_CHECKING:  # with it, a type checker would accept any attribute

        def __getattr__(self, name: str) -> Any:
            raise missing(f"a {self._kind}" if name in OF_FLOWS else "a workflow", name, OF_FLOWS, "flow")

    @property
    def _is_parallel(self) -> bool:
        """Whether the parts run side by side; else one after the other."""
        return self._kind == "group"

    def options(self, *, connection: Any) -> Flow[R_co]:
        """The same flow, enqueued inside the caller's own transaction on that `connection`."""
        return Flow(self._kind, self._parts, self._on_failure, connection)

    def enqueue(self) -> FlowHandle[R_co]:
        """Store all jobs of the flow in one call, all or none; blocks until they are stored."""
        store, connection = self._owner(), self._one_connection()
        prepared = _Prepared(self, store.default_queue)
        results = store.enqueue(prepared.records, connection, METHOD)
        known = prepared.known(results)
        if _carry_steps(known):
            records = store.blocking(lambda call: _released_at_once(call, known), "enqueue", METHOD)
            if records:
                store.enqueue(lambda now: records, connection, METHOD)
        return prepared.handle(store, results)

    async def aenqueue(self) -> FlowHandle[R_co]:
        """The same, awaited."""
        store, connection = self._owner(), self._one_connection()
        prepared = _Prepared(self, store.default_queue)
        results = await store.aenqueue(prepared.records, connection)
        known = prepared.known(results)
        if _carry_steps(known):
            records = await _released_at_once(store.call("enqueue"), known)
            if records:
                await store.aenqueue(lambda now: records, connection)
        return prepared.handle(store, results)

    def _compile(self, parent: JobRecord, now: datetime) -> Spawned:
        """The flow as the jobs that take the place of a running one. The worker calls this."""
        queue = parent.queue if self._store is None else self._store.default_queue
        compiled = compile_spawn(self, parent, now, queue)
        return Spawned(tuple(compiled.jobs), compiled.end)

    def _owner(self) -> Store:
        if self._store is None:
            raise ValueError(
                f"{self._kind}: expected at least one step, got none; only a chord may have an empty group"
            )
        return self._store

    def _one_connection(self) -> Any:
        """The flow's own connection, or the one that steps of it name."""
        found = self._connection
        for part in self._parts:
            inner = part._one_connection() if isinstance(part, Flow) else part._task._options.connection
            if inner is not None and found is not None and inner is not found:
                raise ValueError(
                    f"{self._kind}: expected one connection= for the whole flow, got different ones; "
                    "say .options(connection=…) once, on the outermost part"
                )
            found = inner if found is None else found
        return found


def _carry_steps(known: Mapping[str, JobRecord]) -> bool:
    return any(ON_FAILURE_KEY in step.metadata for step in known.values())


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

    def handle(self, store: Store, results: list[Enqueued]) -> FlowHandle[Any]:
        compiled = self.compiled
        end = results[[job.id for job in compiled.jobs].index(compiled.end)]
        return FlowHandle(store, compiled.flow_id, end.id, end.existed, compiled.returns, tuple(self.known(results)))


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
    members: Flow[Any] | Iterable[Any_], finalizer: Step[R] | Flow[R], /, *, on_failure: Step[Any] | None = None
) -> Flow[R]:
    """A group, and one step after all of it, which receives the list of its results.

    The group is one made by `group`, or a list of steps. `on_failure` is as for `chain`.
    """
    header = members if isinstance(members, Flow) else group(members)
    if not header._is_parallel:
        raise TypeError(
            f"chord: expected a group and a step, got a {header._kind}; write chain({header._kind}(…), step)"
        )
    return Flow("chord", (header, _part(finalizer, "chord")), _failure_step(on_failure, "chord"))


def _part(part: Any, kind: str) -> Any_:
    if isinstance(part, Flow):
        return part
    if not isinstance(part, Step):
        hint = f"write {part.name.rpartition('.')[2]}.s(…)" if isinstance(part, Task) else "make them with task.s(…)"
        raise TypeError(f"{kind}: expected steps or other flows, got {type(part).__name__}; {hint}")
    lacking = part._lacking()
    if len(lacking) > 1:
        raise TypeError(
            f"{kind}: {part._task.name}: expected at most one parameter without an argument, which receives the result "
            f"of what comes before; got {', '.join(map(repr, lacking))}; give all but one with .s(…)"
        )
    return part


async def _released_at_once(call: StoreCall, known: Mapping[str, JobRecord]) -> list[JobRecord]:
    """The failure steps of a flow that failed before it began. A job that dies releases them; one that was dead before,
    and that a step resolved to by its key, cannot."""
    records: dict[str, JobRecord] = {}
    for id, step in known.items():
        if ON_FAILURE_KEY not in step.metadata:
            continue
        for info in await _failed(call, id):
            if info.state is State.DLQ:
                dead = replace(step, id=info.job.id, type=info.job.type)
                steps = failure_steps(dead, info.job.reason, call.store.codec, call.now())
                records.update((record.id, record) for record in steps)
    return list(records.values())


async def _failed(call: StoreCall, id: str) -> list[JobInfo]:
    return await call.ask(lambda driver: failed_externals(driver, [id], call.now()))


def _failure_step(step: Any, kind: str) -> Step[Any] | None:
    if step is None:
        return None
    if not isinstance(step, Step):
        raise TypeError(f"{kind}: on_failure: expected a step such as alert.s(…), got {type(step).__name__}")
    return cast("Step[Any]", _part(step, f"{kind}: on_failure"))


def _one_store(kind: str, parts: Iterable[Any_]) -> Store | None:
    found: Store | None = None
    for part in parts:
        store = part._store if isinstance(part, Flow) else cast(Store, part._task._client._store)
        if store is not None and found is not None and not store.is_same(found):
            name = part._task.name if isinstance(part, Step) else part._kind
            raise ValueError(
                f"{kind}: expected steps of one harbor, got {name!r} of another; a flow is stored in one call to one "
                "store: declare its tasks on the same harbor"
            )
        found = found or store
    return found
