"""Compiling: a flow becomes job records whose `depends_on` are its edges. Pure: nothing is stored here.

Every part is placed after a value: the jobs that must be done first, and the tree of the jobs whose results the next
step receives. The value of a step is its job; that of a group is the list of its members' values. Where one job has to
stand for a list (at the end of a flow, or between two large groups) a join is added, which runs nothing.
"""

from __future__ import annotations

from datetime import datetime
from types import GenericAlias
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from taskharbor.model.bounds import MAX_DEPENDENCIES, MAX_SPAWN_JOBS
from taskharbor.model.ids import new_id
from taskharbor.model.job import JobRecord, replace
from taskharbor.model.schedule import origin_of
from taskharbor.model.times import to_ms
from taskharbor.model.trace import trace_of, with_trace
from taskharbor.tasks.failure_step import COPIED_OPTIONS, ON_FAILURE_KEY, FailureStep, read_steps, write_steps
from taskharbor.tasks.flow_metadata import (
    BIND_KEY,
    DEPTH_KEY,
    JOIN_SUFFIX,
    JOIN_TYPE,
    MAX_DEPTH,
    SHAPE_KEY,
    Shape,
    depth_of,
    write_bind,
    write_shape,
)
from taskharbor.tasks.prepare import TaskCall, prepare
from taskharbor.tasks.task import Step

if TYPE_CHECKING:
    from taskharbor.flow.build import Flow

Tree: TypeAlias = str | list[Any]
"""The id of a job, or a list of trees."""

MAX_EDGES_WITHOUT_JOIN = 256  # between two groups; with more of them a join is cheaper
MAX_SHAPE_BYTES = 4096  # of metadata; joins split longer ones


class Value(NamedTuple):
    """What comes before a part: the jobs to wait for, and the tree of those whose results it receives."""

    waits: tuple[str, ...]
    tree: Tree


class Compiled(NamedTuple):
    """The jobs of a flow, each after the jobs that it waits for, and the job that ends the flow."""

    jobs: list[JobRecord]
    flow_id: str
    end: str
    returns: Any


def compile_flow(flow: Flow[Any], now: datetime, queue: str) -> Compiled:
    """Compile a flow. ValueError if it has no job, TypeError if a step lacks an argument and nothing precedes it."""
    compiler = Compiler(now, queue)
    value = compiler.place(flow, None)
    if not compiler.jobs:
        raise ValueError(f"{flow._kind}: expected at least one step, got only empty groups; nothing would run")
    return compiler.finish(value, new_id(to_ms(now)))


def compile_spawn(flow: Flow[Any], parent: JobRecord, now: datetime, queue: str) -> Compiled:
    """Compile a flow that takes a job's place. It belongs to the job's flow, if the job has one."""
    depth = depth_of(parent) + 1
    if depth > MAX_DEPTH:
        raise ValueError(
            f"{parent.type} returned a workflow {depth} deep, expected at most {MAX_DEPTH}; does it return itself "
            "without an end?"
        )
    compiler = Compiler(now, queue, parent)
    compiler.metadata = {DEPTH_KEY: str(depth), **origin_of(parent.metadata)}
    if ON_FAILURE_KEY in parent.metadata:
        compiler.failing = read_steps(parent.metadata[ON_FAILURE_KEY])
    compiled = compiler.finish(compiler.place(flow, None), parent.flow_id or new_id(to_ms(now)))
    if len(compiled.jobs) > MAX_SPAWN_JOBS:
        raise ValueError(
            f"{parent.type} returned a workflow of {len(compiled.jobs)} jobs, expected at most {MAX_SPAWN_JOBS} (joins "
            "and finalizers included); return one whose steps return the rest"
        )
    return compiled


