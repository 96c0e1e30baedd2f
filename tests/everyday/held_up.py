"""Which commands blocked a Redis server: those of its slow log, less the time for which the server waited for a core.

The slow log measures by the wall, and beside five other stores a server often waits. The kernel counts that;
where it does not, everything counts.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from tests.servers.redis import Server

LONGEST = 0.05  # seconds of a server's processor time, for anything that the scene does
LOOK_EVERY = 0.1  # seconds


class HeldUp:
    """A watch over servers, from now until `end`."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self._servers = {server.pid: server for server in servers}
        self._waits: dict[int, list[tuple[float, float]]] = {pid: [] for pid in self._servers}
        self._ended = threading.Event()
        for server in servers:
            server.run("CONFIG", "SET", "slowlog-log-slower-than", round(LONGEST * 1e6))
            server.run("CONFIG", "SET", "slowlog-max-len", 10_000)
            server.run("SLOWLOG", "RESET")
        self._looking = threading.Thread(target=self._look, daemon=True)
        self._looking.start()

    def _look(self) -> None:
        while True:
            for pid, waits in self._waits.items():
                waits.append((time.time(), waited(pid)))
            if self._ended.wait(LOOK_EVERY):
                return

    def end(self) -> list[str]:
        """What took too long, in words."""
        self._ended.set()
        self._looking.join()
        told = []
        for pid, server in self._servers.items():
            with server.client() as client:
                entries = client.slowlog_get(10_000)
            for entry in entries:
                seconds = entry["duration"] / 1e6
                busy = seconds - self._waited_in(pid, entry["start_time"] - seconds - 1, entry["start_time"] + 2)
                if busy > LONGEST:
                    how = f"took {seconds * 1000:.0f} ms, {busy * 1000:.0f} without waits"
                    told.append(f"{entry['command'][:60]!r} {how}")
        return told

    def _waited_in(self, pid: int, begin: float, end: float) -> float:
        waits = self._waits[pid]
        first = max(bisect_left(waits, (begin,)) - 1, 0)
        last = min(bisect_right(waits, (end,)), len(waits) - 1)
        return waits[last][1] - waits[first][1]


def waited(pid: int) -> float:
    """For how many seconds a process was ready to run, and had no core."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
