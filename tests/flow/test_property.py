"""Random nested flows answer what the same graph answers in plain Python, also when joins cut them everywhere."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import assume, given, settings

from taskharbor import Harbor
from taskharbor.flow import Flow, chain
from taskharbor.flow import compile as compiling
from tests import lanes
from tests.flow.graphs import Grower, answer, graphs, jobs_in
from tests.flow.stores import NAMES, STORES

EXAMPLES = {"memory": lanes.figure(80, 800)}


def check(dsn: str, graph: Any) -> None:
    with Harbor(dsn) as harbor:
        grower = Grower(harbor)
        part = grower.part(graph)
        handle = (part if isinstance(part, Flow) else chain(part)).enqueue()
        harbor.worker(heart="loop").run(until_empty=True)
        assert handle.status() == "succeeded"
        expected = answer(graph)
        assert handle.result(1) == expected
        found = harbor.flow(handle.id)
        assert found.result(1) == expected
        assert found.progress.done == found.progress.total
        assert all(node.job.deliveries == 1 for node in found.nodes)


@pytest.mark.left_to("full", except_for=lanes.Chosen("memory", "cut by joins-postgresql"))
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cut", [False, True], ids=["as it is", "cut by joins"])
def test_a_flow_returns_what_its_graph_says(name: str, cut: bool) -> None:
    bounds: dict[str, Any] = (
        {"MAX_EDGES_WITHOUT_JOIN": 1, "MAX_SHAPE_BYTES": 1} if cut else {"MAX_EDGES_WITHOUT_JOIN": 256}
    )

    @settings(max_examples=EXAMPLES.get(name, lanes.figure(15, 100)))
    @given(graph=graphs(before=False))
    def run(graph: Any) -> None:
        assume(jobs_in(graph) > 0)
        with TemporaryDirectory() as folder, patch.multiple(compiling, **bounds):
            dsn = STORES[name](Path(folder))
            assert dsn is not None
            check(dsn, graph)

    run()
