"""The settings of a worker, and of a supervisor: checked once, never changed."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from taskharbor.model.bounds import MAX_RESULT_BYTES, check_name
from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import DEFAULT_QUEUE, OPERATIONS_QUEUE
from taskharbor.model.times import Duration, duration
from taskharbor.policy.retry import DEFAULT_MAX_ATTEMPTS, DEFAULT_MAX_LOST


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Durations are in seconds here, except `lease`, which drivers take as a timedelta."""

    name: str
    queues: tuple[str, ...]
    concurrency: int
    lease: timedelta
    heartbeat: float
    poll_interval: float
    shutdown_timeout: float
    max_lost: int
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    max_result: int = MAX_RESULT_BYTES
    heart: str = "thread"  # or "loop": everything on one thread, for drain and simulation
    operations: bool = True  # whether it also carries out bulk operations
    schedules: bool = True  # whether it also stores what code declares, and fires what is due


class SupervisorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a supervisor, as the command line gave them. `worker`: what holds for every worker process."""

    worker: WorkerSettings
    processes: int = 1
    max_jobs: int | None = None
    max_memory: int | None = None  # bytes
    reload: str | None = None  # the folder to watch
    spare: bool = True  # keep a process waiting that replaces one that dies
    health_file: str | None = None
    health_host: str = "127.0.0.1"
    health_port: int | None = None
    health_within: float = 30.0  # seconds


def settings(
    *,
    queues: Sequence[str] | str | None = None,
    concurrency: int = 16,
    lease: Duration = 30,
    heartbeat: Duration | None = None,
    poll_interval: Duration = 1.0,
    shutdown_timeout: Duration = 30,
    max_lost: int = DEFAULT_MAX_LOST,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    name: str | None = None,
    heart: str = "thread",
    schedules: bool = True,
) -> WorkerSettings:
    """Check what a user wrote, and raise an error that says what was expected."""
    if isinstance(queues, str):
        queues = [queues]
    elif queues is not None and not isinstance(queues, Iterable):
        raise TypeError(f"queues: expected queue names, got {type(queues).__name__}")
    if not isinstance(schedules, bool):
        raise TypeError(f"schedules: expected True or False, got {type(schedules).__name__}")
    if heart not in ("thread", "loop"):
        raise ValueError(f"heart: expected 'thread' or 'loop', got {heart!r}")
    served = tuple(dict.fromkeys((DEFAULT_QUEUE,) if queues is None else map(_plain, queues)))
    if not served:
        raise ValueError("queues: expected at least one queue name, got none")
    _named(served, "queues")
    if OPERATIONS_QUEUE in served:
        raise ValueError(f"queues: every worker serves {OPERATIONS_QUEUE!r} beside its own queues; leave it out")
    lease_for = duration(lease, "lease", zero=False)
    every = duration(lease / 3 if heartbeat is None else heartbeat, "heartbeat", zero=False)
    if every * 2 > lease_for:
        raise ValueError(
            f"heartbeat: expected at most half the lease ({lease_for.total_seconds() / 2:g} s), so that a missed beat "
            f"loses no job; got {every.total_seconds():g} s"
        )
    label = name or socket.gethostname().replace("{", "").replace("}", "") or "worker"
    _named((label,), "name")
    return WorkerSettings(
        # Unique for each process, so that `release` never touches the jobs of a worker with the same label.
        name=f"{label.encode()[:200].decode(errors='ignore')}:{os.getpid()}:{secrets.token_hex(4)}",
        queues=served,
        concurrency=_at_least(1, concurrency, "concurrency"),
        lease=lease_for,
        heartbeat=every.total_seconds(),
        poll_interval=duration(poll_interval, "poll_interval", zero=False).total_seconds(),
        shutdown_timeout=duration(shutdown_timeout, "shutdown_timeout").total_seconds(),
        max_lost=_at_least(1, max_lost, "max_lost"),
        max_attempts=_at_least(1, max_attempts, "max_attempts"),
        heart=heart,
        schedules=schedules,
    )


def _plain(name: Any) -> Any:
    """Turn a member of a StrEnum into its text."""
    return str.__str__(name) if isinstance(name, str) else name


def _at_least(minimum: int, value: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what}: expected a whole number, got {type(value).__name__}")
    if value < minimum:
        raise ValueError(f"{what}: expected {minimum} or more, got {value}")
    return value


def _named(names: Sequence[str], what: str) -> None:
    for name in names:
        try:
            check_name(name, what)
        except InvalidJob as error:
            raise ValueError(str(error)) from None
