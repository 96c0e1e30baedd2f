"""A flow as a drawing: boxes in columns, from what waits for nothing on the left to the end on the right.

Pure: `graph_of` places the rows of `flow_view` on a grid, in units of boxes. Jobs alike share a box, and more than
MAX_BOXES boxes are folded once more, by column and type; so a flow of ten thousand jobs has a small picture.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from taskharbor.model.job import FlowInfo, JobInfo, State
from taskharbor.ops.flow_view import FlowGraph
from taskharbor.tasks.flow_metadata import JOIN_TYPE

MAX_BOXES = 60

# What a box shows if its jobs differ: the state that needs an operator, or that is under way, first.
_SHOWN_FIRST = (
    State.DLQ, State.CANCELLED, State.INFLIGHT, State.READY, State.SCHEDULED, State.BLOCKED, State.DONE,
)  # fmt: skip


@dataclass(frozen=True)
class GraphBox:
    """One job, or several alike. `column` and `row` are its place."""

    key: int
    name: str
    jobs: tuple[JobInfo, ...]
    column: int
    row: float

    @property
    def state(self) -> State:
        """The state to colour it by."""
        states = {info.state for info in self.jobs}
        return next(state for state in _SHOWN_FIRST if state in states)

    @property
    def states(self) -> dict[str, int]:
        """How many of its jobs are in which state."""
        counted = Counter(info.state for info in self.jobs)
        return {state.value: counted[state] for state in State if counted[state]}


@dataclass(frozen=True)
class GraphLine:
    """A line between two boxes, by their keys."""

    start: int
    end: int


@dataclass(frozen=True)
class GraphDrawing:
    """The whole picture. `columns` and `rows`: its size, in boxes."""

    boxes: tuple[GraphBox, ...]
    lines: tuple[GraphLine, ...]
    columns: int
    rows: int


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
    rows = _rows(column, lines)
    height = max((len([n for n in column if column[n] == at]) for at in set(column.values())), default=0)
    boxes = tuple(
        GraphBox(
            number, _name(graph.nodes[unit[0]]), tuple(graph.nodes[id] for id in unit), column[number], rows[number]
        )
        for number, unit in enumerate(units)
    )
    return GraphDrawing(boxes, tuple(GraphLine(*line) for line in lines), max(column.values(), default=-1) + 1, height)


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


def _rows(column: dict[int, int], lines: list[tuple[int, int]]) -> dict[int, float]:
    """A row for each box: near the boxes that it is connected to on the left, and none above another."""
    before: dict[int, list[int]] = {}
    for start, end in lines:
        before.setdefault(end, []).append(start)
    found: dict[int, float] = {}
    tallest = max(Counter(column.values()).values(), default=0)
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


def _name(info: JobInfo) -> str:
    return "join" if info.job.type == JOIN_TYPE else info.job.type
