"""docs/decisions.md: each decision has a number of its own, and a number that is named exists."""

import re

from tests.docs.pages import PAGES, ROOT

TEXT = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
NUMBERS = [int(number) for number in re.findall(r"^## (\d+)\. ", TEXT, re.MULTILINE)]


def test_numbers_are_used_once_and_in_order():
    assert list(range(1, len(NUMBERS) + 1)) == NUMBERS


def test_a_decision_that_is_named_exists():
    for page in PAGES:
        named = re.findall(r"\b(?:[Dd]ecisions?|Replaced by|Extended by) (\d+)", page.read_text(encoding="utf-8"))
        assert {int(number) for number in named} <= set(NUMBERS), page.name
