"""The contract on Redis 6.2, the oldest that the driver works with."""

import pytest

from tests.drivers.test_conformance_redis import RedisCases


@pytest.mark.lane("conformance-redis62")
class TestRedis62(RedisCases):
    kind = "redis6"
