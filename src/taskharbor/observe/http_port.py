"""A small HTTP port for probes and scrapers, served from threads of this process.

The number of connections is bounded, each in a thread with a timeout. When one connection too many arrives, the oldest
is closed: a probe sends its request at once, and gets its response at once, so it is never the oldest for long. When no
file descriptor is left, that is logged once, and accepting is tried again every second.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

logger = logging.getLogger("taskharbor")

SILENT_S = 5.0  # for which a connection may send nothing
ACCEPT_PAUSE_S = 1.0  # when no connection could be accepted


class HttpPort:
    """Serves a WSGI application on all addresses of a host, until it is closed. `port` 0: any that is free; the one
    that was found is `port`. `purpose` is for the log. Raises OSError if the port is not available."""

    def __init__(
        self, host: str, port: int, app: Callable[..., Iterable[bytes]], purpose: str, max_connections: int
    ) -> None:
        self.port = port
        self._servers: list[BoundedServer] = []
        self._threads: list[threading.Thread] = []
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        addresses = dict.fromkeys((family, where[0]) for family, _, _, _, where in found)
        try:
            for family, address in addresses:
                server = BoundedServer(family, (address, self.port), purpose, max_connections, len(addresses) == 1)
                self._servers.append(server)
                server.set_app(app)
                self.port = server.server_port
        except OSError:
            self.close()
            raise
        for server in self._servers:
            thread = threading.Thread(target=server.serve_forever, name=f"taskharbor-{purpose}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Stop serving, and close all connections."""
        for server, thread in zip(self._servers, self._threads, strict=False):
            server.shutdown()
            thread.join()
        for server in self._servers:
            server.server_close()


class QuietRequestHandler(WSGIRequestHandler):
    """One connection."""

    timeout = SILENT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""


class BoundedServer(ThreadingMixIn, WSGIServer):
    """At most `max_connections`, the newest ones. `alone`: no other server has this port."""

    daemon_threads = True
    request_queue_size = 32  # connections that wait to be accepted

    def __init__(self, family: int, where: tuple[Any, Any], purpose: str, max_connections: int, alone: bool) -> None:
        self.address_family = family
        self._purpose = purpose
        self._max_connections = max_connections
        self._alone = alone
        self._warned = False
        self._open: dict[socket.socket, None] = {}  # the oldest first
        self._lock = threading.Lock()
        super().__init__(where, QuietRequestHandler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6 and not self._alone:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        TCPServer.server_bind(self)  # that of HTTPServer asks for the name of the host: without DNS for seconds
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            request = super().get_request()
        except OSError as error:
            if not self._warned:
                logger.warning("the port for %s cannot answer: %s", self._purpose, os.strerror(error.errno or 0))
            self._warned = True
            time.sleep(ACCEPT_PAUSE_S)  # no file descriptor is left: trying at once would fail again, in a busy loop
            raise
        self._warned = False
        return request

    def process_request(self, request: Any, client_address: Any) -> None:
        oldest = None
        with self._lock:
            self._open[request] = None
            if len(self._open) > self._max_connections:
                oldest = next(iter(self._open))
                del self._open[oldest]
        if oldest is not None:
            _hang_up(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        with self._lock:
            left = list(self._open)
        for connection in left:
            _hang_up(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what the application raised. A client that sent nothing, or went away, is not worth a line."""
        error = sys.exception()
        if not isinstance(error, OSError):
            logger.error("%s: %s", self._purpose, type(error).__name__, exc_info=True)


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)  # its thread reads the end, and closes it
    except OSError:
        return
