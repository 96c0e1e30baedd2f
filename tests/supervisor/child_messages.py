"""Messages of worker processes, for tests of the supervisor's parts, and a way to run coroutine tests."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any

from taskharbor.worker.supervisor import messages
from taskharbor.worker.supervisor.process import Process

LEASE = timedelta(seconds=30)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def async_test(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine function as a test."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def taken(token: str, limit: float | None = None) -> messages.TakenLease:
    """A lease as a worker process reports it; `limit`: seconds that the job may run."""
    return messages.TakenLease(f"job-{token}", "default", token, 1_000_000, 0, limit)


def receive(process: Process, message: messages.ToParent) -> None:
    """Let the supervisor's side of a process receive a message."""
    process._receive(message)


def tick(**changes: Any) -> messages.Tick:
    """A heartbeat of an idle, healthy worker, with some fields changed."""
    facts: dict[str, Any] = {"ok": True, "state": "running", "busy": False, "running": 0, "polled_seconds_ago": 0.5}
    return messages.Tick(**{**facts, "store_error": "", "gone": [], "due": [], **changes})
