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
import socket
from collections.abc import Callable, Iterable, Sequence

import msgspec

from taskharbor.worker.settings import SupervisorSettings
from taskharbor.worker.supervisor.process import Process
from taskharbor.worker.supervisor.restart_loop import RestartLoop

logger = logging.getLogger("taskharbor")

MAX_CONNECTIONS = 32
TIMEOUT_S = 5.0  # for a request and its response
MAX_REQUEST_BYTES = 16 * 1024
ACCEPT_PAUSE_S = 1.0  # when no connection could be accepted
END = b"\r\n\r\n"


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


class HttpPort:
    """Serves what `respond` makes of a method and a path: one short request for each connection, however many others
    connect and send nothing. `open` raises OSError if the port is not available.

    At most `MAX_CONNECTIONS` are open: when one more arrives, the oldest is closed. A probe sends its request at once
    and gets its response at once, so it is never the oldest for long. When no file descriptor is left, that is logged
    once, and accepting is retried every second (asyncio's own server tries a hundred times at once, and logs each).
    """

    def __init__(self, respond: Callable[[bytes, bytes], bytes]) -> None:
        self._respond = respond
        self._loop = asyncio.get_running_loop()
        self._listeners: list[socket.socket] = []
        self._open: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._warned = False

    async def open(self, host: str, port: int) -> None:
        """Listen."""
        addresses = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in dict.fromkeys(addresses):
                listener = socket.socket(family, kind, protocol)
                self._listeners.append(listener)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.bind(address)
                listener.listen(MAX_CONNECTIONS)
                listener.setblocking(False)
        except OSError:
            self.close()
            raise
        for listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)

    def close(self) -> None:
        """Close the port and all connections."""
        for listener in self._listeners:
            if listener.fileno() >= 0:
                self._loop.remove_reader(listener)
            listener.close()
        for task in self._open:
            task.cancel()

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            if not self._warned:
                logger.warning("the port for probes cannot answer: %s", os.strerror(error.errno or 0))
            self._warned = True
            self._loop.remove_reader(listener)
            self._loop.call_later(ACCEPT_PAUSE_S, self._go_on, listener)
            return
        self._warned = False
        connection.setblocking(False)
        task = self._loop.create_task(self._serve(connection))
        self._open[task] = None
        task.add_done_callback(lambda done: self._open.pop(done, None))
        if len(self._open) > MAX_CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel()

    def _go_on(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._loop.add_reader(listener, self._accept, listener)

    async def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    request = b""
                    while END not in request and len(request) < MAX_REQUEST_BYTES:
                        more = await self._loop.sock_recv(connection, MAX_REQUEST_BYTES)
                        if not more:
                            return
                        request += more
                    words = request.split(b" ", 2)
                    if len(words) == 3:  # else it is not HTTP
                        await self._loop.sock_sendall(connection, self._respond(words[0], words[1].partition(b"?")[0]))
            except (OSError, TimeoutError):
                return


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
            self._listening = HttpPort(self._response)
            try:
                await self._listening.open(self._host, self._port)
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
            self._listening.close()
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

    def _response(self, method: bytes, path: bytes) -> bytes:
        if method not in (b"GET", b"HEAD"):
            return _http("405 Method Not Allowed", b'{"error": "expected GET"}\n', method)
        if path not in (b"/", b"/health", b"/live", b"/ready"):
            return _http("404 Not Found", b'{"error": "expected /live or /ready"}\n', method)
        report = self._report()
        fine = report.ok or path == b"/live"
        body = msgspec.json.encode(report) + b"\n"
        return _http("200 OK" if fine else "503 Service Unavailable", body, method)


def _http(status: str, body: bytes, method: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == b"HEAD" else body)


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
