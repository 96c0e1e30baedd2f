"""What every worker process and child enters before its first job: Django, and the project's own lifespan.

A child process of a worker finds the function by its name, and enters it before it imports the module of a task.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from taskharbor.django.setup import set_up_once


@asynccontextmanager
async def lifespan_of(alias: str) -> AsyncIterator[Any]:
    """The lifespan of the harbor behind TASKS[alias]. OPTIONS["lifespan"] names the project's own."""
    set_up_once()
    from taskharbor.django.harbors import harbor_of

    own = harbor_of(alias).project_lifespan()
    if own is None:
        yield None
        return
    async with own() as given:
        yield given
