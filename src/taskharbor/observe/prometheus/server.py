"""`/metrics` over HTTP, from a thread of this process.

The number of connections is bounded, each in a thread with a timeout. When one connection too many arrives, the oldest
is closed: a scraper sends its request at once, so that is never its own.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from socketserver import ThreadingMixIn
from threading import Thread
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import REGISTRY, CollectorRegistry, make_wsgi_app

from taskharbor.model.clock import Clock
from taskharbor.observe.prometheus.queues import QueueCollector
from taskharbor.observe.prometheus.shared import ProcessCounter, SharedMetrics

if TYPE_CHECKING:
    from taskharbor.drivers.base import Driver

logger = logging.getLogger("taskharbor")

MAX_CONNECTIONS = 16
SILENT_S = 10.0  # for which a connection may send nothing
ACCEPT_PAUSE_S = 1.0  # when no connection could be accepted


class MetricsServer:
    """Serves GET /metrics until it is closed.

    `processes`: an observer to attach to the supervisor whose processes it serves.
    """

    def __init__(
        self, server: WSGIServer, thread: Thread, registry: CollectorRegistry, shared: SharedMetrics | None
    ) -> None:
        self._server = server
        self._thread = thread
        self._registry = registry
        self._shared = shared
        self._queues: QueueCollector | None = None
        self.processes = ProcessCounter()
        if shared is not None:
            registry.register(self.processes)
        self.port: int = server.server_port

    def watch(self, driver: Driver, clock: Clock | None = None) -> None:
        """Serve figures of the queues of a store, too. Only the first store counts. `clock`: by default the store's."""
        if self._queues is None:
            self._queues = QueueCollector(driver, clock=clock)
            self._registry.register(self._queues)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        if self._queues is not None:
            self._registry.unregister(self._queues)
            self._queues = None
        if self._shared is not None:
            self._shared.close()


def serve(
    port: int,
    driver: Driver | None = None,
    *,
    address: str = "127.0.0.1",
    registry: CollectorRegistry = REGISTRY,
    shared: SharedMetrics | None = None,
    clock: Clock | None = None,
) -> MetricsServer:
    """Serve a registry's metrics on a port (0: any that is free), and, with a `driver`, those of its queues.

    `registry`: by default prometheus_client's own. `shared`: what `share()` returned, to serve the metrics of all
    processes instead of this one's. `address`: 0.0.0.0 lets other hosts read. `clock`: by default the store's. Raises
    OSError if the port is not available.
    """
    if shared is not None:
        registry = CollectorRegistry()
        registry.register(shared)
    try:
        server = _listening(address, port)
    except OSError as error:
        raise OSError(error.errno, f"metrics: {address}:{port}: {error.strerror or error}; choose another") from None
    server.set_app(make_wsgi_app(registry))
    thread = Thread(target=server.serve_forever, name="taskharbor-metrics", daemon=True)
    thread.start()
    serving = MetricsServer(server, thread, registry, shared)
    if driver is not None:
        serving.watch(driver, clock)
    return serving


def _listening(address: str, port: int) -> WSGIServer:
    [(family, _, _, _, where), *_] = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    made: type[BoundedServer] = type("MetricsServer", (BoundedServer,), {"address_family": family})
    return made(where[:2], QuietRequestHandler)


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
