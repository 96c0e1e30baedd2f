"""Redis against memory, step by step, on each kind of server: TASKHARBOR_MACHINE_RUNS says how many walks.

On a Cluster the two queues of a walk mostly lie in different hash slots, so edges, spawns and cancelled flows go
through the outbox. The client that writes a message delivers it before its call returns: nothing has to settle before
the two are compared.
"""

import itertools

import pytest

from taskharbor.conformance import DriverMachine
from taskharbor.drivers.redis import RedisDriver
from taskharbor.drivers.redis.store import RedisStore
from tests import lanes
from tests.drivers.redis_stores import emptied
from tests.servers import redis as servers


class RedisMachine(DriverMachine):
    """For each kind of server a class of its own."""

    kind: servers.Kind
    machine_shrinks = lanes.shrinks()

    def make_driver(self):
        return RedisDriver(f"{emptied(self.kind)}?checks=0")

    def clean(self, driver):
        emptied(self.kind)


@pytest.mark.lane("machine-redis")
class TestRedis(RedisMachine):
    kind = "redis7"
    machine_runs = lanes.figure(test=5, full=300)


@pytest.mark.lane("machine-redis")
@pytest.mark.left_to("full")
class TestRedis62(RedisMachine):
    kind = "redis6"
    machine_runs = lanes.figure(test=4, full=120)


@pytest.mark.lane("machine-redis")
@pytest.mark.left_to("full")
class TestValkey(RedisMachine):
    kind = "valkey"
    machine_runs = lanes.figure(test=4, full=120)


class SeveralClients(RedisDriver):
    """A driver whose calls are those of three clients in turn: what one of them remembers, the others changed. Several
    at the same time are in test_redis_races.py: nothing could be compared step by step there."""

    async def open(self) -> None:
        await super().open()
        self._others = [self.sibling(), self.sibling()]
        for other in self._others:
            await other.open()
        self._next = itertools.cycle([super().store, *(other.store for other in self._others)])

    async def close(self) -> None:
        for other in self._others:
            await other.close()
        await super().close()

    def sibling(self) -> RedisDriver:
        return RedisDriver(self._dsn)

    @property
    def store(self) -> RedisStore:
        return next(self._next)


@pytest.mark.lane("machine-cluster")
class TestCluster(DriverMachine):
    machine_runs = lanes.figure(test=3, full=120)
    machine_shrinks = lanes.shrinks()

    def make_driver(self):
        servers.shared_cluster().empty()
        return SeveralClients(f"{servers.shared_cluster().url}?checks=0")

    def clean(self, driver):
        servers.shared_cluster().empty()
