"""System checks, each with an id, what was expected, and how to mend it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def check_backend(alias: str) -> list[Any]:
    """What is wrong with the settings of TASKS[alias]."""
    return []


def check_backends(app_configs: Any = None, **_: Any) -> list[Any]:
    """What is wrong with TASKS as a whole."""
    return []


def check_stores(app_configs: Any = None, databases: Sequence[str] | None = None, **_: Any) -> list[Any]:
    """What is wrong with the stores in these databases: Django asks when a command works on a database."""
    return []
