"""Metrics for Prometheus: what workers and clients do, how deep the queues are, and a server for `/metrics`.

Needs the extra `prometheus`. Labels are queue and type, in a bounded number of pairs. No label and no help text ever
contains an id, a payload or an error.

    in an application:     Harbor(…, observers=[PrometheusObserver()]); serve(9464, harbor.driver)
    under `worker run`:    the supervisor calls share() before it starts its processes, and serves what they write
"""

try:
    import prometheus_client as _prometheus_client
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"metrics need the module {error.name}: pip install 'taskharbor[prometheus]'", name=error.name
    ) from None

from taskharbor.observe.prometheus.observer import PrometheusObserver, install
from taskharbor.observe.prometheus.queues import QueueCollector
from taskharbor.observe.prometheus.server import MetricsServer, serve
from taskharbor.observe.prometheus.shared import SharedMetrics, share

__all__ = ["MetricsServer", "PrometheusObserver", "QueueCollector", "SharedMetrics", "install", "serve", "share"]

del _prometheus_client
