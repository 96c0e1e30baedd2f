"""The stores that the flow tests run on: every driver that has landed. A further one adds a line to STORES.

A line is a name and a function of a fresh folder that answers a DSN of an empty store, or None where it cannot run.
"""

from collections.abc import Callable
from pathlib import Path

from taskharbor.drivers import open_driver

STORES: dict[str, Callable[[Path], str | None]] = {
    "memory": lambda folder: "memory://",
    "sqlite": lambda folder: f"sqlite:///{folder / 'harbor.db'}",
}
DURABLE = ("sqlite",)


def landed(name: str) -> bool:
    """Whether a driver answers to that scheme."""
    try:
        open_driver(f"{name}:///nowhere" if name != "memory" else "memory://")
    except Exception:
        return False
    return True


NAMES = [name for name in STORES if landed(name)]
