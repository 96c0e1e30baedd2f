"""A flow as the store returned it: which job ends it, its progress, how long its jobs took, and its drawing as Mermaid
text.

In the drawing of a large flow, jobs of one type with the same edges share one box: a thousand boxes are unreadable, and
most programs that draw Mermaid refuse them.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from taskharbor.model.job import FlowInfo, JobInfo, State
from taskharbor.tasks.flow_metadata import JOIN_TYPE, ON_FAILURE_ROLE, ROLE_KEY


def is_failure_step(node: JobInfo) -> bool:
    """Whether this job was released by a failure."""
    return node.job.metadata.get(ROLE_KEY) == ON_FAILURE_ROLE


def end_of(info: FlowInfo) -> str:
    """The job whose result is the flow's: nothing waits for it, and no other has taken its place."""
    waited_for = {dependency for dependency, _ in info.edges}
    ends = [
        node.job.id
        for node in info.nodes
        if node.job.id not in waited_for and node.job.handed_to is None and not is_failure_step(node)
    ]
    return ends[-1] if ends else info.nodes[-1].job.id


def progress_of(info: FlowInfo) -> tuple[int, int]:
    """How many jobs are done, of how many. Joins, failure steps and jobs that handed over to others do not count."""
    counted = [
        node
        for node in info.nodes
        if node.job.type != JOIN_TYPE and node.job.handed_to is None and not is_failure_step(node)
    ]
    return sum(node.state is State.DONE for node in counted), len(counted)


def durations_of(info: FlowInfo) -> dict[str, timedelta | None]:
    """How long each job took from the moment at which it could start to its end; None while it has not ended."""
    ended = {node.job.id: node.job.finished_at for node in info.nodes}
    startable = {node.job.id: max(node.job.created_at, node.job.run_at or node.job.created_at) for node in info.nodes}
    for dependency, dependent in info.edges:
        at = ended.get(dependency)
        if at is not None and dependent in startable:
            startable[dependent] = max(startable[dependent], at)
    return {id: None if at is None else max(at - startable[id], timedelta()) for id, at in ended.items()}


MAX_SINGLE_BOXES = 30  # jobs; in larger flows like jobs share a box
_COLOURS = {
    "done": "#cfc",
    "inflight": "#cdf",
    "ready": "#ffc",
    "scheduled": "#ffc",
    "blocked": "#eee",
    "dlq": "#fcc",
    "cancelled": "#ddd",
}


def mermaid(info: FlowInfo) -> str:
    """The graph: a box for each job with its type and state, an arrow for each edge, a dotted one to its successor."""
    boxes = _boxes(info)
    names: dict[object, str] = {}
    members = Counter(boxes.values())
    lines = ["flowchart TD"]
    for node in info.nodes:
        box = boxes[node.job.id]
        if box not in names:
            names[box] = f"n{len(names)}"
            lines.append(f"    {names[box]}{_label(node, members[box])}:::{node.state.value}")
    arrows = [(names[boxes[a]], names[boxes[b]]) for a, b in info.edges if a in boxes and b in boxes]
    lines += [f"    {a} --> {b}" for a, b in dict.fromkeys(arrows)]
    handed = [(names[boxes[n.job.id]], names[boxes[n.job.handed_to]]) for n in info.nodes if n.job.handed_to in boxes]
    lines += [f"    {a} -.-> {b}" for a, b in dict.fromkeys(handed)]
    used = {node.state.value for node in info.nodes}
    lines += [f"    classDef {state} fill:{colour},stroke:#888" for state, colour in _COLOURS.items() if state in used]
    return "\n".join(lines) + "\n"


def _boxes(info: FlowInfo) -> dict[str, object]:
    """Which box each job is drawn in."""
    if len(info.nodes) <= MAX_SINGLE_BOXES:
        return {node.job.id: node.job.id for node in info.nodes}
    after: dict[str, list[str]] = {node.job.id: [] for node in info.nodes}
    for dependency, dependent in info.edges:
        if dependency in after:
            after[dependency].append(dependent)
    return {
        node.job.id: (node.job.type, node.state, node.job.depends_on, tuple(after[node.job.id]), node.job.handed_to)
        for node in info.nodes
    }


def _label(node: JobInfo, number: int) -> str:
    name = "join" if node.job.type == JOIN_TYPE else node.job.type
    text = "".join(f"#{ord(char)};" if char in '"#<>&;`\\' or not char.isprintable() else char for char in name)
    times = f"{number} × " if number > 1 else ""
    words = f'"{times}{text}<br/>{node.state.value}"'
    if node.job.type == JOIN_TYPE:
        return f"(({words}))"
    return f"[/{words}/]" if is_failure_step(node) else f"[{words}]"
