"""Enqueueing: the client, its requests and handles, and the portal for callers that block."""

from taskharbor.client.client import Client
from taskharbor.client.enqueue_middleware import EnqueueMiddleware, Stamp
from taskharbor.client.handle import JobHandle
from taskharbor.client.request import JobRequest

__all__ = ["Client", "EnqueueMiddleware", "JobHandle", "JobRequest", "Stamp"]
