"""Random flows, and what they must answer: computed in plain Python, without jobs.

A graph is a small tree: ("leaf", tag) takes nothing; ("wrap", tag) receives what came before; ("grow", graph) is a job
that returns that graph as a workflow; ("chain", …), ("group", …) and ("chord", members, last) nest.
"""

import json
from typing import Any

from hypothesis import strategies as st

from taskharbor import Harbor
from taskharbor.flow import chain, chord, group

NOTHING = object()


def graphs(before: bool, depth: int = 3) -> st.SearchStrategy[Any]:
    """Graphs that fit a place with something before it, or with nothing."""
    tags = st.integers(0, 99)
    leaf = st.tuples(st.just("leaf"), tags)
    steps = [leaf]
    if before:
        steps.append(st.tuples(st.just("wrap"), tags))
    if depth == 0:
        return st.one_of(steps)
    inner = graphs(before, depth - 1)
    after = graphs(True, depth - 1)
    grown = st.tuples(st.just("grow"), graphs(False, depth - 1))
    members = st.lists(inner, max_size=3).map(lambda each: ("group", *each))
    chains = st.tuples(inner, st.lists(after, max_size=2)).map(lambda each: ("chain", each[0], *each[1]))
    chords = st.tuples(members, after).map(lambda each: ("chord", *each))
    return st.one_of(*steps, members, chains, chords, grown)


def answer(graph: Any, before: Any = NOTHING) -> Any:
    """What a flow of this graph answers."""
    kind, *rest = graph
    if kind == "leaf":
        return rest[0]
    if kind == "wrap":
        assert before is not NOTHING
        return {"tag": rest[0], "got": before}
    if kind == "grow":
        return answer(rest[0])
    if kind == "group":
        return [answer(each, before) for each in rest]
    for each in rest:
        before = answer(each, before)
    return before


def jobs_in(graph: Any) -> int:
    """How many jobs a graph has before it grows."""
    kind, *rest = graph
    return 1 if kind in ("leaf", "wrap", "grow") else sum(map(jobs_in, rest))


class Grower:
    """The tasks that graphs are made of."""

    def __init__(self, harbor: Harbor) -> None:
        @harbor.task(name="leaf")
        async def leaf(tag: int) -> int:
            return tag

        @harbor.task(name="wrap")
        async def wrap(got: Any, tag: int) -> Any:
            return {"tag": tag, "got": got}

        @harbor.task(name="grow")
        async def grow(graph: list[Any]) -> Any:
            part = self.part(graph)
            return part if graph[0] in ("chain", "group", "chord") else chain(part)

        self.leaf, self.wrap, self.grow = leaf, wrap, grow

    def part(self, graph: Any) -> Any:
        """The graph as steps and flows."""
        kind, *rest = graph
        if kind == "leaf":
            return self.leaf.s(tag=rest[0])
        if kind == "wrap":
            return self.wrap.s(tag=rest[0])
        if kind == "grow":
            return self.grow.s(graph=json.loads(json.dumps(rest[0])))  # tuples would come back as lists
        parts = [self.part(each) for each in rest]
        if kind == "group":
            return group(parts)
        return chain(*parts) if kind == "chain" else chord(*parts)
