"""A port for a server that a test starts."""

import random
import socket


def free_port() -> int:
    """A port below the ephemeral range that is free, and whose cluster bus port (10,000 higher) is free as well."""
    while True:
        port = random.SystemRandom().randrange(11_000, 22_000)
        if _free(port) and _free(port + 10_000):
            return port


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
