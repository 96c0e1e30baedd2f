"""The Redis driver keeps the contract: every case of the suite, on a real server, each on an empty store."""

import pytest
import redis

from taskharbor.conformance import DriverCases
from taskharbor.drivers.redis import RedisDriver
from tests import lanes
from tests.drivers import versions
from tests.drivers.redis_stores import damage, damage_field, emptied
from tests.servers import redis as servers


class RedisCases(DriverCases):
    """For each kind of server a class of its own."""

    kind: servers.Kind
    options = ""

    def make_driver(self):
        return RedisDriver(f"{emptied(self.kind)}?checks=0{self.options}")

    def damage(self, driver, id, how):
        with redis.Redis.from_url(servers.shared(self.kind).url) as client:
            damage(client, id, how)

    def damage_field(self, driver, id, field, kind):
        with redis.Redis.from_url(servers.shared(self.kind).url) as client:
            return damage_field(client, id, field, kind)


@pytest.mark.lane("conformance-redis")
class TestRedis(RedisCases):
    kind = "redis7"
    damage_samples = lanes.figure(test=6, full=200, chaos=1_000)
    damage_seed = lanes.seed()


@pytest.mark.lane("conformance-redis")
@pytest.mark.left_to("matrix", except_for=versions.every_call)
class TestUnindexed(RedisCases):
    """Without the index of OmniQ 4.0."""

    kind = "redis7"
    options = "&omniq_index=0"


@pytest.mark.lane("conformance-redis")
@pytest.mark.left_to("matrix")
@pytest.mark.may_skip("no package here brings Redis 8")
class TestRedis8(RedisCases):
    kind = "redis8"

    def make_driver(self):
        if not servers.REDIS8:
            pytest.skip("name the program of Redis 8: TASKHARBOR_REDIS8=/path/to/redis-server")
        return super().make_driver()
