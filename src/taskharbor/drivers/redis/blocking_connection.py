"""Connections of blocking calls to one server: a socket that the calling thread reads itself, and a bounded pool.

A connection whose exchange did not end, be it for a timeout or for Ctrl-C, is closed and never used again. Any number
of threads may call; at most `pool_size` of them are connected at a time, and the others wait until their deadline.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Sequence
from typing import Any

from redis.exceptions import ConnectionError, ReadOnlyError

from taskharbor.drivers.redis import tls
from taskharbor.drivers.redis.connection import MAX_IDLE_S
from taskharbor.drivers.redis.options import RedisOptions
from taskharbor.drivers.redis.resp import (
    INCOMPLETE,
    TOO_MANY_CLIENTS,
    Address,
    Command,
    cannot_connect,
    check_login,
    discard_unsent,
    login_commands,
    packed_all,
    reply_reader,
    server_name,
    set_keepalive,
)
from taskharbor.drivers.signal_safe import Places
from taskharbor.model.clock import StoreClock

CHECKED_AFTER_S = 1.0  # a connection that was idle for longer is checked before it is used
BUFFER_BYTES = 65536
_monotonic = StoreClock().monotonic


class BlockingConnection:
    """A socket that has logged in. One thread at a time uses it."""

    def __init__(self, options: RedisOptions, address: Address, deadline: float) -> None:
        left = min(options.connect_timeout, deadline - _monotonic())
        if left <= 0:
            raise TimeoutError("no time left to connect")
        self._timeout = 0.0
        self._reader = reply_reader()
        self.used = _monotonic()
        self._socket = _connected(options, address, left)
        try:
            commands = login_commands(options)
            check_login(commands, self.call(commands, left))
        except BaseException:
            self.close()
            raise

    def call(self, commands: Sequence[Command], seconds: float) -> list[Any]:
        """Send commands and return their replies; an error of the server is one of the replies. TimeoutError if they
        have not come within `seconds`."""
        reader, wanted = self._reader, len(commands)
        replies: list[Any] = []
        deadline = _monotonic() + seconds
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
                left = deadline - _monotonic()
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
        self.used = _monotonic()
        return replies

    def _limit(self, seconds: float) -> None:
        if seconds != self._timeout:  # a system call that most calls do without
            self._socket.settimeout(seconds)
            self._timeout = seconds

    @property
    def usable(self) -> bool:
        """Whether a call may use it. Nothing reports a connection that the server closed while it was idle, so one
        that was idle for a while is checked; a firewall may have dropped one that was idle for long."""
        idle = _monotonic() - self.used
        if idle < CHECKED_AFTER_S:
            return True
        return idle < MAX_IDLE_S and not _has_input(self._socket)

    def close(self) -> None:
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
        raise TimeoutError(f"no connection within {timeout:g} s") from None
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


class BlockingPool:
    """The connections of one process to one server."""

    def __init__(self, options: RedisOptions, address: Address, *, primary: bool = False) -> None:
        self.address = address
        self._options = options
        self._primary = primary  # whether each connection must be to a primary
        self._places = Places(options.pool_size)
        self._idle: list[BlockingConnection] = []
        self.closed = False

    @property
    def name(self) -> str:
        return server_name(self._options, self.address)

    def close(self) -> None:
        self.closed = True
        self.drop_idle()

    def drop_idle(self) -> None:
        """Close the connections that are not in use: after an outage they lead nowhere."""
        while self._idle:
            with contextlib.suppress(IndexError):  # another thread was faster
                self._idle.pop().close()

    def call(self, commands: Sequence[Command], within: float | None, deadline: float) -> list[Any]:
        """Send commands on one connection and return their replies. Ends within `within` seconds, the timeout of the
        DSN, and the deadline."""
        limit = self._options.timeout if within is None else min(within, self._options.timeout)
        end = min(deadline, _monotonic() + limit) if within is not None else deadline
        me = threading.get_ident()
        connection: BlockingConnection | None = None
        try:
            connection = self._take(min(end, _monotonic() + self._options.connect_timeout))
            left = end - _monotonic()
            if left <= 0:
                raise TimeoutError("no time left")
            replies = connection.call(commands, limit if left > limit else left)
            if not self.closed:
                # In this order: a signal handler that raises must not close what another thread may have by now.
                whole, connection = connection, None
                self._idle.append(whole)
            return replies
        finally:
            self._places.inside.discard(me)
            if connection is not None:
                connection.close()
            self._places.wake()

    def _take(self, deadline: float) -> BlockingConnection:
        if self.closed:
            raise ConnectionError("the store's blocking calls were closed")
        if not self._places.enter(deadline - _monotonic()):
            raise TimeoutError(f"all {self._options.pool_size} connections were in use")
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            if connection.usable:
                return connection
            connection.close()
        return self._dial(deadline)

    def _dial(self, deadline: float) -> BlockingConnection:
        while True:
            try:
                made = BlockingConnection(self._options, self.address, deadline)
                break
            except ConnectionError as error:
                if TOO_MANY_CLIENTS not in str(error):
                    raise
                if len(self._places.inside) <= 1:
                    advice = "raise maxclients on the server, or lower pool_size"
                    raise ConnectionError(f"{TOO_MANY_CLIENTS}; {advice}") from error
            left = deadline - _monotonic()
            if left <= 0:
                raise TimeoutError(TOO_MANY_CLIENTS)
            self._places.sleep(left, lambda: bool(self._idle))  # another thread's connection will do
            with contextlib.suppress(IndexError):
                return self._idle.pop()
        if self._primary:
            self._check_role(made, deadline)
        return made

    def _check_role(self, connection: BlockingConnection, deadline: float) -> None:
        try:
            (role,) = connection.call([("ROLE",)], max(deadline - _monotonic(), 0.001))
            if isinstance(role, list) and role[0] != b"master":
                raise ReadOnlyError(f"{self.name}, which the sentinels name, is a replica")
        except BaseException:
            connection.close()
            raise
