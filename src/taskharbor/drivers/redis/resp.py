"""Redis' protocol without I/O: commands as bytes, replies as values, errors of the server as redis-py's exceptions.

Connections that are awaited (connection.py) and those that block (blocking_connection.py) share it.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import hiredis
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    InvalidResponse,
    MasterDownError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from taskharbor.model.clock import StoreClock

if TYPE_CHECKING:
    from taskharbor.drivers.redis.options import RedisOptions

monotonic = StoreClock().monotonic
Command = Sequence[Any]
Address = tuple[str, int]
CLIENT_NAME = "taskharbor"
TOO_MANY_CLIENTS = "max number of clients reached"  # the server refuses further connections with these words
INCOMPLETE = object()  # what a reader returns while a reply is not complete
_WORDS: dict[str, type[ResponseError]] = {
    "ASK": AskError,
    "CLUSTERDOWN": ClusterDownError,
    "MASTERDOWN": MasterDownError,
    "MOVED": MovedError,
    "NOSCRIPT": NoScriptError,
    "READONLY": ReadOnlyError,
    "TRYAGAIN": TryAgainError,
}
_LOGIN = ("NOAUTH", "WRONGPASS")
_IN_SCRIPT = re.compile(r"(?:ERR )?Error running script [^@]*@.*?: -([A-Z]+\b.*)", re.DOTALL)

# A dead peer is detected after a few seconds, early enough to try another connection.
KEEPALIVE = {
    getattr(socket, name): value
    for name, value in (
        ("TCP_KEEPIDLE", 4),
        ("TCP_KEEPINTVL", 1),
        ("TCP_KEEPCNT", 4),
        ("TCP_USER_TIMEOUT", 4_000),
    )
    if hasattr(socket, name)
}


def cause_of(text: str) -> str:
    """The error text without the prefix that Redis 6.2 adds to an error from inside a script.

    >>> cause_of("ERR Error running script (call to f_1b): @user_script:1: @user_script: 1: -OOM command not allowed")
    'OOM command not allowed'
    """
    inside = _IN_SCRIPT.match(text)
    return inside[1] if inside else text


def error_of(text: str) -> RedisError:
    """An error of the server as redis-py's exception.

    >>> type(error_of("NOSCRIPT No matching script.")).__name__
    'NoScriptError'
    """
    text = cause_of(text)
    word, _, rest = text.partition(" ")
    if word in _WORDS:
        return _WORDS[word](rest)
    if word == "LOADING":
        return BusyLoadingError(rest)
    return AuthenticationError(text) if word in _LOGIN else ResponseError(text)


def reply_reader() -> hiredis.Reader:
    """A parser of replies. It returns INCOMPLETE until a whole reply was fed."""
    return hiredis.Reader(protocolError=InvalidResponse, replyError=error_of, notEnoughData=INCOMPLETE)


def packed(command: Command) -> bytes:
    """A command, of text, bytes and numbers, as the server reads it.

    >>> packed(("GET", b"key"))
    b'*2\\r\\n$3\\r\\nGET\\r\\n$3\\r\\nkey\\r\\n'
    """
    data: bytes = hiredis.pack_command(tuple(command))
    return data


def packed_all(commands: Sequence[Command]) -> bytes:
    return b"".join(map(packed, commands))


def login_commands(options: RedisOptions, client_name: str | None = CLIENT_NAME) -> list[Command]:
    """What a new connection sends first: login, name, database. Often nothing but the name."""
    commands: list[Command] = []
    if options.username or options.password:
        user = [options.username] if options.username else []
        commands.append(["AUTH", *user, options.password or ""])
    if client_name:
        commands.append(["CLIENT", "SETNAME", client_name])
    if options.database:
        commands.append(["SELECT", options.database])
    return commands


def check_login(commands: Sequence[Command], replies: Sequence[Any]) -> None:
    """Raise the first error among the replies to `login_commands`."""
    for command, reply in zip(commands, replies, strict=True):
        if not isinstance(reply, Exception):
            continue
        if TOO_MANY_CLIENTS in str(reply):
            raise ConnectionError(TOO_MANY_CLIENTS)
        if command[0] == "AUTH" and not isinstance(reply, BusyLoadingError | AuthenticationError):
            raise AuthenticationError(str(reply))
        raise reply


def server_name(options: RedisOptions, address: Address) -> str:
    """The server as people write it."""
    return options.socket or f"{address[0]}:{address[1]}"


def cannot_connect(options: RedisOptions, address: Address, error: OSError) -> ConnectionError:
    """A failed attempt to connect, with the server's name."""
    return ConnectionError(f"cannot connect to {server_name(options, address)}: {error}")


def set_keepalive(sock: socket.socket | None) -> None:
    """None: the socket of a transport that is closed already."""
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE.items():
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def discard_unsent(sock: socket.socket | None) -> None:
    """Let closing the socket throw away what the server has not acknowledged. Otherwise the kernel goes on sending it,
    and a call that was given up is carried out when the network is back. None: it is closed already."""
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