class Compiler:
    """Places parts one after the other. `failing`: the failure steps of the enclosing parts, the innermost first."""

    def __init__(self, now: datetime, queue: str, parent: JobRecord | None = None) -> None:
        self.now = now
        self.queue = queue
        self.parent = parent
        self.jobs: dict[str, JobRecord] = {}
        self.metadata: dict[str, str] = {}
        self.failing: tuple[FailureStep, ...] = ()
        self._returns: dict[str, Any] = {}

    def place(self, part: Step[Any] | Flow[Any], before: Value | None) -> Value:
        """Place a part after a value; returns the value of the part."""
        if isinstance(part, Step):
            return self._step(part, before)
        around = self.failing, self.metadata
        if part._on_failure is not None:
            self.failing = (_failure_step(part._on_failure, self.now, self.queue), *self.failing)
        if self.failing:
            self.metadata = {**self.metadata, ON_FAILURE_KEY: write_steps(self.failing)}
        value = self._group(part, before) if part._is_parallel else self._sequence(part, before)
        self.failing, self.metadata = around
        return value

    def _sequence(self, flow: Flow[Any], before: Value | None) -> Value:
        for part in flow._parts:
            before = self.place(part, before)
        assert before is not None
        return before

    def _group(self, flow: Flow[Any], before: Value | None) -> Value:
        if not flow._parts:
            return Value(before.waits if before is not None else (), [])
        if before is not None:
            before = self._bounded(before)  # here, because each member would add joins of its own
            if len(before.waits) > 1 and len(before.waits) * starts(flow) > MAX_EDGES_WITHOUT_JOIN:
                before = self._joined(before)
        values = [self.place(part, before) for part in flow._parts]
        waits = dict.fromkeys(id for value in values for id in value.waits)
        return Value(tuple(waits), [value.tree for value in values])

    def _step(self, step: Step[Any], before: Value | None) -> Value:
        signature, arguments, metadata = step._task.handler.signature, step._arguments, self.metadata
        lacking = step._lacking()
        if len(lacking) > 1:
            signature.complete(arguments)
        if lacking:
            if before is None:
                raise TypeError(
                    f"{step._task.name}: parameter {lacking[0]!r} has no argument, and nothing comes before this step "
                    f"whose result it could receive; give it with .s({lacking[0]}=…)"
                )
            before = self._bounded(before)
            if _leaves(before.tree):
                metadata = {**metadata, BIND_KEY: write_bind(lacking[0], _shape(before.tree))}
            else:
                arguments, lacking = {**arguments, lacking[0]: before.tree}, ()
        payload = signature.encode(arguments, partial=bool(lacking))
        job = prepare(TaskCall(step._task.name, payload, step._task._options), self.now, self.queue)
        self._returns[job.id] = signature.return_type
        return self._add(job, before, metadata)

    def _joined(self, value: Value) -> Value:
        """A join for a value: it waits for all its jobs, and its result is their list."""
        value = self._bounded(value)
        members = [self.jobs[id] for id in value.waits if id in self.jobs]
        queue = members[0].queue if members else self.queue if self.parent is None else self.parent.queue
        join = JobRecord(
            id=new_id(to_ms(self.now)) + JOIN_SUFFIX,
            type=JOIN_TYPE,
            queue=queue,
            priority=max((member.priority for member in members), default=0),
            created_at=self.now,
        )
        self._returns[join.id] = self._type(value.tree)
        return self._add(join, value, {**self.metadata, SHAPE_KEY: write_shape(_shape(value.tree))})

    def _add(self, job: JobRecord, before: Value | None, metadata: dict[str, str]) -> Value:
        changes: dict[str, Any] = {}
        if before is not None:
            before = self._bounded(before)
            received = dict.fromkeys(_leaves(before.tree))
            changes["depends_on"] = (*received, *(id for id in before.waits if id not in received))
            if len(changes["depends_on"]) > MAX_DEPENDENCIES:
                raise ValueError(
                    f"{job.type} waits for {len(changes['depends_on'])} jobs, expected at most {MAX_DEPENDENCIES}; "
                    "make groups of groups"
                )
        if metadata:
            changes["metadata"] = {**job.metadata, **metadata}
        self.jobs[job.id] = replace(job, **changes) if changes else job
        return Value((job.id,), job.id)

    def _bounded(self, value: Value) -> Value:
        """The same value, with joins for its inner lists if it has too many edges or its shape is too long."""
        tree = value.tree
        if isinstance(tree, str) or not any(isinstance(each, list) for each in tree):
            return value
        if len(value.waits) <= MAX_DEPENDENCIES and len(write_shape(_shape(tree))) <= MAX_SHAPE_BYTES:
            return value
        inner = [
            self._joined(Value(tuple(_leaves(each)), each)).tree if isinstance(each, list) else each for each in tree
        ]
        covered = {id for each in tree if isinstance(each, list) for id in _leaves(each)}
        joins = [each for each in inner if isinstance(each, str)]
        return Value(tuple(dict.fromkeys((*joins, *(id for id in value.waits if id not in covered)))), inner)

    def finish(self, value: Value, flow_id: str) -> Compiled:
        """All jobs of the flow; one of them ends it."""
        if not isinstance(value.tree, str):
            value = self._joined(value)
        assert isinstance(value.tree, str)
        trace = {} if self.parent is None else trace_of(self.parent.metadata)
        jobs = [replace(job, flow_id=flow_id, metadata=with_trace(job.metadata, trace)) for job in self.jobs.values()]
        return Compiled(jobs, flow_id, value.tree, self._returns[value.tree])

    def _type(self, tree: Tree) -> Any:
        """The type of a result: a list of one type, if all its members have that type."""
        if isinstance(tree, str):
            return self._returns[tree]
        kinds = [self._type(each) for each in tree]
        return GenericAlias(list, (kinds[0] if kinds and all(kind == kinds[0] for kind in kinds) else Any,))


def starts(part: Step[Any] | Flow[Any]) -> int:
    """The number of jobs of a part that start at once."""
    if isinstance(part, Step):
        return 1
    return sum(map(starts, part._parts)) if part._is_parallel else starts(part._parts[0])


def _leaves(tree: Tree) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    return [id for each in tree for id in ([each] if isinstance(each, str) else _leaves(each))]


def _shape(tree: Tree) -> Shape:
    if isinstance(tree, str):
        return None
    return len(tree) if all(isinstance(each, str) for each in tree) else [_shape(each) for each in tree]


def _failure_step(step: Step[Any], now: datetime, queue: str) -> FailureStep:
    """The job that a failure releases. Its id is made here, so that it is never stored twice."""
    options, lacking = step._task._options, step._lacking()
    return FailureStep(
        id=new_id(to_ms(now)),
        type=step._task.name,
        queue=queue if options.queue is None else options.queue,
        payload=step._task.handler.signature.encode(step._arguments, partial=bool(lacking)),
        into=lacking[0] if lacking else None,
        **{name: getattr(options, name) for name in ("delay", "run_at", "metadata", *COPIED_OPTIONS)},
    )
