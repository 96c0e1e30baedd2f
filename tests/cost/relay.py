"""A relay between a client and its server that counts what passes, for both ways of a client: awaited and blocking.

It runs in threads of its own, because a blocking call holds the event loop that it is made on.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CHUNK_BYTES = 65536


class Relay:
    """What has passed so far, and the port to connect to."""

    def __init__(self, port: int) -> None:
        self.target = ("127.0.0.1", port)
        self.sent = bytearray()
        """By clients. With several connections their bytes follow each other as they come."""
        self.received = bytearray()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def address(self, address: str) -> str:
        """The server's address, through here."""
        return address.replace(f"127.0.0.1:{self.target[1]}", f"127.0.0.1:{self.port}")

    def forget(self) -> None:
        """Start counting anew."""
        self.sent.clear()
        self.received.clear()

    def close(self) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client = self._listener.accept()[0]
                server = socket.create_connection(self.target)
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets += [client, server]
                threading.Thread(target=self._carry, args=(client, server, self.sent), daemon=True).start()
                threading.Thread(target=self._carry, args=(server, client, self.received), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, passed: bytearray) -> None:
        with suppress(OSError):  # one of the two is gone
            while data := source.recv(CHUNK_BYTES):
                passed += data  # before it goes on: with the reply the request is counted
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@contextmanager
def relay(port: int) -> Iterator[Relay]:
    """A relay before the server at `port`, for the time of a block."""
    made = Relay(port)
    try:
        yield made
    finally:
        made.close()
