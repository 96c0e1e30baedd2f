"""docs/security.md names tests that exist: a promise without its test would be a sentence only."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "security.md"


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 30
    missing = [
        f"{file}::{name}" for file, name in named if f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_every_fuzzer_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    source = (ROOT / "tests" / "security" / "test_parsers.py").read_text(encoding="utf-8")
    fuzzers = re.findall(r"@given\(.*?\)\ndef (test_\w+)\(", source, re.DOTALL)
    shown = [name for name in fuzzers if f"::{name}`" in text]
    assert len(shown) >= 14, sorted(set(fuzzers) - set(shown))
