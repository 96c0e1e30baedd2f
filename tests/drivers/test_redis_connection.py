"""Connections at work, on a server that replies what a test wants: what happens to a call never hurts the next."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.exceptions import ConnectionError, NoScriptError, ReadOnlyError, ResponseError

from taskharbor.drivers.redis.options import parse
from taskharbor.drivers.redis.pool import RedisPool
from taskharbor.drivers.redis.resp import packed

pytestmark = pytest.mark.lane("unit")

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def command(reader: asyncio.StreamReader) -> list[bytes]:
    size = int((await reader.readuntil(b"\r\n"))[1:])
    return [(await reader.readexactly(int((await reader.readuntil(b"\r\n"))[1:]) + 2))[:-2] for _ in range(size)]


def with_server(talk: Talk, scenario: Callable[[RedisPool], Awaitable[Any]], timeout: str = "30s") -> Any:
    """Run a scenario with a pool on a server that does `talk` on each connection, once the greetings are over."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await command(reader)  # CLIENT SETNAME
            writer.write(b"+OK\r\n")
            await talk(reader, writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async def live() -> Any:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        pool = RedisPool(parse(f"redis://127.0.0.1:{port}/0?timeout={timeout}"), ("127.0.0.1", port))
        try:
            return await asyncio.wait_for(scenario(pool), 60)
        finally:
            await pool.close()
            server.close()
            await server.wait_closed()

    return asyncio.run(live())


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        _, *words = await command(reader)
        writer.write(packed(words))


def test_replies_that_come_in_pieces_and_several_at_once() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await command(reader)
        for piece in (b"*2\r\n$3\r", b"\nabc\r\n:", b"7\r\n"):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        await command(reader)
        await command(reader)
        writer.write(b"+A\r\n$-1\r\n")
        await command(reader)

    async def scenario(pool: RedisPool) -> Any:
        return await pool.ask("x"), await pool.call(("x",), ("y", b"\xff", 1))

    assert with_server(talk, scenario) == ([b"abc", 7], [b"A", None])


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"-NOSCRIPT No matching script\r\n", NoScriptError),
        (b"-READONLY You can't write\r\n", ReadOnlyError),
        (b"-ERR what\r\n", ResponseError),
    ],
)
def test_an_error_of_the_server_leaves_the_connection_open(line: bytes, kind: type[Exception]) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await command(reader)
        writer.write(line)
        await command(reader)
        writer.write(b":1\r\n")
        await command(reader)

    async def scenario(pool: RedisPool) -> Any:
        with pytest.raises(kind):
            await pool.ask("x")
        return await pool.ask("y")

    assert with_server(talk, scenario) == 1


def test_the_reply_to_a_cancelled_call_never_reaches_the_next() -> None:
    heard = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        words = await command(reader)
        if words == [b"slow"]:
            heard.set()
            await asyncio.sleep(0.05)
        writer.write(packed(words))
        await command(reader)

    async def scenario(pool: RedisPool) -> Any:
        slow = asyncio.create_task(pool.ask("slow"))
        await heard.wait()
        slow.cancel()
        await asyncio.wait([slow])
        return await pool.ask("quick")

    assert with_server(talk, scenario) == [b"quick"]


def test_a_server_that_does_not_answer_and_one_that_goes() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def gone(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await command(reader)

    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await command(reader)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()

    async def ask(pool: RedisPool) -> Any:
        return await pool.ask("x")

    with pytest.raises(TimeoutError, match=r"no answer within 0\.1 s"):
        with_server(silent, ask, timeout="100ms")
    with pytest.raises(ConnectionError, match="the server closed the connection"):
        with_server(gone, ask)
    with pytest.raises(ConnectionError, match="not a reply of Redis"):
        with_server(nonsense, ask)


def test_a_connection_that_was_closed_while_idle_is_not_used_again() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(packed(await command(reader)))

    async def scenario(pool: RedisPool) -> Any:
        first = await pool.ask("a")
        while not all(wire.closed for wire in pool._idle):
            await asyncio.sleep(0.01)
        return first, await pool.ask("b")

    assert with_server(talk, scenario) == ([b"a"], [b"b"])


def test_calls_share_connections() -> None:
    async def scenario(pool: RedisPool) -> Any:
        for number in range(20):
            assert await pool.ask("x", number) == [b"%d" % number]
        return len(pool._idle)

    assert with_server(echo, scenario) == 1
