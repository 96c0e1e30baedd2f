"""Probes: the health of the worker processes, in a file and on an HTTP port.

    GET /live    200 as long as the supervisor responds: restart the container when it does not
    GET /ready   200 when each of the `--processes` has polled the store within `--health-within`, and has a slot that
                 is not stuck; else 503
                 (also /, /health); both return the same JSON

A store that is away makes a worker unready, never dead: restarting every worker would not bring the store back.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from taskharbor.worker.settings import SupervisorSettings
from taskharbor.worker.supervisor.process import Process
from taskharbor.worker.supervisor.roles import RestartLoop

if TYPE_CHECKING:
    from taskharbor.observe.http_port import HttpPort

logger = logging.getLogger("taskharbor")

MAX_CONNECTIONS = 32
TIMEOUT_S = 5.0  # for the supervisor to respond


class ProcessReport(msgspec.Struct, frozen=True):
    """One worker process."""

    process: int
    pid: int
    worker: str
    state: str
    running: int
    jobs_taken: int
    leases: int
    heard_seconds_ago: float
    polled_seconds_ago: float | None
    store_error: str
    slots: int = 0
    stuck: int = 0  # slots held by handlers that do not end
    blocked_for: float = 0.0  # seconds that its event loop has not turned


class HealthReport(msgspec.Struct, frozen=True):
    """All processes. `ok`: each place has polled successfully within the last `within` seconds, and can run jobs."""

    ok: bool
    state: str
    pid: int
    within: float
    restarts: int
    processes: list[ProcessReport]


def describe(
    places: Sequence[RestartLoop], fleet: Iterable[Process], now: float, within: float, stopping: bool
) -> HealthReport:
    """The report for now. `places`: one restart loop for each of the `--processes`."""
    processes = list(fleet)
    for process in processes:
        place = places[process.number]
        if process.polled_at is not None:
            place.polled_at = max(process.polled_at, place.polled_at or process.polled_at)
    fresh = all(place.polled_at is not None and now - place.polled_at <= within for place in places)
    served = any(process.ready.is_set() for process in processes)
    able = not any(process.stuck for process in processes if places[process.number].process is process)
    return HealthReport(
        ok=fresh and able and not stopping,
        state="stopping" if stopping else "running" if served else "starting",
        pid=os.getpid(),
        within=within,
        restarts=sum(max(0, place.restarts) for place in places),
        processes=[_one(process, now) for process in processes],
    )


def _one(process: Process, now: float) -> ProcessReport:
    health = process.health
    return ProcessReport(
        process=process.number,
        pid=process.pid,
        worker=process.worker,
        state="stopped" if process.stopped else process.state,
        running=health.running if health is not None else 0,
        jobs_taken=process.taken,
        leases=len(process.leases),
        heard_seconds_ago=round(now - process.heard_at, 3),
        polled_seconds_ago=None if process.polled_at is None else round(now - process.polled_at, 3),
        store_error=health.store_error if health is not None else "",
        slots=health.slots if health is not None else 0,
        stuck=health.stuck if health is not None else 0,
        blocked_for=round(health.blocked_for, 3) if health is not None else 0.0,
    )


class Unusable(Exception):
    """The file cannot be written or the port is not available: one line that says why."""


class Probes:
    """Writes the file, and serves the port."""

    def __init__(self, report: Callable[[], HealthReport], settings: SupervisorSettings) -> None:
        self._report = report
        self._file = settings.health_file
        self._host, self._port = settings.health_host, settings.health_port
        self._listening: HttpPort | None = None
        self._warned = False

    async def start(self) -> None:
        """Begin, or raise Unusable."""
        if self._port is not None:
            from taskharbor.observe.http_port import HttpPort  # only where a port is asked for

            self._loop = asyncio.get_running_loop()
            try:
                self._listening = HttpPort(self._host, self._port, self._respond, "probes", MAX_CONNECTIONS)
            except OSError as error:
                raise Unusable(f"--health-port {self._port} on {self._host}: {_reason(error)}") from error
        if self._file is not None:
            try:
                await self._write(self._file)
            except OSError as error:
                raise Unusable(f"--health-file {self._file}: {_reason(error)}") from error

    async def stop(self) -> None:
        """Close the port, and delete the file: a worker that has ended is not healthy."""
        if self._listening is not None:
            await asyncio.to_thread(self._listening.close)
        if self._file is not None:
            try:
                os.unlink(self._file)
            except OSError:
                pass  # it is gone, or its age shows that it is stale

    async def write(self) -> None:
        """Write the file, if there is one. A full disk ends no worker: the age of the file shows the problem."""
        if self._file is not None:
            try:
                await self._write(self._file)
            except OSError as error:
                if not self._warned:
                    logger.warning("--health-file %s: %s", self._file, _reason(error))
                self._warned = True
            else:
                self._warned = False

    async def _write(self, path: str) -> None:
        """Replace the file atomically."""
        await asyncio.to_thread(_replace, path, msgspec.json.encode(self._report()) + b"\n")

    def _respond(self, environ: dict[str, Any], start: Callable[..., object]) -> list[bytes]:
        """The WSGI application, in a thread of its own. The report comes from the supervisor's loop."""
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if method not in ("GET", "HEAD"):
            status, body = "405 Method Not Allowed", b'{"error": "expected GET"}\n'
        elif path not in ("/", "/health", "/live", "/ready"):
            status, body = "404 Not Found", b'{"error": "expected /live or /ready"}\n'
        else:
            try:
                report = asyncio.run_coroutine_threadsafe(self._report_on_loop(), self._loop).result(TIMEOUT_S)
            except (TimeoutError, RuntimeError):  # the loop stands still, or is closed
                status, body = "500 Internal Server Error", b'{"error": "the supervisor does not respond"}\n'
            else:
                status = "200 OK" if report.ok or path == "/live" else "503 Service Unavailable"
                body = msgspec.json.encode(report) + b"\n"
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Cache-Control": "no-store"}
        start(status, list(headers.items()))
        return [] if method == "HEAD" else [body]

    async def _report_on_loop(self) -> HealthReport:
        return self._report()


def _reason(error: OSError) -> str:
    """The system's own text, without the address that Python puts before it."""
    return os.strerror(error.errno) if error.errno else str(error)


def _replace(path: str, content: bytes) -> None:
    """Replace a file, safely in a folder that others may write to: a random name, and no symbolic link is followed."""
    beside = f"{path}.{secrets.token_hex(8)}"
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666), "wb") as file:
        try:
            file.write(content)
            file.flush()
            os.replace(beside, path)
        except BaseException:
            os.unlink(beside)
            raise
