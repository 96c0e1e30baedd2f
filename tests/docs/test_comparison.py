"""The comparison with other queues: each cell of the README has a source in docs/comparison.md, and says the same."""

import re
from pathlib import Path

from tests.docs import pages
from tests.docs.pages import ROOT

README = ROOT / "README.md"
SOURCES = ROOT / "docs" / "comparison.md"


def cells(text: str) -> list[list[str]]:
    """The cells of all rows of all tables."""
    rows = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def tables(path: Path) -> list[list[str]]:
    return cells(path.read_text(encoding="utf-8"))


def sources() -> dict[str, dict[str, list[str]]]:
    """Project and version → question → answer, where it was read, what it says there."""
    found: dict[str, dict[str, list[str]]] = {}
    for line in SOURCES.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            found[line.removeprefix("## ")] = {}
        elif line.startswith("|") and "---" not in line and not line.startswith("| question"):
            question, *rest = (cell.strip() for cell in line.strip("|").split("|"))
            found[list(found)[-1]][question] = rest
    return found


def test_every_cell_of_the_readme_is_what_its_source_says() -> None:
    shown = tables(README)
    (at,) = [number for number, row in enumerate(shown) if row[0] == "" and row[1].startswith("TaskHarbor")]
    header, *rows = shown[at:]
    rows = rows[: next(number for number, row in enumerate(rows) if len(row) != len(header))]
    read = sources()
    assert [name.split()[0] for name in read] == [name.split()[0] for name in header[1:]]
    for column, (shown_as, project) in enumerate(zip(header[1:], read, strict=True), start=1):
        assert project == shown_as or project.startswith(f"{shown_as}.")
        for question, *cells in rows:
            assert read[project][question][0] == cells[column - 1], f"{project}: {question}"


def test_every_answer_names_where_it_was_read() -> None:
    questions = list(next(iter(sources().values())))
    for project, answers in sources().items():
        assert list(answers) == questions, project
        for question, (answer, place, _) in answers.items():
            assert answer, f"{project}: {question}"
            assert place, f"{project}: {question}"


def test_the_date_of_reading_is_the_same_on_both_pages() -> None:
    (read,) = re.findall(r"\*\*(\d{4}-\d\d-\d\d)\*\*", SOURCES.read_text(encoding="utf-8"))
    (shown,) = re.findall(r"read on (\d{4}-\d\d-\d\d)", README.read_text(encoding="utf-8"))
    assert read == shown


def test_links_of_the_sources_are_whole() -> None:
    for _, target in pages.links(SOURCES.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (SOURCES.parent / target.partition("#")[0]).exists(), target
