"""The contract on a Redis Cluster of three primaries with a replica each."""

import pytest

from taskharbor.conformance import DriverCases
from taskharbor.drivers.redis import RedisDriver
from tests import lanes
from tests.drivers.redis_stores import damage, damage_field
from tests.servers import redis as servers


@pytest.mark.lane("conformance-cluster")
class TestCluster(DriverCases):
    features = RedisDriver.features
    damage_samples = lanes.figure(test=8, chaos=1_000)
    damage_seed = lanes.part()  # others with each commit

    def make_driver(self):
        servers.shared_cluster().empty()
        return RedisDriver(f"{servers.shared_cluster().url}?checks=0")

    def damage(self, driver, id, how):
        with servers.shared_cluster().client() as client:
            damage(client, id, how)

    def damage_field(self, driver, id, field, kind):
        with servers.shared_cluster().client() as client:
            return damage_field(client, id, field, kind)
