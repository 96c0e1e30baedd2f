"""`/metrics` over HTTP, from a thread of this process (`observe.http_port`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry, make_wsgi_app

from taskharbor.model.clock import Clock
from taskharbor.observe.http_port import HttpPort
from taskharbor.observe.prometheus.queues import QueueCollector
from taskharbor.observe.prometheus.shared import ProcessCounter, SharedMetrics

if TYPE_CHECKING:
    from taskharbor.drivers.base import Driver

MAX_CONNECTIONS = 16


class MetricsServer:
    """Serves GET /metrics until it is closed.

    `processes`: an observer to attach to the supervisor whose processes it serves.
    """

    def __init__(self, http: HttpPort, registry: CollectorRegistry, shared: SharedMetrics | None) -> None:
        self._http = http
        self._registry = registry
        self._shared = shared
        self._queues: QueueCollector | None = None
        self.processes = ProcessCounter()
        if shared is not None:
            registry.register(self.processes)
        self.port: int = http.port

    def watch(self, driver: Driver, clock: Clock | None = None) -> None:
        """Serve figures of the queues of a store, too. Only the first store counts. `clock`: by default the store's."""
        if self._queues is None:
            self._queues = QueueCollector(driver, clock=clock)
            self._registry.register(self._queues)

    def close(self) -> None:
        """Stop serving."""
        self._http.close()
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
        http = HttpPort(address, port, make_wsgi_app(registry), "metrics", MAX_CONNECTIONS)
    except OSError as error:
        raise OSError(error.errno, f"metrics: {address}:{port}: {error.strerror or error}; choose another") from None
    serving = MetricsServer(http, registry, shared)
    if driver is not None:
        serving.watch(driver, clock)
    return serving
