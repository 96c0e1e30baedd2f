"""Both ways: every sentence in a list of docs/driver-contract.md has a case, and every case quotes a sentence of it."""

import re
from pathlib import Path

from taskharbor.conformance import all_cases

CONTRACT = Path(__file__).resolve().parents[2] / "docs" / "driver-contract.md"

# Costs cannot be seen through the contract's own calls without measuring time, which no case does.
WITHOUT_A_CASE = {
    "The cost does not grow with the backlog, nor with done, scheduled, blocked or dead jobs kept beside it.": (
        "measured by the benchmark, and on SQL stores seen in the plan of the statement"
    ),
    "Ten thousand groups in a queue cost no more than ten.": "measured by the benchmark",
    (
        "The cost of `due_schedules` does not grow with the rows that are not due, nor with those of other queues. A "
        "change costs the same beside ten thousand rows; reserve, enqueue and settle read no schedule."
    ): "counted on each store",
}


def sentences() -> list[str]:
    """The items of all lists, each on one line."""
    items: list[str] = []
    for line in CONTRACT.read_text(encoding="utf-8").splitlines():
        if line.startswith("- "):
            items.append(line[2:].strip())
        elif items and re.match(r"  \S", line):
            items[-1] += " " + line.strip()
    return items


def test_the_document_has_sentences():
    assert len(sentences()) > 100
    assert len(set(sentences())) == len(sentences()), "the same sentence stands twice"


def test_every_sentence_has_a_case():
    guarded = {sentence for case in all_cases() for sentence in case.sentences}
    assert [sentence for sentence in sentences() if sentence not in guarded and sentence not in WITHOUT_A_CASE] == []


def test_every_quoted_sentence_stands_in_the_document():
    known = set(sentences())
    quoted = [(case.title, sentence) for case in all_cases() for sentence in case.sentences]
    assert [(title, sentence) for title, sentence in quoted if sentence not in known] == []
    assert [case.title for case in all_cases() if not case.sentences] == []


def test_the_exceptions_are_few_and_needed():
    guarded = {sentence for case in all_cases() for sentence in case.sentences}
    assert set(WITHOUT_A_CASE) <= set(sentences())
    assert guarded.isdisjoint(WITHOUT_A_CASE)
