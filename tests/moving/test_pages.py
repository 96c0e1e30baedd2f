"""The pages for those who come from elsewhere show what the report really says."""

from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.pages import ROOT

HERE = Path(__file__).parent


@pytest.mark.parametrize("library", ["celery", "rq"])
def test_the_excerpt_is_of_the_report(library: str) -> None:
    text = (ROOT / "docs" / f"coming-from-{library}.md").read_text(encoding="utf-8")
    excerpt, *_ = [block.text for block in pages.blocks(text) if block.language == "text"]
    assert excerpt in (HERE / f"{library}_shop.txt").read_text(encoding="utf-8")
