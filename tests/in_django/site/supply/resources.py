"""What each worker process of the project opens once. $SITE_LIFESPAN names a file that says when."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from shop.models import Note


@dataclass
class Supplier:
    """Stands for a client of another service."""

    name: str
    pid: int


@asynccontextmanager
async def opened() -> AsyncIterator[Supplier]:
    note("opened")
    yield Supplier(Note._meta.app_label, os.getpid())  # models can be used: Django is set up
    note("closed")


def note(what: str) -> None:
    path = os.environ.get("SITE_LIFESPAN")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{what} {os.getpid()}\n")
