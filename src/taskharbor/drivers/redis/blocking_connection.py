"""A connection of blocking calls: a socket that the calling thread reads itself.

Its coroutines never suspend: each wait blocks the thread.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Sequence
from typing import Any

from redis.exceptions import ConnectionError

from taskharbor.drivers.redis import tls
from taskharbor.drivers.redis.connection import MAX_IDLE_S, log_in
from taskharbor.drivers.redis.options import RedisOptions
from taskharbor.drivers.redis.resp import (
    INCOMPLETE,
    Address,
    Command,
    cannot_connect,
    discard_unsent,
    monotonic,
    packed_all,
    reply_reader,
    set_keepalive,
)

CHECKED_AFTER_S = 1.0  # a connection that was idle for longer is checked before it is used
BUFFER_BYTES = 65536


async def dial_blocking(options: RedisOptions, address: Address, seconds: float) -> BlockingConnection:
    """A new connection that has logged in."""
    limit = min(options.connect_timeout, seconds)
    if limit <= 0:
        raise TimeoutError("no time left to connect")
    made = BlockingConnection(_connected(options, address, limit))
    await log_in(made, options, limit)
    return made


class BlockingConnection:
    """A socket. One thread at a time uses it."""

    def __init__(self, connected: socket.socket) -> None:
        self._timeout = 0.0
        self._reader = reply_reader()
        self.used = monotonic()
        self._socket = connected

    async def call(self, commands: Sequence[Command], seconds: float) -> list[Any]:
        """Send commands and return their replies; an error of the server is one of the replies. TimeoutError if they
        have not come within `seconds`."""
        reader, wanted = self._reader, len(commands)
        replies: list[Any] = []
        deadline = monotonic() + seconds
        try:
            self._limit(seconds)
            self._socket.sendall(packed_all(commands))
            while True:
                data = self._socket.recv(BUFFER_BYTES)
                if not data:
                    raise ConnectionError(_last_words(replies) or "the server closed the connection")
                reader.feed(data)
                while (reply := reader.gets(False)) is not INCOMPLETE:
                    replies.append(reply)
                if len(replies) >= wanted:
                    break
                left = deadline - monotonic()
                if left <= 0:
                    raise TimeoutError
                self._limit(left)
        except TimeoutError:
            discard_unsent(self._socket)
            raise TimeoutError(f"no answer within {round(seconds, 1):g} s") from None
        except OSError as error:
            raise ConnectionError(_last_words(replies) or f"the connection was lost: {error}") from error
        if len(replies) > wanted:
            raise ConnectionError("more replies than commands")
        self.used = monotonic()
        return replies

    def _limit(self, seconds: float) -> None:
        if seconds != self._timeout:  # a system call that most calls do without
            self._socket.settimeout(seconds)
            self._timeout = seconds

    @property
    def usable(self) -> bool:
        """Whether a call may use it. Nothing reports a connection that the server closed while it was idle, so one
        that was idle for a while is checked; a firewall may have dropped one that was idle for long."""
        idle = monotonic() - self.used
        if idle < CHECKED_AFTER_S:
            return True
        return idle < MAX_IDLE_S and not _has_input(self._socket)

    async def disconnect(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()


def _connected(options: RedisOptions, address: Address, timeout: float) -> socket.socket:
    try:
        if options.socket is not None:
            local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                local.settimeout(timeout)
                local.connect(options.socket)
            except BaseException:
                local.close()
                raise
            return local
        made = socket.create_connection(address, timeout)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            set_keepalive(made)
            if options.tls:
                made = tls.context(options.ssl).wrap_socket(made, server_hostname=address[0])
            return made
        except BaseException:
            made.close()
            raise
    except TimeoutError:
        raise TimeoutError(f"no connection within {timeout:.2g} s") from None
    except OSError as error:
        raise cannot_connect(options, address, error) from error


def _has_input(sock: socket.socket) -> bool:
    """Whether something is to be read, which on an idle connection is its end."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _last_words(replies: Sequence[Any]) -> str:
    """The error that a server sent before it closed the connection."""
    return str(replies[-1]) if replies and isinstance(replies[-1], Exception) else ""
