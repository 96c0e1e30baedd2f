"""A flow as an operator reads it: a tree of steps, a drawing of boxes in columns, and what to do about it. Pure.

Jobs alike share a row or a box. More than MAX_BOXES boxes are folded once more, by column and type; so a flow of ten
thousand jobs has a small picture.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from taskharbor.flow.graph import FlowGraph, FlowStep
from taskharbor.model.job import FlowInfo, JobInfo, State
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
    """A box of the drawing. `column` and `row` are its place."""

    key: int
    column: int
    row: float

    @property
    def state(self) -> State:
        """The state to colour it by."""
        return next(state for state in _SHOWN_FIRST if state in self.states)


@dataclass(frozen=True)
class GraphDrawing:
    """The whole picture. `lines`: from box to box, by their keys; `columns` and `rows`: its size, in boxes."""

    boxes: tuple[GraphBox, ...]
    lines: tuple[tuple[int, int], ...]
    columns: int
    rows: int


def rows_of(info: FlowInfo) -> list[FlowRow]:
    """The tree, from the top: each row stands under the last of those that it waits for."""
    graph = FlowGraph(info)
    units = graph.units()
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
    while waiting:
        depth, number = waiting.pop()
        jobs = tuple(graph.nodes[id] for id in units[number])
        found.append(FlowRow(jobs=jobs, depth=depth, after=after.get(number, ())))
        waiting += [(depth + 1, child) for child in reversed(below.get(number, []))]
    return found


def graph_of(info: FlowInfo) -> GraphDrawing:
    """The drawing of a flow."""
    graph = FlowGraph(info)
    units = graph.units()
    if len(units) > MAX_BOXES:
        units = _folded(graph)
    unit_of = {id: number for number, unit in enumerate(units) for id in unit}
    lines = sorted(
        {
            (unit_of[dependency], unit_of[id])
            for id, before in graph.before.items()
            for dependency in before
            if unit_of[dependency] != unit_of[id]
        }
    )
    column = {number: max(graph.level[id] for id in unit) for number, unit in enumerate(units)}
    tallest = max(Counter(column.values()).values(), default=0)
    rows = _rows(column, lines, tallest)
    boxes = tuple(
        GraphBox(jobs=tuple(graph.nodes[id] for id in unit), key=number, column=column[number], row=rows[number])
        for number, unit in enumerate(units)
    )
    return GraphDrawing(boxes, tuple(lines), max(column.values(), default=-1) + 1, tallest)


def _folded(graph: FlowGraph) -> list[tuple[str, ...]]:
    """The jobs by column and type; beyond MAX_BOXES of these, by column alone."""
    alike: dict[tuple[int, str], list[str]] = {}
    for with_type in (True, False):
        alike = {}
        for id in graph.order:
            alike.setdefault((graph.level[id], graph.nodes[id].job.type if with_type else ""), []).append(id)
        if len(alike) <= MAX_BOXES:
            break
    return [tuple(ids) for ids in alike.values()]


def _rows(column: dict[int, int], lines: list[tuple[int, int]], tallest: int) -> dict[int, float]:
    """A row for each box: near the boxes that it is connected to on the left, and none above another."""
    before: dict[int, list[int]] = {}
    for start, end in lines:
        before.setdefault(end, []).append(start)
    found: dict[int, float] = {}
    for at in sorted(set(column.values())):
        here = [number for number in column if column[number] == at]
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
    cancelled = [node.job.id for node in info.nodes if node.state is State.CANCELLED]
    if cancelled and len(cancelled) <= MAX_NAMED:
        return [command("job retry", *cancelled)]
    if cancelled or any(node.state is State.INFLIGHT for node in info.nodes):
        return []
    waiting = [node.job.id for node in info.nodes if node.state in (State.READY, State.SCHEDULED)]
    return [command("explain", waiting[0])] if waiting else []
