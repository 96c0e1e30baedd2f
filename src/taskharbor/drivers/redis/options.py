"""The DSN: where the servers are, the login, and the options of this driver."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

from taskharbor.drivers.base import DEFAULT_RETENTION
from taskharbor.drivers.dsn import flag_of, max_payload_of, number_of, options_of, retention_of, scheme_of, seconds_of
from taskharbor.drivers.redis import tls
from taskharbor.model.bounds import MAX_PAYLOAD_BYTES

OURS = frozenset(
    {"retention", "max_payload", "durable", "pool_size", "connect_timeout", "timeout", "checks", "omniq_index"}
)
SENTINEL = frozenset({"sentinel_username", "sentinel_password", "sentinel_tls"})
UNIX = ("redis+unix", "unix")  # the second is redis-py's name for it
SCHEMES = ("redis", "rediss", "redis+cluster", "redis+sentinel", *UNIX)
PORT, SENTINEL_PORT = 6379, 26379
_HOST = re.compile(r"(\[[^\]]+\]|[^:\[\]]*)(?::(\d+))?")


@dataclass(frozen=True, kw_only=True)
class RedisOptions:
    """A DSN, parsed.

    `redis://user:password@host:6379/0`, `rediss://…` with TLS, `redis+cluster://host:7000,host:7001`,
    `redis+sentinel://host:26379,host:26379/service/0`, `redis+unix:///path/to/socket?db=0`.

    Options:
        retention: How long done and cancelled jobs are kept. Default: 24h.
        max_payload: The largest payload, in bytes. Default: 1048576.
        durable: How many replicas must confirm an enqueue or an outcome before the call returns (WAIT). Default: 0.
        pool_size: The largest number of connections of one opened driver to one server. Default: 20.
        connect_timeout: How long connecting may take. Default: 5s.
        timeout: How long a call may take. Default: 5s.
        checks: `0`: do not check the server's version and settings at the start. Default: 1.
        omniq_index: `0`: do not keep the index of OmniQ 4.0. Default: 1.
        tls: `1`: use TLS with `redis+cluster://` or `redis+sentinel://`. Default: 0.
        db: The number of the database, with `redis+unix://`. Default: 0.
        sentinel_username: The login at the sentinels.
        sentinel_password: The password at the sentinels.
        sentinel_tls: Whether the sentinels use TLS, 0 or 1. Default: as `tls`.
        ssl_ca_certs: A file with the CA that signed the server's certificate. Default: the system's.
        ssl_certfile: A file with our own certificate, for a server that asks for one.
        ssl_keyfile: A file with the key of that certificate.
        ssl_cert_reqs: `required`, `optional` or `none`: whether the server's certificate is checked. Default: required.
        ssl_check_hostname: `0`: trust a checked certificate under any name. Default: 1.
    """

    hosts: tuple[tuple[str, int], ...]
    cluster: bool = False
    tls: bool = False
    database: int = 0
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    retention: timedelta = DEFAULT_RETENTION
    max_payload: int = MAX_PAYLOAD_BYTES
    durable: int = 0
    pool_size: int = 20
    connect_timeout: float = 5.0
    timeout: float = 5.0
    checks: bool = True
    omniq_index: bool = True
    ssl: tuple[tuple[str, Any], ...] = field(default=(), repr=False)
    socket: str | None = None
    service: str | None = None
    sentinel_tls: bool = False
    sentinel_username: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)

    def for_sentinels(self) -> RedisOptions:
        """The options for connections to the sentinels: they have a login of their own, and no databases."""
        return replace(
            self,
            tls=self.sentinel_tls,
            ssl=self.ssl if self.sentinel_tls else (),
            database=0,
            username=self.sentinel_username,
            password=self.sentinel_password,
            timeout=self.connect_timeout,
        )


def parse(dsn: str) -> RedisOptions:
    """The options of a DSN, or ValueError that says what was expected."""
    scheme = scheme_of(dsn)
    if scheme not in SCHEMES or not dsn[len(scheme) + 1 :].startswith("//"):
        raise ValueError(
            "expected redis://host:6379/0, rediss://…, redis+cluster://host:7000,host:7001, "
            "redis+sentinel://host:26379,host:26379/service/0 or redis+unix:///path/to/socket?db=0"
        )
    cluster, sentinel, unix = scheme == "redis+cluster", scheme == "redis+sentinel", scheme in UNIX
    more = SENTINEL if sentinel else frozenset({"db"}) if unix else frozenset()
    given = options_of(dsn, OURS | tls.OPTIONS | {"tls"} | more)
    encrypted = scheme == "rediss" or flag_of(given, "tls", False)
    if unix and encrypted:
        raise ValueError("tls: a socket in the file system has none; leave it out")
    watched = sentinel and flag_of(given, "sentinel_tls", encrypted)
    parts = urlsplit(dsn)
    who, _, where = parts.netloc.rpartition("@")
    user, _, password = who.partition(":")
    service, path = _service(parts.path) if sentinel else (None, parts.path)
    socket = unquote(parts.path) if unix else None
    if unix and (where or socket in ("", "/")):
        raise ValueError(
            "expected the path of a socket behind three slashes, such as redis+unix:///run/redis.sock?db=0"
        )
    return RedisOptions(
        hosts=((socket, 0),) if socket else hosts_of(where, cluster or sentinel, SENTINEL_PORT if sentinel else PORT),
        cluster=cluster,
        tls=encrypted,
        database=_database(given.get("db", "") if unix else path, cluster=cluster),
        username=unquote(user) or None,
        password=unquote(password) or None,
        retention=retention_of(given),
        max_payload=max_payload_of(given),
        durable=number_of(given, "durable", 0, "a number of replicas", minimum=0),
        pool_size=number_of(given, "pool_size", 20, "a number of connections"),
        connect_timeout=seconds_of(given, "connect_timeout", "5s"),
        timeout=seconds_of(given, "timeout", "5s"),
        checks=flag_of(given, "checks", True),
        omniq_index=flag_of(given, "omniq_index", True),
        ssl=tls.settings(given, encrypted or watched),
        socket=socket,
        service=service,
        sentinel_tls=watched,
        sentinel_username=given.get("sentinel_username"),
        sentinel_password=given.get("sentinel_password"),
    )


def _service(path: str) -> tuple[str, str]:
    """The service that the path of a Sentinel's DSN names, and the rest of the path: the database."""
    name, _, rest = path.lstrip("/").partition("/")
    if not name:
        raise ValueError("expected the name of the service behind the sentinels, such as /mymaster/0")
    return unquote(name), rest


def hosts_of(where: str, several: bool, port: int = PORT) -> tuple[tuple[str, int], ...]:
    """The hosts and ports of a DSN."""
    texts = where.split(",") if several else [where]
    found = []
    for text in texts:
        match = _HOST.fullmatch(text)
        if match is None or (match[2] and int(match[2]) > 65535):
            raise ValueError("expected host:port" + (", host:port, …" if several else ""))
        found.append(((match[1] or "127.0.0.1").strip("[]"), int(match[2] or port)))
    return tuple(found)


def _database(path: str, *, cluster: bool) -> int:
    text = path.strip("/")
    if not text:
        return 0
    if cluster and text != "0":
        raise ValueError("a Cluster has one database: leave the path out")
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise ValueError("expected the number of a database behind the host, such as /0")
    return int(text)
