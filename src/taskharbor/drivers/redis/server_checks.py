"""Start-up checks of a server, once when a driver opens.

A server on which the driver cannot work is an error. A setting that may lose jobs is a warning in the log
(`taskharbor.drivers.redis`), once for each process and server. `?checks=0` skips the checks; so does a server that does
not allow INFO, as some managed ones.
"""

from __future__ import annotations

import logging
import re
from typing import Any

from taskharbor.drivers.redis.options import RedisOptions
from taskharbor.model.errors import BackendUnavailable, DriverError

logger = logging.getLogger("taskharbor.drivers.redis")
OLDEST = (6, 2)
_logged: set[tuple[str, str]] = set()


def judge(options: RedisOptions, info: str) -> list[str]:
    """Warnings about a server, from its INFO; an error if the driver cannot work there."""
    facts = dict(line.split(":", 1) for line in info.split("\r\n") if ":" in line and not line.startswith("#"))
    version = tuple(int(part) for part in re.findall(r"\d+", facts.get("redis_version", ""))[:2])
    if version and version < OLDEST:
        raise DriverError(f"Redis {facts['redis_version']}: expected 6.2 or later, or Valkey; upgrade the server")
    if facts.get("redis_mode") == "sentinel":
        raise DriverError(
            "the server is a Sentinel, which holds no jobs: expected redis+sentinel://host:26379/service "
            "with the name of the service that it watches"
        )
    if facts.get("cluster_enabled") == "1" and not options.cluster:
        raise DriverError("the server is part of a Cluster: expected redis+cluster://host:port, got redis://")
    if facts.get("role") == "slave" and not options.cluster:
        raise BackendUnavailable("the server is a replica, which takes no jobs; give the address of its primary")
    warnings = []
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        warnings.append(
            f"maxmemory-policy is {policy}: Redis evicts jobs when its memory is full; set it to noeviction"
        )
    if facts.get("aof_enabled") == "0":
        warnings.append("appendonly is no: jobs since the last snapshot are lost when Redis dies; set appendonly yes")
    if options.durable and facts.get("connected_slaves") == "0" and not options.cluster:
        warnings.append(f"durable={options.durable}, and no replica is connected: every call will fail")
    return warnings


def log_warnings(where: str, warnings: list[str]) -> None:
    """Log each warning about a server once."""
    for text in warnings:
        if (where, text) not in _logged:
            _logged.add((where, text))
            logger.warning("%s: %s", where, text)


def info_text(reply: Any) -> str:
    return reply.decode(errors="replace") if isinstance(reply, bytes) else ""
