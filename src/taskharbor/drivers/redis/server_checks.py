"""What the driver needs of a server: checks at the start, once when a driver opens, and permissions.

A server on which the driver cannot work is an error. A setting that may lose jobs is a warning in the log
(`taskharbor.drivers.redis`), once for each process and server. `?checks=0` skips the checks; so does a server that does
not allow INFO, as some managed ones.

The driver and OmniQ's client need permissions for commands, keys and channels. `rule` is the text for ACL SETUSER that
docs/driver-redis.md shows; a test compares the commands with those that the scripts and modules name. `denied` asks a
server: it queues each command in a transaction that is discarded. The server checks permissions when a command is
queued, and carries nothing out.
"""

from __future__ import annotations

import logging
import re
from typing import Any

from taskharbor.drivers.redis.connection import RespConnection
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


# Permissions


# Feature → commands, each with arguments that a server would queue. `k`: a key, `c`: a channel.
NEEDED = {
    "every store": """
        CLIENT SETNAME taskharbor | DBSIZE | DEL k | EVAL 1 1 k | EVALSHA 1 1 k | EXISTS k | GET k | HDEL k 1
        HEXISTS k 1 | HGET k 1 | HGETALL k | HINCRBY k 1 1 | HKEYS k | HLEN k | HMGET k 1 | HRANDFIELD k | HSCAN k 0
        HSET k 1 1 | HSETNX k 1 1 | HVALS k | INCR k | INCRBY k 1 | INFO | LINDEX k 0 | LLEN k | LPOP k | LPOS k 1
        LPUSH k 1 | LRANGE k 0 0 | LREM k 1 1 | LSET k 0 1 | LTRIM k 0 0 | MGET k | PING | PUBLISH c 1 | RENAME k k
        RPOP k | RPUSH k 1 | SADD k 1 | SCAN 0 | SCARD k | SELECT 0 | SET k 1 | SETNX k 1 | SISMEMBER k 1 | SMEMBERS k
        SMISMEMBER k 1 | SRANDMEMBER k | SREM k 1 | SSCAN k 0 | SUBSCRIBE c | TIME | TYPE k | ZADD k 1 1 | ZCARD k
        ZCOUNT k 0 0 | ZLEXCOUNT k - + | ZRANGE k 0 0 | ZRANGEBYLEX k - + | ZRANGEBYSCORE k 0 0 | ZREM k 1
        ZREVRANGE k 0 0 | ZSCAN k 0 | ZSCORE k 1
    """,
    "durable": "WAIT 1 1",
    "cluster": "ASKING | CLUSTER SLOTS",
    "sentinel": "ROLE",
    "omniq": "DECR k | PEXPIRE k 1 | PTTL k",
    "doctor": "MULTI | DISCARD",
}
KEYS, CHANNELS = "{*", "{*"
_KEYS = ("{th}:doctor", "{th:ids:0}", "{default}:doctor")
_CHANNEL = "{default}:th:wake"


def examples(*needs: str) -> list[list[str]]:
    """The commands of some needs, as they are sent."""
    lines = " | ".join(" | ".join(line for line in NEEDED[need].split("\n") if line.strip()) for need in needs)
    return [example.split() for example in lines.split(" | ")]


def name_of(example: list[str]) -> str:
    """A command as an ACL calls it.

    >>> name_of(["CLIENT", "SETNAME", "taskharbor"])
    'client|setname'
    """
    whole = example[:2] if example[0] in ("CLIENT", "CLUSTER") else example[:1]
    return "|".join(whole).lower()


def rule() -> str:
    """The smallest permissions with which everything works, for ACL SETUSER."""
    names = sorted({name_of(example) for example in examples(*NEEDED)})
    return f"resetkeys ~{KEYS} resetchannels &{CHANNELS} -@all +" + " +".join(names)


async def denied(connection: RespConnection, options: RedisOptions) -> list[str]:
    """Permissions that the user of a connection lacks, a sentence each. The connection cannot be used afterwards."""
    (begun,) = await connection.call([("MULTI",)])
    if isinstance(begun, Exception):
        return ["what this user may do cannot be asked: allow +multi +discard"]
    needs = ["every store"]
    needs += ["durable"] if options.durable else []
    needs += ["cluster"] if options.cluster else []
    needs += ["sentinel"] if options.service is not None else []
    asked = [_spelled(example, _KEYS[0]) for example in examples(*needs)]
    asked += [["EXISTS", key] for key in _KEYS[1:]]
    replies = await connection.call([*asked, ["DISCARD"]])
    commands: dict[str, None] = {}
    keys: dict[str, None] = {}
    channels = False
    for example, reply in zip(asked, replies, strict=False):
        text = str(reply)
        if not isinstance(reply, Exception) or not text.startswith("NOPERM"):
            continue
        if "channel" in text:
            channels = True
        elif " key" in text:
            keys[example[1] if example[0] == "EXISTS" else _KEYS[0]] = None
        else:
            commands[f"+{name_of(example)}"] = None
    return [
        *([f"this user may not run every command that is needed: allow {' '.join(commands)}"] if commands else []),
        *([f"this user may not use every key that is needed ({', '.join(keys)}): allow ~{KEYS}"] if keys else []),
        *([f"this user may not use the channels of hints ({_CHANNEL}): allow &{CHANNELS}"] if channels else []),
    ]


def _spelled(example: list[str], key: str) -> list[Any]:
    return [key if word == "k" else _CHANNEL if word == "c" else word for word in example]
