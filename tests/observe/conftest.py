"""What the tests of this room share: log lines as they were written, and logging as it was before."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from taskharbor.model import current_job
from taskharbor.observe import formatting


class Written:
    """The stream that logging writes to."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Every line as the JSON object that it must be."""
        return [json.loads(line) for line in self.text.splitlines()]

    def of(self, logger: str) -> list[dict[str, Any]]:
        return [line for line in self.objects if line["logger"] == logger]


Configure = Callable[..., Written]


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Configure]:
    """`configure_logging` onto a stream of the test's own; everything as before at the end."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    monkeypatch.setattr(formatting, "_installed", None)
    monkeypatch.setattr(formatting, "_configuration", None)
    monkeypatch.setattr(current_job, "_wanted", False)

    def configure(format: str = "json", level: str = "INFO") -> Written:
        written = Written()
        formatting.configure_logging(format, level, written.stream)
        return written

    yield configure
    root.setLevel(level)
    for handler in [each for each in root.handlers if each not in handlers]:
        root.removeHandler(handler)
