"""`taskharbor dashboard` ends connections on which a request never arrives, and serves the others."""

import asyncio
from typing import Any

import pytest
import uvicorn

from taskharbor.cli import dashboard_server
from taskharbor.cli.dashboard_server import listen

HALF = b"GET / HTTP/1.1\r\nHost: local"
REST = b"host\r\n\r\n"


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def test_a_connection_with_half_a_header_is_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dashboard_server, "HEADER_S", 0.2)

    async def story() -> None:
        listening = listen("127.0.0.1", 0)
        listening.listen()
        protocol = dashboard_server.with_header_deadline()
        config = uvicorn.Config(answer, http=protocol, lifespan="off", log_level="critical", timeout_keep_alive=60)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            port = listening.getsockname()[1]
            for sent in ([], [HALF], [HALF + REST, HALF]):  # nothing, half a header, half of a second one
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                for part in sent:
                    writer.write(part)
                    if part.endswith(REST):
                        assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"ok"), 30)
                assert await asyncio.wait_for(reader.read(), 30) == b""  # the server ended it
                writer.close()
            monkeypatch.setattr(dashboard_server, "HEADER_S", 60.0)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HALF)
            await writer.drain()
            writer.write(REST)
            assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"ok"), 30)
            writer.close()
        finally:
            server.should_exit = True
            await serving

    asyncio.run(story())
