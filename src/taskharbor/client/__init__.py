"""Faces for programs: the client, its requests, handles and filters."""

from taskharbor.client.client import Client
from taskharbor.client.handle import JobHandle
from taskharbor.client.request import JobRequest
from taskharbor.store.enqueue import EnqueueMiddleware, Stamp

__all__ = ["Client", "EnqueueMiddleware", "JobHandle", "JobRequest", "Stamp"]
