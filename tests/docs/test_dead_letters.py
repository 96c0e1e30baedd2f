"""The triage of docs/dead-letters.md: its files written, its commands typed, and what they print compared."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.pages import ROOT
from tests.docs.terminal import Terminal

PAGE = ROOT / "docs" / "dead-letters.md"
LOOKS_LIKE = "<!-- looks like -->"

_CHANGING = (
    (r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "ID"),
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z", "MOMENT"),
    (r"\b(\d+m )?[\d.]+(ms|s|m|h)( ago\b)?", "TIME"),
    (r"\b[\w.-]+:\d+:[0-9a-f]{8}\b", "WORKER"),
    (r"\b[0-9a-f]{16}\b", "FINGERPRINT"),
    (r" +", " "),
)


def steady(text: str) -> list[str]:
    """A text without what differs from run to run: ids, moments, durations and the widths of columns."""
    for pattern, word in _CHANGING:
        text = re.sub(pattern, word, text)
    return [line.strip() for line in text.splitlines()]


@pytest.mark.left_to("full")
def test_the_triage_works_as_it_is_typed(tmp_path: Path):
    blocks = pages.blocks(PAGE.read_text(encoding="utf-8"))
    shown = {
        block.line: following.text
        for block, following in pairwise(blocks)
        if block.language == "sh" and following.comment == LOOKS_LIKE
    }
    assert len(shown) == 7
    with Terminal(tmp_path) as terminal:
        for step in pages.steps(PAGE):
            printed = terminal.follow(step)
            if step.beside:
                terminal.wait_for("WorkerStarted")
            if step.line in shown:
                assert steady(printed) == steady(shown[step.line]), printed
        ((code, log),) = terminal.interrupt()
        assert code == 0, log
