"""The graph of a flow as the store returned it, for everything that draws one: a tree, boxes in columns, Mermaid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from taskharbor.flow.summary import is_failure_step
from taskharbor.model.job import FlowInfo, JobInfo, State
from taskharbor.tasks.flow_metadata import JOIN_TYPE

FOLDED_FROM = 5  # jobs alike that share a row or a box
_REFINED = 3  # rounds in which jobs are compared by their neighbours


def step_name(info: JobInfo) -> str:
    """The type of a job; what the library adds by itself has a plain name."""
    return "join" if info.job.type == JOIN_TYPE else info.job.type


@dataclass(frozen=True, kw_only=True)
class FlowStep:
    """One job of a flow, or several of one type in the same place."""

    jobs: tuple[JobInfo, ...]

    @property
    def name(self) -> str:
        """What its jobs are called."""
        return step_name(self.jobs[0])

    @property
    def is_failure_step(self) -> bool:
        """Whether a failure released it."""
        return is_failure_step(self.jobs[0])

    @property
    def states(self) -> dict[State, int]:
        """How many of its jobs are in which state, in the order of the states."""
        counted = Counter(info.state for info in self.jobs)
        return {state: counted[state] for state in State if counted[state]}


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
