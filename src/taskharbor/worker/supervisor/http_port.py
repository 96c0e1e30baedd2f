"""An HTTP port for probes: one short request for each connection, however many others connect and send nothing.

At most `MAX_CONNECTIONS` are open: when one more arrives, the oldest is closed. A probe sends its request at once and
gets its response at once, so it is never the oldest for long. When no file descriptor is left, that is logged once, and
accepting is retried every second (asyncio's own server tries a hundred times at once, and logs each).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable

logger = logging.getLogger("taskharbor")

MAX_CONNECTIONS = 32
TIMEOUT_S = 5.0  # for a request and its response
MAX_REQUEST_BYTES = 16 * 1024
ACCEPT_PAUSE_S = 1.0  # when no connection could be accepted
END = b"\r\n\r\n"


class HttpPort:
    """Serves what `respond` makes of a method and a path. `open` raises OSError if the port is not available."""

    def __init__(self, respond: Callable[[bytes, bytes], bytes]) -> None:
        self._respond = respond
        self._loop = asyncio.get_running_loop()
        self._listeners: list[socket.socket] = []
        self._open: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._warned = False

    async def open(self, host: str, port: int) -> None:
        """Listen."""
        addresses = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in dict.fromkeys(addresses):
                listener = socket.socket(family, kind, protocol)
                self._listeners.append(listener)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.bind(address)
                listener.listen(MAX_CONNECTIONS)
                listener.setblocking(False)
        except OSError:
            self.close()
            raise
        for listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)

    def close(self) -> None:
        """Close the port and all connections."""
        for listener in self._listeners:
            if listener.fileno() >= 0:
                self._loop.remove_reader(listener)
            listener.close()
        for task in self._open:
            task.cancel()

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            if not self._warned:
                logger.warning("the port for probes cannot answer: %s", os.strerror(error.errno or 0))
            self._warned = True
            self._loop.remove_reader(listener)
            self._loop.call_later(ACCEPT_PAUSE_S, self._go_on, listener)
            return
        self._warned = False
        connection.setblocking(False)
        task = self._loop.create_task(self._serve(connection))
        self._open[task] = None
        task.add_done_callback(lambda done: self._open.pop(done, None))
        if len(self._open) > MAX_CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel()

    def _go_on(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._loop.add_reader(listener, self._accept, listener)

    async def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    request = b""
                    while END not in request and len(request) < MAX_REQUEST_BYTES:
                        more = await self._loop.sock_recv(connection, MAX_REQUEST_BYTES)
                        if not more:
                            return
                        request += more
                    words = request.split(b" ", 2)
                    if len(words) == 3:  # else it is not HTTP
                        await self._loop.sock_sendall(connection, self._respond(words[0], words[1].partition(b"?")[0]))
            except (OSError, TimeoutError):
                return
