"""The settings of a supervisor: read once from the command line, never changed."""

from __future__ import annotations

import msgspec

from taskharbor.worker.settings import WorkerSettings


class SupervisorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line said. `worker`: what holds for every worker process."""

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
