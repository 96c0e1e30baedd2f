"""A server for /metrics with a bounded number of connections, each in a thread that does not wait for ever.

When one more comes than there is room for, the oldest is closed: a scraper asks at once, so that is never its own.
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

MOST = 16  # connections at once
SECONDS = 10.0  # that a connection may say nothing
AGAIN = 1.0  # seconds until the next try, when no connection could be accepted


class QuietRequestHandler(WSGIRequestHandler):
    """One connection."""

    timeout = SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not logged."""


class BoundedServer(ThreadingMixIn, WSGIServer):
    """At most `MOST` connections, the newest ones."""

    daemon_threads = True
    request_queue_size = MOST

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._open: dict[socket.socket, None] = {}  # the oldest first
        self._lock = threading.Lock()
        super().__init__(*args, **kwargs)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            time.sleep(AGAIN)  # no descriptor is left: asking at once would only be refused again, for ever
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        oldest = None
        with self._lock:
            self._open[request] = None
            if len(self._open) > MOST:
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
        """Ignore clients that sent nothing or went away; log what a collector raised."""
        error = sys.exception()
        if not isinstance(error, OSError):
            logger.error("metrics: %s", type(error).__name__, exc_info=True)


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)  # its thread reads the end of it, and closes it
    except OSError:
        return
