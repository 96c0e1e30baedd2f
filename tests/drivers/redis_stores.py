"""Stores for the tests of the Redis driver: the servers that this process shares, emptied, and damaged on request."""

import redis

from tests.servers import redis as servers

DAMAGES = {
    "type": ("HDEL", "th_type"),
    "payload": ("HDEL", "payload"),
    "number": ("HSET", "attempt", "many"),
    "state": ("HSET", "state", "nobody knows"),
}


def emptied(kind: servers.Kind = "redis7") -> str:
    """The address of a shared server without a key in it."""
    server = servers.shared(kind)
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    return server.url


def damage(client, id: str, how: str) -> None:
    """Damage the record of a job, in whichever queue it is."""
    (key,) = [key for key in client.scan_iter("{*}:job:*", count=1000) if key.endswith(f"}}:job:{id}".encode())]
    command, *rest = DAMAGES[how]
    client.execute_command(command, key, *rest)
