"""Redis' limit: a script that takes some jobs from a list and notes them as active, and one that forgets them.

redis-py with hiredis, one connection, no event loop. As durable as the server's settings say.
"""

from __future__ import annotations

import time
from typing import Any

import redis

from bench import meter
from bench.meter import Measured, Order

CLAIM = """
local ids = redis.call('LPOP', KEYS[1], ARGV[2])
if not ids then return {} end
local active = {}
for index, id in ipairs(ids) do
  active[2 * index - 1] = ARGV[1]
  active[2 * index] = id
end
redis.call('ZADD', KEYS[2], unpack(active))
return {ids, redis.call('HMGET', KEYS[3], unpack(ids))}
"""
ACK = """
redis.call('ZREM', KEYS[1], unpack(ARGV))
return redis.call('HDEL', KEYS[2], unpack(ARGV))
"""
ENQUEUE = """
for index = 2, #ARGV do
  local id = redis.call('INCR', KEYS[1])
  redis.call('HSET', KEYS[3], id, ARGV[index])
  redis.call('RPUSH', KEYS[2], id)
end
"""
NEXT, WAIT, ACTIVE, JOBS = "bench:next", "bench:wait", "bench:active", "bench:jobs"


class _Queue:
    def __init__(self, address: str) -> None:
        client: Any = redis.Redis.from_url(address)
        self._claim = client.register_script(CLAIM)
        self._ack = client.register_script(ACK)
        self._enqueue = client.register_script(ENQUEUE)

    def enqueue(self, jobs: int) -> None:
        for size in meter.batches(jobs):
            self._enqueue(keys=(NEXT, WAIT, JOBS), args=(0, *[b"{}"] * size))

    def work(self, jobs: int, width: int) -> int:
        done = 0
        while done < jobs:
            claimed = self._claim(keys=(WAIT, ACTIVE, JOBS), args=(time.time(), width))
            if not claimed:
                break
            ids, _ = claimed
            self._ack(keys=(ACTIVE, JOBS), args=ids)
            done += len(ids)
        return done


def process(order: Order) -> Measured:
    """Taken and forgotten, several at a time."""
    queue = _Queue(order.address)
    queue.enqueue(order.jobs)
    with meter.Watch(order.server) as watch:
        done = queue.work(order.jobs, order.width)
    return watch.sample(done)


def enqueue_one(order: Order) -> Measured:
    """A script call for each job."""
    queue = _Queue(order.address)
    with meter.Watch(order.server) as watch:
        for _ in range(order.jobs):
            queue.enqueue(1)
    return watch.sample(order.jobs)


def enqueue_many(order: Order) -> Measured:
    """A script call for a thousand jobs."""
    queue = _Queue(order.address)
    with meter.Watch(order.server) as watch:
        queue.enqueue(order.jobs)
    return watch.sample(order.jobs)


MODES: dict[str, meter.Mode] = {"process": process, "enqueue-one": enqueue_one, "enqueue-many": enqueue_many}

if __name__ == "__main__":
    meter.main(MODES)
