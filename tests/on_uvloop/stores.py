"""Empty stores that other processes can open too."""

from pathlib import Path

from tests.drivers.redis_stores import emptied
from tests.servers import postgres
from tests.servers import redis as servers
from tests.servers.sentinel import shared_sentinels


def on_sqlite(folder: Path) -> str:
    return f"sqlite:///{folder}/jobs.db"


def on_postgres(folder: Path) -> str:
    server = postgres.shared()
    return server.address(server.store())


def on_redis(folder: Path) -> str:
    return emptied()


def on_cluster(folder: Path) -> str:
    servers.shared_cluster().empty()
    return servers.shared_cluster().url


def on_sentinels(folder: Path) -> str:
    shared_sentinels().empty()
    return shared_sentinels().url


STORES = {"sqlite": on_sqlite, "postgres": on_postgres, "redis": on_redis}
KINDS_OF_REDIS = {"cluster": on_cluster, "sentinel": on_sentinels}
