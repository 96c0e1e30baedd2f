"""The contract on Redis 6.2, the oldest that the driver works with."""

import pytest

from tests.drivers import versions
from tests.drivers.test_conformance_redis import RedisCases
from tests.servers import redis as servers


@pytest.mark.lane("conformance-redis62")
@pytest.mark.left_to("matrix", except_for=versions.every_call)
class TestRedis62(RedisCases):
    kind = "redis6"


@pytest.mark.lane("conformance-redis62")
@pytest.mark.left_to("matrix")
def test_the_sensitive_cases_send_every_command():
    def counted(run):
        with servers.shared("redis6").client(decode_responses=True) as client:
            client.script_flush()  # a script that is known already is sent otherwise
            client.config_resetstat()
            run()
            return set(client.info("commandstats"))

    versions.everything_is_met(TestRedis62(), counted)
