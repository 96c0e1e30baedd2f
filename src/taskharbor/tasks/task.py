"""Tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Task:
    """A declared task (its calls come with the next commit)."""

    function: Callable[..., Any]
