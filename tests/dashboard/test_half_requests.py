"""`taskharbor dashboard` ends connections on which a request never arrives, and serves the others at once."""

import asyncio
import socket
from typing import Any

import pytest
import uvicorn

from taskharbor.cli import dashboard_server
from taskharbor.cli.dashboard_server import listen
from taskharbor.dashboard import app
from taskharbor.dashboard.sessions import Sessions
from taskharbor.ops.access import Access
from tests.dashboard.site import OWN, Site, visit

HALF = b"GET / HTTP/1.1\r\nHost: local"
REST = b"host\r\n\r\n"


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def test_small_answers_wait_for_no_delayed_ack():
    """Header and body are two packets: with Nagle's algorithm the second waits 40 ms."""

    async def story() -> int:
        listening = listen("127.0.0.1", 0)
        met = asyncio.get_running_loop().create_future()
        async with await asyncio.start_server(lambda _, writer: met.set_result(writer), sock=listening):
            _, mine = await asyncio.open_connection(*listening.getsockname())
            theirs = await met
            found: int = theirs.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            theirs.close()
            mine.close()
        return found

    assert asyncio.run(story()) == 1


def test_half_a_form_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    """Anyone may send a login: the rest of it may never arrive."""
    monkeypatch.setattr(app, "FORM_S", 0.05)
    parts = [{"type": "http.request", "body": b"token=", "more_body": True}]
    sent: list[Any] = []

    async def receive() -> Any:
        return parts.pop() if parts else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    async def look(site: Site) -> None:
        headers = [(name.encode(), value.encode()) for name, value in {**OWN, "host": "localhost:8420"}.items()]
        scope = {"type": "http", "method": "POST", "path": "/login", "query_string": b"", "headers": headers}
        await site.app({**scope, "scheme": "http", "root_path": ""}, receive, send)
        assert sent[0]["status"] == 400
        assert b"the form did not arrive within 0.05 s" in sent[1]["body"]

    visit(look, access=None, sessions=Sessions(lambda: 0.0, Access.admin("ada"), token="x" * 32), played=False)


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
