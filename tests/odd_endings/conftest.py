"""For all odd endings."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def garbage_is_collected_afterwards() -> Iterator[None]:
    """Some of them nest until Python's stack is full. What is collected there by chance cannot even run its finalizer,
    and pytest would blame the test for it."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()
