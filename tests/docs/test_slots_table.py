"""The table of slots in docs/schedules.md: it is what the code does."""

import pytest

from tests.docs import slots_table


def test_the_table_of_the_page_is_what_the_code_does():
    text = slots_table.PAGE.read_text(encoding="utf-8")
    assert slots_table.page(text) == text, "run `make docs`"


def test_a_page_without_its_place_for_the_table_is_an_error():
    with pytest.raises(ValueError, match=r"schedules\.md: expected a table between"):
        slots_table.page("# Schedules\n")
