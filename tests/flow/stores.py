"""The stores that the flow tests run on: every driver that has landed. A further one adds a line to STORES.

A line is a name and a function of a fresh folder that answers a DSN of an empty store, or None where it cannot run.
"""

import functools
from collections.abc import Callable
from pathlib import Path

from taskharbor import Harbor
from taskharbor.drivers import open_driver

MakeHarbor = Callable[..., Harbor]


@functools.cache
def _database() -> str:
    from tests.servers import postgres

    return postgres.shared().address(postgres.shared().database())


def _postgres(folder: Path) -> str | None:
    """One database for a process of tests, emptied for each of them."""
    from tests.servers import postgres

    try:
        postgres.empty(_database())
    except postgres.Missing:
        return None
    return _database()


STORES: dict[str, Callable[[Path], str | None]] = {
    "memory": lambda folder: "memory://",
    "sqlite": lambda folder: f"sqlite:///{folder / 'harbor.db'}",
    "postgresql": _postgres,
}
DURABLE = ("sqlite", "postgresql")


def landed(name: str) -> bool:
    """Whether a driver answers to that scheme."""
    try:
        open_driver(f"{name}:///nowhere" if name != "memory" else "memory://")
    except Exception:
        return False
    return True


NAMES = [name for name in STORES if landed(name)]
