"""uvloop as the loop of a test."""

import asyncio
from collections.abc import Iterator

import pytest
import uvloop


@pytest.fixture
def uvloop_policy() -> Iterator[None]:
    """Each loop that the test makes is uvloop's, in whichever thread."""
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    yield
    asyncio.set_event_loop_policy(None)
