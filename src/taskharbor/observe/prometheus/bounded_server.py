"""A server for /metrics with a bounded number of connections, each in a thread with a timeout.

When one connection too many arrives, the oldest is closed: a scraper sends its request at once, so that is never its
own.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

logger = logging.getLogger("taskharbor")

MAX_CONNECTIONS = 16
SILENT_S = 10.0  # for which a connection may send nothing
ACCEPT_PAUSE_S = 1.0  # when no connection could be accepted


class QuietRequestHandler(WSGIRequestHandler):
    """One connection."""

    timeout = SILENT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not logged."""


class BoundedServer(ThreadingMixIn, WSGIServer):
    """At most `MAX_CONNECTIONS` connections, the newest ones."""

    daemon_threads = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._open: dict[socket.socket, None] = {}  # the oldest first
        self._lock = threading.Lock()
        super().__init__(*args, **kwargs)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            time.sleep(ACCEPT_PAUSE_S)  # no file descriptor is left: trying at once would fail again, in a busy loop
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        oldest = None
        with self._lock:
            self._open[request] = None
            if len(self._open) > MAX_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
        if oldest is not None:
            _hang_up(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what a collector raised. A client that sent nothing, or went away, is not worth a line."""
        error = sys.exception()
        if not isinstance(error, OSError):
            logger.error("metrics: %s", type(error).__name__, exc_info=True)


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)  # its thread reads the end, and closes it
    except OSError:
        return
