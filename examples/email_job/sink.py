"""A mail server for one example: it receives what SMTP clients send, and delivers nothing.

It is busy for the first message, and refuses recipients of one domain, as real servers do now and then.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_bytes
from email.message import Message


class Sink:
    """The messages that arrived."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._busy = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: a reply to each line, until QUIT."""
        writer.write(b"220 sink\r\n")
        while line := (await reader.readline()).upper():
            reply = self._reply(line)
            if line.startswith(b"DATA") and reply.startswith(b"354"):
                writer.write(reply + b"\r\n")
                data = await reader.readuntil(b"\r\n.\r\n")
                self.messages.append(message_from_bytes(data.removesuffix(b".\r\n")))
                reply = b"250 received"
            writer.write(reply + b"\r\n")
            await writer.drain()
            if line.startswith(b"QUIT"):
                break
        writer.close()

    def _reply(self, line: bytes) -> bytes:
        if line.startswith(b"MAIL") and self._busy:
            self._busy = False
            return b"451 busy, try again later"
        if line.startswith(b"RCPT") and b"@NOWHERE.INVALID" in line:
            return b"550 no such domain"
        return b"354 go on" if line.startswith(b"DATA") else b"221 bye" if line.startswith(b"QUIT") else b"250 ok"


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[Sink, int]]:
    """A sink on a free port of this machine."""
    sink = Sink()
    server = await asyncio.start_server(sink.serve, "127.0.0.1", 0)
    async with server:
        yield sink, server.sockets[0].getsockname()[1]
