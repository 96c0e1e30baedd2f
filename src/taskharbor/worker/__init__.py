"""Running jobs: the worker and its services."""

from taskharbor.worker.health import Health
from taskharbor.worker.middleware import Call, CallMiddleware, Middleware
from taskharbor.worker.worker import Worker

__all__ = ["Call", "CallMiddleware", "Health", "Middleware", "Worker"]
