"""The site, without building it: what is staged, where links lead, and that the check of the built one finds mistakes.

`make docs` builds it with Sphinx, which only it installs.
"""

import re
from pathlib import Path

import pytest

from tests.docs import pages, site
from tests.docs.pages import ROOT, name_of


def test_every_page_is_in_the_navigation() -> None:
    linked = {page for _, found in site.navigation() for page in found}
    expected = {page for page in (ROOT / "docs").glob("*.md") if page != site.HOME}
    assert expected <= linked, "a page has a row in a table of docs/README.md"
    assert ROOT / "CONTRIBUTING.md" in linked


def test_each_section_of_the_navigation_has_pages() -> None:
    sections = [title for title, _ in site.navigation()]
    assert sections[0] == "Start"
    assert len(sections) == len(set(sections)) > 4


@pytest.mark.parametrize("page", site.sources(), ids=name_of)
def test_a_staged_page_shows_no_comment_and_leads_to_staged_pages(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "STAGED", tmp_path)
    names = site.sources()
    text = site.staged(page, names)
    outside = re.sub(r"`[^`\n]*`", "", "\n".join(line for _, line in pages.prose(text)))
    assert "<!--" not in outside
    assert "{toctree}" not in outside
    for _, target in pages.links(text):
        path = target.partition("#")[0]
        if path and "://" not in target and not target.startswith("mailto:"):
            goal = ((tmp_path / names[page]).parent / path).resolve()
            assert goal in {(tmp_path / name).resolve() for name in names.values()}, target


def test_a_link_that_leads_nowhere_is_not_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "STAGED", tmp_path / "staged")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    (tmp_path / "c.txt").touch()
    page.write_text("<!-- hidden -->\n[b](page.md#b) and [c](c.txt)\n", encoding="utf-8")
    assert site.staged(page, {page: "page.md"}) == "[b](page.md#b) and c\n"
    page.write_text("[gone](gone.md)", encoding="utf-8")
    with pytest.raises(ValueError, match=r"page\.md: gone\.md: no such file"):
        site.staged(page, {page: "page.md"})


GOOD = '<h1 id="top">A</h1> <a href="#top">up</a> <a href="b.html#part">b</a> <a href="https://example.com">out</a>'


@pytest.mark.parametrize(
    ("body", "mistake"),
    [
        (GOOD, ""),
        ('<a href="c.html">c</a>', "c.html: no such file"),
        ('<a href="b.html#nowhere">b</a>', "b.html#nowhere: no such anchor"),
        ('<a href="#nowhere">here</a>', "#nowhere: no such anchor"),
        ('<script src="https://cdn.example.com/x.js"></script>', "loads https://cdn.example.com/x.js from elsewhere"),
        ('<link rel="stylesheet" href="//fonts.example.com/x.css">', "from elsewhere"),
        ('<img src="gone.png">', "gone.png: no such file"),
    ],
)
def test_the_check_of_the_built_site_notices(body: str, mistake: str, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(body, encoding="utf-8")
    (tmp_path / "b.html").write_text('<h2 id="part">B</h2>', encoding="utf-8")
    found = site.mistakes(tmp_path)
    assert bool(found) == bool(mistake)
    assert mistake in "".join(found)


def test_the_check_notices_fonts_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("@font-face { src: url(https://fonts.example.com/x.woff2) }", encoding="utf-8")
    assert site.mistakes(tmp_path) == ["a.css: loads https://fonts.example.com/x.woff2"]
