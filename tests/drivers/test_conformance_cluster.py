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


@pytest.mark.lane("conformance-cluster")
@pytest.mark.rotates(6, except_for=versions.sensitive)
class TestCluster(DriverCases):
    features = RedisDriver.features
    damage_samples = lanes.figure(test=8, chaos=1_000)
    damage_seed = lanes.part()  # others with each commit

    def make_driver(self):
        servers.shared_cluster().empty()
        return RedisDriver(f"{servers.shared_cluster().url}?checks=0")

    def damage(self, driver, id, how):
        damage(client(), id, how)

    def damage_field(self, driver, id, field, kind):
        return damage_field(client(), id, field, kind)
