"""A flow as an operator reads it: a tree of steps in which jobs alike share a row, and what to do about it.

A flow may have ten thousand jobs. Reading one is bounded: MAX_JOBS records without their payloads, and MAX_EXPLAINED
with them of those that died or were cancelled, because the text of their errors is masked by their payloads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace as replaced

from taskharbor.client.external_jobs import failed_externals, waits_for_externals
from taskharbor.drivers.base import Driver
from taskharbor.drivers.graph import flow_info
from taskharbor.flow.summary import is_failure_step
from taskharbor.model.errors import JobNotFound
from taskharbor.model.job import FlowInfo, FlowStatus, JobInfo, JobRecord, State, flow_status, replace
from taskharbor.tasks.flow_metadata import JOIN_TYPE

MAX_JOBS = 10_000
MAX_EXPLAINED = 100  # dead jobs and cancelled jobs, each, whose reasons are read
PAGE_JOBS = 1_000
FOLDED_FROM = 5  # jobs alike that share a row
MAX_NAMED = 3  # in a command that is suggested
_REFINED = 3  # rounds in which jobs are compared by their neighbours


@dataclass(frozen=True)
class FlowRow:
    """A row of the tree: one job, or several of one type in the same place. `depth` 0 is a job that waits for none."""

    depth: int
    jobs: tuple[JobInfo, ...]
    after: tuple[str, ...] = ()  # the types of all steps it waits for, if there are several

    @property
    def name(self) -> str:
        """The type of its jobs; what the library adds by itself has a plain name."""
        job = self.jobs[0].job
        return "join" if job.type == JOIN_TYPE else job.type

    @property
    def is_failure_step(self) -> bool:
        """Whether a failure released it."""
        return is_failure_step(self.jobs[0])

    @property
    def states(self) -> dict[State, int]:
        """How many of its jobs are in which state, in the order of the states."""
        counted = Counter(info.state for info in self.jobs)
        return {state: counted[state] for state in State if counted[state]}

    @property
    def failed(self) -> tuple[JobInfo, ...]:
        """Its dead and cancelled jobs, the dead ones first."""
        failed = (info for info in self.jobs if info.state in (State.DLQ, State.CANCELLED))
        return tuple(sorted(failed, key=lambda info: info.state is not State.DLQ))


async def read_flow(driver: Driver, id: str, now: datetime) -> tuple[FlowInfo, bool]:
    """A flow with at most MAX_JOBS of its jobs, and whether that is all. Payloads are left out where errors need none.

    Dead and cancelled jobs outside of it that its jobs wait for come last among the nodes, and count for the status.
    """
    nodes: list[JobInfo] = []
    cursor: str | None = None
    while True:
        page = await driver.list(
            flow_id=id, cursor=cursor, limit=min(PAGE_JOBS, MAX_JOBS - len(nodes)), now=now, payloads=False
        )
        nodes += page.items
        cursor = page.cursor
        if cursor is None or len(nodes) >= MAX_JOBS:
            break
    if not nodes:
        raise JobNotFound(f"no flow {id}")
    nodes = await _explained(driver, id, nodes, now)
    own = flow_info(id, tuple(nodes))
    externals = await failed_externals(driver, waits_for_externals(own), now) if cursor is None else []
    status = flow_status([node.state for node in (*nodes, *externals)])
    if cursor is not None and status is FlowStatus.SUCCEEDED:  # the rest was not read
        status = FlowStatus.RUNNING
    return replaced(own, status=status, nodes=(*nodes, *externals)), cursor is None


async def _explained(driver: Driver, id: str, nodes: list[JobInfo], now: datetime) -> list[JobInfo]:
    """The nodes, with the payloads of those that died or were cancelled; beyond MAX_EXPLAINED without their reasons."""
    whole: dict[str, JobInfo] = {}
    for state in (State.DLQ, State.CANCELLED):
        if any(node.state is state for node in nodes):
            page = await driver.list(flow_id=id, state=state, limit=MAX_EXPLAINED, now=now)
            whole |= {info.job.id: info for info in page.items}
    return [whole.get(node.job.id) or replaced(node, job=_without_texts(node)) for node in nodes]


def _without_texts(node: JobInfo) -> JobRecord:
    job = node.job
    return replace(job, reason="", last_error="") if job.reason or job.last_error else job


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
        found.append(FlowRow(depth, jobs, after.get(number, ())))
        waiting += [(depth + 1, child) for child in reversed(below.get(number, []))]
    return found


class FlowGraph:
    """The jobs of a flow, what each waits for, and how far it is from the beginning and the end."""

    def __init__(self, info: FlowInfo) -> None:
        self.nodes = {node.job.id: node for node in info.nodes}
        self.before = {
            id: [dependency for dependency in dict.fromkeys(node.job.depends_on) if dependency in self.nodes]
            for id, node in self.nodes.items()
        }
        self._add_handovers()
        self.behind: dict[str, list[str]] = {id: [] for id in self.nodes}
        for id, before in self.before.items():
            for dependency in before:
                self.behind[dependency].append(id)
        self.order = self._sorted()
        self.level = _levels(self.order, self.before)
        self.height = _levels(reversed(self.order), self.behind)

    def units(self) -> list[tuple[str, ...]]:
        """The jobs by row, in an order in which a row comes after all that it waits for."""
        alike: dict[int, list[str]] = {}
        colours = self._colours()
        for id in self.order:
            alike.setdefault(colours[id], []).append(id)
        found: list[tuple[str, ...]] = []
        for ids in alike.values():
            found += [tuple(sorted(ids))] if len(ids) >= FOLDED_FROM else [(id,) for id in ids]
        return sorted(found, key=lambda unit: (self.level[unit[0]], unit[0]))

    def _colours(self) -> dict[str, int]:
        """A number for each job: the same for jobs of one type that stand in the same place of the flow."""
        keys: dict[str, object] = {
            id: (node.job.type, is_failure_step(node), self.level[id], self.height[id])
            for id, node in self.nodes.items()
        }
        colours = _numbered(keys)
        for _ in range(_REFINED):
            keys = {
                id: (
                    colours[id],
                    frozenset(colours[other] for other in self.before[id]),
                    frozenset(colours[other] for other in self.behind[id]),
                )
                for id in self.nodes
            }
            refined = _numbered(keys)
            if len(set(refined.values())) == len(set(colours.values())):
                break
            colours = refined
        return colours

    def _add_handovers(self) -> None:
        """A job that handed over to other jobs stands before them."""
        placed: set[str] = set()
        for id, node in list(self.nodes.items()):
            heir_id = node.job.handed_to
            waiting = [heir_id] if heir_id is not None and heir_id in self.nodes else []
            while waiting:
                heir = waiting.pop()
                if heir in placed or heir == id:
                    continue
                placed.add(heir)
                if self.before[heir]:
                    waiting += self.before[heir]
                else:
                    self.before[heir] = [id]

    def _sorted(self) -> list[str]:
        """The ids, each after those it waits for. A ring, which only a damaged store can hold, is broken up."""
        missing = {id: len(before) for id, before in self.before.items()}
        free = sorted((id for id, number in missing.items() if not number), reverse=True)
        found: dict[str, None] = {}
        while free:
            id = free.pop()
            found[id] = None
            for other in reversed(self.behind[id]):
                missing[other] -= 1
                if not missing[other]:
                    free.append(other)
        for id in [id for id in self.nodes if id not in found]:
            self.before[id] = []
            found[id] = None
        return list(found)


def _levels(order: Iterable[str], before: dict[str, list[str]]) -> dict[str, int]:
    """For each id, the length of the longest way to it."""
    found: dict[str, int] = {}
    for id in order:
        found[id] = max((found.get(other, 0) + 1 for other in before[id]), default=0)
    return found


def _numbered(keys: dict[str, object]) -> dict[str, int]:
    numbers: dict[object, int] = {}
    return {id: numbers.setdefault(key, len(numbers)) for id, key in keys.items()}


def next_commands(info: FlowInfo) -> list[str]:
    """What an operator would type next: nothing for a flow that goes on or has succeeded."""
    dead = [node.job.id for node in info.nodes if node.state is State.DLQ]
    if dead:
        return [f"taskharbor inspect {dead[0]}", f"taskharbor flow requeue {info.id}"]
    cancelled = [node.job.id for node in info.nodes if node.state is State.CANCELLED]
    if cancelled and len(cancelled) <= MAX_NAMED:
        return [f"taskharbor job retry {' '.join(cancelled)}"]
    if cancelled or any(node.state is State.INFLIGHT for node in info.nodes):
        return []
    waiting = [node.job.id for node in info.nodes if node.state in (State.READY, State.SCHEDULED)]
    return [f"taskharbor explain {waiting[0]}"] if waiting else []
