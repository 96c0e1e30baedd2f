"""A network between a driver and its server that can be spoiled: a TCP proxy on the test's own event loop.

mode  "whole"       everything is carried
      "black hole"  connections are accepted and stay open, nothing is carried any more
      "cut"         the next reply is not carried: the connection is reset instead, once the server has begun to answer
      "slow"        everything is carried in pieces, each after a pause
      "refused"     new connections are reset

Beside the mode, `drop` makes the connections that there are lead nowhere, as a router does that forgets them: new ones
work. `drop(replies_only=True)`: what they bring reaches the server, its answers reach nobody.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

PIECE, PAUSE = 100, 0.005


class Proxy:
    """Where to connect, how it is, how often it has cut a reply, and swallowed something."""

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.port = 0
        self.mode = "whole"
        self.cuts = self.swallowed = 0
        self.changed = asyncio.Event()
        self.open: set[asyncio.StreamWriter] = set()
        self.lost: dict[asyncio.StreamWriter, bool] = {}  # connections that were dropped → whether only their replies
        self.tasks: set[asyncio.Task[None]] = set()

    def address(self, address: str) -> str:
        """The server's address, through here."""
        return address.replace(f"127.0.0.1:{self.target[1]}", f"127.0.0.1:{self.port}")

    def become(self, mode: str) -> None:
        self.mode = mode
        self.changed.set()
        self.changed = asyncio.Event()

    def reset(self) -> None:
        """Reset every connection there is."""
        for writer in list(self.open):
            self._abort(writer)

    def drop(self, replies_only: bool = False) -> None:
        """Every open connection leads nowhere from now on, without notice to either end."""
        self.lost |= dict.fromkeys(self.open, replies_only)

    def _abort(self, writer: asyncio.StreamWriter) -> None:
        found = writer.get_extra_info("socket")
        with suppress(OSError):  # the other side was quicker
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, back: bool, client: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(65536):
            if client in self.lost and (back or not self.lost[client]):
                self.swallowed += 1
                continue
            self.swallowed += self.mode == "black hole"
            while self.mode == "black hole":
                await self.changed.wait()
            if back and self.mode == "cut":
                self.cuts += 1
                self.mode = "whole"
                self._abort(writer)
                return
            pieces = [data[at : at + PIECE] for at in range(0, len(data), PIECE)] if self.mode == "slow" else [data]
            for piece in pieces:
                if self.mode == "slow":
                    await asyncio.sleep(PAUSE)
                writer.write(piece)
                await writer.drain()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        self.open.add(writer)
        server = None
        try:
            if self.mode == "refused":
                return self._abort(writer)
            while self.mode == "black hole":
                await self.changed.wait()
            from_server, server = await asyncio.open_connection(*self.target)
            ways = [
                asyncio.ensure_future(self._carry(reader, server, False, writer)),
                asyncio.ensure_future(self._carry(from_server, writer, True, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self.tasks.discard(task)
            self.open.discard(writer)
            self.lost.pop(writer, None)
            writer.transport.abort()
            if server is not None:
                server.transport.abort()


@asynccontextmanager
async def proxy(host: str, port: int) -> AsyncIterator[Proxy]:
    """A proxy before a server, for the time of a block."""
    made = Proxy(host, port)
    listener = await asyncio.start_server(made._serve, "127.0.0.1", 0)
    made.port = listener.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        listener.close()
        for task in list(made.tasks):
            task.cancel()
        await asyncio.gather(*made.tasks, return_exceptions=True)
        await listener.wait_closed()
