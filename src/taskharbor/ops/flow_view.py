"""A flow as an operator reads it: a tree of steps, a drawing of boxes in columns, and what to do about it. Pure.

Jobs alike share a row or a box. More than MAX_BOXES boxes are folded once more, by column and type, and then by runs of
columns in one state; so a flow of ten thousand jobs has a small picture, whether it is broad or long. What is built for
a page grows with the jobs of the flow: call it in a thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from taskharbor.flow.graph import FlowGraph, FlowStep, step_name
from taskharbor.model.job import FlowInfo, JobInfo, State
from taskharbor.store.flows import was_cancelled_with_another
from taskharbor.store.text import command

MAX_BOXES = 60
MAX_NAMED = 3  # in a command that is suggested

# What a box shows if its jobs differ: the state that needs an operator, or that is under way, first.
_SHOWN_FIRST = (
    State.DLQ, State.CANCELLED, State.INFLIGHT, State.READY, State.SCHEDULED, State.BLOCKED, State.DONE,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FlowRow(FlowStep):
    """A row of the tree. `depth` 0 is a job that waits for none."""

    depth: int
    after: tuple[str, ...] = ()  # the types of all steps it waits for, if there are several

    @property
    def failed(self) -> tuple[JobInfo, ...]:
        """Its dead and cancelled jobs, the dead ones first."""
        failed = (info for info in self.jobs if info.state in (State.DLQ, State.CANCELLED))
        return tuple(sorted(failed, key=lambda info: info.state is not State.DLQ))


@dataclass(frozen=True, kw_only=True)
class GraphBox(FlowStep):
    """A box of the drawing. `column` and `row` are its place; `last`: the last of the steps in a row that it stands
    for, the first being its name; `prefix`: what the names of all boxes begin with."""

    key: int
    column: int
    row: float
    last: str | None = None
    prefix: str = ""

    @property
    def types(self) -> int:
        """How many types of jobs it stands for."""
        return len({info.job.type for info in self.jobs})

    @property
    def title(self) -> str:
        """What it stands for, without what all names begin with."""
        name = self.name.removeprefix(self.prefix)
        if self.last is not None:
            last = self.last.removeprefix(self.prefix)
            return f"{name} … {last}: {len(self.jobs):,} steps"
        if self.types > 1:
            return f"{len(self.jobs):,} jobs, {self.types:,} types"
        return f"{len(self.jobs):,} × {name}" if len(self.jobs) > 1 else name

    @property
    def state(self) -> State:
        """The state to colour it by."""
        return _shown_first(self.states)


@dataclass(frozen=True)
class GraphDrawing:
    """The whole picture. `lines`: from box to box, by their keys; `columns` and `rows`: its size, in boxes."""

    boxes: tuple[GraphBox, ...]
    lines: tuple[tuple[int, int], ...]
    columns: int
    rows: int


@dataclass(frozen=True)
class FlowView:
    """A flow as a page shows it. `more`: rows of the tree that are left out."""

    rows: list[FlowRow]
    more: int
    graph: GraphDrawing


def view_of(info: FlowInfo, most_rows: int) -> FlowView:
    """The tree and the drawing of a flow."""
    graph = FlowGraph(info)
    units = graph.units()
    rows = _tree(graph, units, most_rows)
    return FlowView(rows, len(units) - len(rows), _drawing(graph, units))


def rows_of(info: FlowInfo) -> list[FlowRow]:
    """The tree, from the top: each row stands under the last of those that it waits for."""
    graph = FlowGraph(info)
    units = graph.units()
    return _tree(graph, units, len(units))


def _tree(graph: FlowGraph, units: Sequence[tuple[str, ...]], most: int) -> list[FlowRow]:
    unit_of = {id: number for number, unit in enumerate(units) for id in unit}
    below: dict[int, list[int]] = {}
    after: dict[int, tuple[str, ...]] = {}
    for number, unit in enumerate(units):
        before = {unit_of[id]: None for id in graph.before[unit[0]]} if unit else {}
        before.pop(number, None)
        parent = max(before, key=lambda each: (graph.level[units[each][0]], each), default=-1)
        below.setdefault(parent, []).append(number)
        if len(before) > 1:
            after[number] = tuple(dict.fromkeys(graph.nodes[units[each][0]].job.type for each in before))
    found: list[FlowRow] = []
    waiting = [(0, number) for number in reversed(below.get(-1, []))]
    while waiting and len(found) < most:
        depth, number = waiting.pop()
        jobs = tuple(graph.nodes[id] for id in units[number])
        found.append(FlowRow(jobs=jobs, depth=depth, after=after.get(number, ())))
        waiting += [(depth + 1, child) for child in reversed(below.get(number, []))]
    return found


def _drawing(graph: FlowGraph, units: Sequence[tuple[str, ...]]) -> GraphDrawing:
    column = graph.level
    if len(units) > MAX_BOXES:
        units = _folded(graph)
    if len(units) > MAX_BOXES:
        column = _runs(graph)
        units = _by(graph.order, lambda id: column[id])
    unit_of = {id: number for number, unit in enumerate(units) for id in unit}
    lines = sorted(
        {
            (unit_of[dependency], unit_of[id])
            for id, before in graph.before.items()
            for dependency in before
            if unit_of[dependency] != unit_of[id]
        }
    )
    columns = {number: max(column[id] for id in unit) for number, unit in enumerate(units)}
    tallest = max(Counter(columns.values()).values(), default=0)
    rows = _rows(columns, lines, tallest)
    prefix = _common_prefix({step_name(graph.nodes[id]) for unit in units for id in unit})
    boxes = tuple(
        GraphBox(
            jobs=tuple(graph.nodes[id] for id in unit),
            key=number,
            column=columns[number],
            row=rows[number],
            last=step_name(graph.nodes[unit[-1]]) if graph.level[unit[0]] < graph.level[unit[-1]] else None,
            prefix=prefix,
        )
        for number, unit in enumerate(units)
    )
    return GraphDrawing(boxes, tuple(lines), max(columns.values(), default=-1) + 1, tallest)


def _folded(graph: FlowGraph) -> list[tuple[str, ...]]:
    """The jobs by column and type; beyond MAX_BOXES of these, by column alone."""
    alike = _by(graph.order, lambda id: (graph.level[id], graph.nodes[id].job.type))
    return alike if len(alike) <= MAX_BOXES else _by(graph.order, lambda id: graph.level[id])


def _runs(graph: FlowGraph) -> dict[str, int]:
    """A column for each job: neighbours in the same state share one, and so do more, until they fit."""
    states: dict[int, set[State]] = {}
    for id in graph.order:
        states.setdefault(graph.level[id], set()).add(graph.nodes[id].state)
    runs = [list(run) for _, run in groupby(sorted(states), key=lambda level: _shown_first(states[level]))]
    share = -(-len(runs) // MAX_BOXES)
    column_of = {level: number // share for number, run in enumerate(runs) for level in run}
    return {id: column_of[graph.level[id]] for id in graph.order}


def _by(ids: Iterable[str], key: Callable[[str], Hashable]) -> list[tuple[str, ...]]:
    """The ids with the same key together, in the order given."""
    alike: dict[Hashable, list[str]] = {}
    for id in ids:
        alike.setdefault(key(id), []).append(id)
    return [tuple(each) for each in alike.values()]


def _common_prefix(names: set[str]) -> str:
    """What all names begin with, up to a dot or a colon.

    >>> _common_prefix({"pipeline.load.a", "pipeline.load.b"}), _common_prefix({"send"})
    ('pipeline.load.', '')
    """
    if len(names) < 2:
        return ""
    first, last = min(names), max(names)
    same = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[: max(first.rfind(mark, 0, same) for mark in ".:") + 1]


def _shown_first(states: Container[State]) -> State:
    return next(state for state in _SHOWN_FIRST if state in states)


def _rows(column: dict[int, int], lines: list[tuple[int, int]], tallest: int) -> dict[int, float]:
    """A row for each box: near the boxes that it is connected to on the left, and none above another."""
    before: dict[int, list[int]] = {}
    for start, end in lines:
        before.setdefault(end, []).append(start)
    found: dict[int, float] = {}
    by_column: dict[int, list[int]] = {}
    for number, at in column.items():
        by_column.setdefault(at, []).append(number)
    for _, here in sorted(by_column.items()):
        wanted = {
            number: sum(found[other] for other in before.get(number, [])) / len(before[number])
            if before.get(number)
            else 0.0
            for number in here
        }
        here.sort(key=lambda number: (wanted[number], number))
        top = (tallest - len(here)) / 2
        found |= {number: top + place for place, number in enumerate(here)}
    return found


def next_commands(info: FlowInfo) -> list[str]:
    """What an operator would type next: nothing for a flow that goes on or has succeeded."""
    dead = [node.job.id for node in info.nodes if node.state is State.DLQ]
    if dead:
        return [command("inspect", dead[0]), command("flow requeue", info.id)]
    cancelled = [
        node.job.id for node in info.nodes if node.state is State.CANCELLED and not was_cancelled_with_another(node)
    ]
    if cancelled and len(cancelled) <= MAX_NAMED:
        return [command("job retry", *cancelled)]
    if cancelled or any(node.state is State.INFLIGHT for node in info.nodes):
        return []
    waiting = [node.job.id for node in info.nodes if node.state in (State.READY, State.SCHEDULED)]
    return [command("explain", waiting[0])] if waiting else []
