"""Running jobs: the worker and its services."""

from taskharbor.worker.health import Health
from taskharbor.worker.middleware import Call, Middleware
from taskharbor.worker.worker import Worker

__all__ = ["Call", "Health", "Middleware", "Worker"]
