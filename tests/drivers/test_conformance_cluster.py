"""The contract on a Redis Cluster of three primaries with a replica each."""

import atexit
import functools
from typing import Any

import pytest

from taskharbor.conformance import DriverCases
from taskharbor.drivers.redis import RedisDriver
from tests import lanes
from tests.drivers import versions
from tests.drivers.redis_stores import damage, damage_field
from tests.servers import redis as servers


@functools.cache
def client() -> Any:
    """One for all tests: it asks each node for its commands and slots when it is made."""
    made = servers.shared_cluster().client()
    atexit.register(made.close)
    return made


class ClusterCases(DriverCases):
    """For each way to run them a class of its own."""

    def make_driver(self):
        servers.shared_cluster().empty()
        return RedisDriver(f"{servers.shared_cluster().url}?checks=0")

    def damage(self, driver, id, how):
        damage(client(), id, how)

    def damage_field(self, driver, id, field, kind):
        return damage_field(client(), id, field, kind)


ACROSS = ("flows", "flow_status", "spawn", "fence", "settle", "lost", "schedules", "schedule_jobs", "idempotency")


def between_slots(name: str) -> bool:
    """Whether this test runs on a Cluster in `make test`: what one call does in several hash slots, and `brief`."""
    return versions.brief(name) or name.startswith(tuple(f"test_{theme}_" for theme in ACROSS))


@pytest.mark.lane("conformance-cluster")
@pytest.mark.left_to("full", except_for=between_slots)
class TestCluster(ClusterCases):
    damage_samples = lanes.figure(test=4, full=40, chaos=1_000)
    damage_seed = lanes.seed()
