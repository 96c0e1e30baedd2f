"""Races of several clients across the slots of a Cluster, generated; and on one server, where a call is one script."""

import asyncio
from collections.abc import Callable

import pytest

from taskharbor.drivers.redis import cluster_router
from tests import lanes
from tests.drivers.group_capacity_races import story
from tests.drivers.redis_stores import emptied
from tests.servers import redis as servers

STORIES = lanes.figure(test=3, full=80)
CLIENTS, TURNS = 5, 25


def tell(dsn: str, empty: Callable[[], object], stories: int) -> None:
    for seed in range(lanes.seed(), lanes.seed() + stories):
        empty()
        try:
            jobs, ran = asyncio.run(story(dsn, seed, CLIENTS, TURNS))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        assert ran > jobs / 4, f"seed {seed}: only {ran} of {jobs} jobs ran"


@pytest.mark.lane("races-cluster")
@pytest.mark.timeout(3600)
def test_races_between_hash_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    # No node is away here, however busy the machine is: what a node is late with would be left to a later visit.
    monkeypatch.setattr(cluster_router, "OPTIONAL_CALL_S", 60.0)
    cluster = servers.shared_cluster()
    tell(f"{cluster.url}?checks=0", cluster.empty, STORIES)


@pytest.mark.lane("races-cluster")
@pytest.mark.timeout(3600)
def test_races_on_one_server() -> None:
    tell(f"{emptied()}?checks=0", emptied, max(1, STORIES // 10))
