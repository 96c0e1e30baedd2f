"""Ends connections on which no request arrives: many of them must not shut others out.

A connection has HEADER_S for the header of each of its requests. From there on uvicorn and the pages have their own
limits.
"""

from __future__ import annotations

import asyncio
from typing import Any

HEADER_S = 10.0
MAX_CONNECTIONS = 1_000  # beyond them the answer is 503; a process has at most 500 event streams


def with_header_deadline() -> type[asyncio.Protocol]:
    """uvicorn's protocol, with that limit."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    base: Any = AutoHTTPProtocol

    class HeaderDeadline(base):  # type: ignore[misc]  # its class is chosen when uvicorn is imported
        _header_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._forget()

        def _watch(self) -> None:
            """Begin to wait for a header, or go on; stop when it is there."""
            if self.cycle is not None and not self.cycle.response_complete:
                self._forget()
            elif self._header_timer is None:
                self._header_timer = asyncio.get_running_loop().call_later(HEADER_S, self._give_up)

        def _give_up(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

        def _forget(self) -> None:
            if self._header_timer is not None:
                self._header_timer.cancel()
                self._header_timer = None

    return HeaderDeadline
