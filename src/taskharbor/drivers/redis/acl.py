"""The permissions that the driver and OmniQ's client need on the server: commands, keys and channels.

`rule` is the text for ACL SETUSER that docs/driver-redis.md shows; a test compares the commands with those that the
scripts and modules name. `denied` asks a server: it queues each command in a transaction that is discarded. The server
checks permissions when a command is queued, and carries nothing out.
"""

from __future__ import annotations

from typing import Any

from taskharbor.drivers.redis.connection import RespConnection
from taskharbor.drivers.redis.options import RedisOptions

# Feature → commands, each with arguments that a server would queue. `k`: a key, `c`: a channel.
NEEDED = {
    "every store": """
        CLIENT SETNAME taskharbor | DBSIZE | DEL k | EVAL 1 1 k | EVALSHA 1 1 k | EXISTS k | GET k | HDEL k 1
        HEXISTS k 1 | HGET k 1 | HGETALL k | HINCRBY k 1 1 | HKEYS k | HLEN k | HMGET k 1 | HSCAN k 0
        HSET k 1 1 | HSETNX k 1 1 | HVALS k | INCR k | INCRBY k 1 | INFO | LINDEX k 0 | LLEN k | LPOP k | LPOS k 1
        LPUSH k 1 | LRANGE k 0 0 | LREM k 1 1 | LTRIM k 0 0 | MGET k | PING | PUBLISH c 1 | RENAME k k | RPOP k
        RPUSH k 1 | SADD k 1 | SCAN 0 | SCARD k | SELECT 0 | SET k 1 | SETNX k 1 | SISMEMBER k 1 | SMEMBERS k
        SRANDMEMBER k | SREM k 1 | SSCAN k 0 | SUBSCRIBE c | TIME | TYPE k | ZADD k 1 1 | ZCARD k
        ZCOUNT k 0 0 | ZRANGE k 0 0 | ZRANGEBYLEX k - + | ZRANGEBYSCORE k 0 0 | ZREM k 1 | ZREVRANGE k 0 0
        ZSCAN k 0 | ZSCORE k 1
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
