"""A primary with replicas and the sentinels that watch them, for one process of the tests."""

import functools
from typing import Any

import redis

from tests.servers.redis import Kind, Server, until

SERVICE = "jobs"


class Sentinel(Server):
    """One that watches."""

    mode = ("--sentinel",)


class Sentinels:
    """Three sentinels, a primary and its replicas. `options` are those of the servers with the data."""

    def __init__(
        self, kind: Kind = "redis7", *, replicas: int = 1, down_after: int = 1000, aof: bool = False, **options: str
    ) -> None:
        quick = {"repl_diskless_sync_delay": "0", "repl_ping_replica_period": "1", **options}
        first = Server(kind, aof=aof, **quick)
        followers = [Server(kind, aof=aof, replicaof=f"127.0.0.1 {first.port}", **quick) for _ in range(replicas)]
        self.servers = [first, *followers]
        watched: dict[str, Any] = {
            "sentinel monitor": f"{SERVICE} 127.0.0.1 {first.port} 2",
            "sentinel down-after-milliseconds": f"{SERVICE} {down_after}",
            "sentinel failover-timeout": f"{SERVICE} 4000",
        }
        self.sentinels = [Sentinel(kind, **watched) for _ in range(3)]
        if kind != "redis6":
            for sentinel in self.sentinels:  # usually it looks every ten seconds
                sentinel.run("SENTINEL", "DEBUG", "INFO-PERIOD", 300, "PUBLISH-PERIOD", 500)
        self.settle()

    @property
    def url(self) -> str:
        """For a driver: redis+sentinel://."""
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    def living(self) -> list[Server]:
        return [server for server in self.servers if server.process is not None and server.process.poll() is None]

    @property
    def primary(self) -> Server:
        """The server that is the primary, as all sentinels say."""
        found: list[Server] = []

        def agreed() -> bool:
            ports = {int(each.run("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1]) for each in self.sentinels}
            found[:] = [server for server in self.living() if {server.port} == ports]
            return bool(found) and found[0].run("ROLE")[0] == "master"

        until(agreed, "the sentinels to agree")
        return found[0]

    def settle(self) -> None:
        """Wait until the sentinels know each other and every living server, and all replicas are in step."""
        until(self._settled, "the sentinels to settle")

    def _settled(self) -> bool:
        primary = self.primary
        for sentinel in self.sentinels:
            known = [_facts(each) for each in sentinel.run("SENTINEL", "REPLICAS", SERVICE)]
            alive = {int(each["port"]) for each in known if "down" not in str(each["flags"])}
            others = [_facts(each) for each in sentinel.run("SENTINEL", "SENTINELS", SERVICE)]
            if len(others) < 2 or any("down" in str(each["flags"]) for each in others):
                return False
            if {server.port for server in self.living()} - {primary.port} - alive:
                return False
        roles = [server.run("ROLE") for server in self.living() if server is not primary]
        return all(
            role[0] in ("slave", "replica") and role[2] == primary.port and role[3] == "connected" for role in roles
        )

    def kill_primary(self) -> Server:
        """kill -9 of the primary; returns when another one has its place."""
        old = self.primary
        old.kill()
        until(lambda: self.primary is not old, "another primary")
        return old

    def fail_over(self) -> None:
        """Let a replica take the place of the primary, which lives on as a replica."""
        old = self.primary
        until(self._asked, "a replica that can be promoted")
        until(lambda: self.primary is not old, "another primary")

    def _asked(self) -> bool:
        try:
            self.sentinels[0].run("SENTINEL", "FAILOVER", SERVICE)
        except redis.ResponseError:
            return False
        return True

    def empty(self) -> None:
        self.primary.run("FLUSHALL")

    def stop(self) -> None:
        for server in (*self.sentinels, *self.servers):
            server.stop()


def _facts(reply: Any) -> dict[str, str]:
    """A reply of names and values: a map in RESP3, which redis-py 8 speaks by default, a flat list in RESP2."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


@functools.cache
def shared_sentinels() -> Sentinels:
    """The sentinels of this process, with one replica on Redis 7."""
    return Sentinels()
