"""A port that answers short questions over HTTP, one for each connection, whoever else connects and says nothing.

Never more than `MOST` connections are open: when one more comes, the oldest is closed. A probe asks at once and is
answered at once, so it is never the oldest for long. When the system gives no descriptor, that is told once, and it is
tried again every second (asyncio's own server tries a hundred times at once, and logs each).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable

logger = logging.getLogger("taskharbor")

MOST = 32  # connections at once
SECONDS = 5.0  # for a question and its answer
LIMIT = 16 * 1024  # bytes of a question
AGAIN = 1.0  # seconds until the next try, when no connection could be accepted
END = b"\r\n\r\n"


class HttpPort:
    """Answers on a host's port what `answer` makes of a method and a path. OSError from `open`: it cannot be had."""

    def __init__(self, answer: Callable[[bytes, bytes], bytes]) -> None:
        self._answer = answer
        self._listeners: list[socket.socket] = []
        self._open: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._told = False

    async def open(self, host: str, port: int) -> None:
        """Begin to answer."""
        self._loop = asyncio.get_running_loop()
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                listener = socket.socket(family, kind, protocol)
                self._listeners.append(listener)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.bind(address)
                listener.listen(MOST)
                listener.setblocking(False)
        except OSError:
            self.close()
            raise
        for listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)

    def close(self) -> None:
        """Answer no more."""
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
            if not self._told:
                logger.warning("the port for probes cannot answer: %s", os.strerror(error.errno or 0))
            self._told = True
            self._loop.remove_reader(listener)
            self._loop.call_later(AGAIN, self._go_on, listener)
            return
        self._told = False
        connection.setblocking(False)
        task = self._loop.create_task(self._serve(connection))
        self._open[task] = None
        task.add_done_callback(lambda done: self._open.pop(done, None))
        if len(self._open) > MOST:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel()

    def _go_on(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._loop.add_reader(listener, self._accept, listener)

    async def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                async with asyncio.timeout(SECONDS):
                    asked = b""
                    while END not in asked and len(asked) < LIMIT:
                        more = await self._loop.sock_recv(connection, LIMIT)
                        if not more:
                            return
                        asked += more
                    words = asked.split(b" ", 2)
                    if len(words) == 3:  # else somebody who speaks no HTTP
                        await self._loop.sock_sendall(connection, self._answer(words[0], words[1].partition(b"?")[0]))
            except (OSError, TimeoutError):
                return
