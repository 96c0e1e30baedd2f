"""The Redis driver: jobs in Redis, Valkey or a Redis Cluster, in the format of OmniQ.

`RedisDriver` has the calls of the contract, `lua/` the transactions. docs/driver-redis.md has the layout. Needs
redis-py.
"""

from taskharbor.drivers.redis.driver import RedisDriver

__all__ = ["RedisDriver"]
