"""Messages of worker processes, for tests of the supervisor's parts, and a way to run coroutine tests."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any

from msgspec.structs import replace

from taskharbor.model.lease import Lease
from taskharbor.worker.health import Health
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
    lease = Lease(f"job-{token}", "default", token, datetime.fromtimestamp(1000, UTC))
    return messages.TakenLease(lease, 0, limit)


def receive(process: Process, message: messages.ToParent) -> None:
    """Let the supervisor's side of a process receive a message."""
    process._receive(message)


def tick(**changes: Any) -> messages.Tick:
    """A heartbeat of an idle, healthy worker, with some fields changed."""
    more = {name: changes.pop(name) for name in ("gone", "due", "notes") if name in changes}
    health = Health(
        "w", "running", ok=True, running=0, busy=False, polled_seconds_ago=0.5, store_lost_for=0, store_error=""
    )
    return messages.Tick(replace(health, **changes), **{"gone": [], "due": [], **more})
