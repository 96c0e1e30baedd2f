"""The documentation site: `python -m tests.docs.site` builds it into site/, offline, and checks every link of it.

    docs/*.md, docs/reference/, *.md ──stage──► .site/ ──Sphinx──► site/ ──check──► done

Staging leaves the pages as they are on GitHub and makes of them what a site needs: docs/README.md is its home, and the
headings and tables there are its navigation. Links between pages point to where these are staged. Comments for the
tests are left out.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.docs import pages
from tests.docs.pages import ROOT

STAGED = ROOT / ".site"
BUILT = ROOT / "site"
HOME = ROOT / "docs" / "README.md"

_LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\])\(([^)\s]+)\)")
_COMMENT = re.compile(r"^ *```.*?^ *```$|(?P<comment>^ *<!--.*?--> *\n)|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_SECTION = re.compile(r"^## (.+)$")


def sources() -> dict[Path, str]:
    """Every page, and where it is staged."""
    found = {page: page.relative_to(ROOT / "docs").as_posix() for page in sorted((ROOT / "docs").glob("*.md"))}
    found |= {page: f"reference/{page.name}" for page in sorted((ROOT / "docs" / "reference").glob("*.md"))}
    found = {page: name.replace("README.md", "index.md") for page, name in found.items()}
    found[ROOT / "examples" / "README.md"] = "project/examples.md"
    return found | {page: f"project/{page.name.lower()}" for page in sorted(ROOT.glob("*.md"))}


def navigation() -> Iterator[tuple[str, dict[Path, str]]]:
    """The sections of the home page, and the pages that each links to, in order, with the words of their links."""
    section: str = ""
    linked: dict[Path, str] = {}
    for _, line in pages.prose(HOME.read_text(encoding="utf-8")):
        if heading := _SECTION.match(line):
            if linked:
                yield section, linked
            section, linked = heading[1], {}
        elif section and line.startswith("| [") and (link := _LINK.search(line)):
            linked[(HOME.parent / link[2]).resolve()] = link[1].strip("[]")
    if linked:
        yield section, linked


def staged(page: Path, names: dict[Path, str]) -> str:
    """The text of a page as the site has it."""
    found, inside = [], ""
    for line in page.read_text(encoding="utf-8").splitlines():
        fence = re.match(r" *(```+|~~~+)", line)
        if fence and not inside:
            inside = fence[1]
        elif inside:
            inside = "" if line.strip() == inside else inside
        else:
            line = _LINK.sub(lambda link: _moved(link, page, names), line)
        found.append(line)
    text = _without_comments("\n".join(found) + "\n")
    if page == HOME:
        return text + "".join(_toctree(title, linked, names) for title, linked in navigation())
    if page.name == "README.md" and page.parent.name == "reference":
        inner = {(page.parent / link[2]).resolve(): link[1].strip("[]") for link in _LINK.finditer(text)}
        here = {each: words for each, words in inner.items() if each in names and words[0] != "`"}
        return text + _toctree("", here, names)
    return text


def _without_comments(text: str) -> str:
    """The text without HTML comments, except in code."""
    return _COMMENT.sub(lambda found: "" if found["comment"] else found[0], text)


def _moved(link: re.Match[str], page: Path, names: dict[Path, str]) -> str:
    path, mark, fragment = link[2].partition("#")
    if "://" in link[2] or not path or link[2].startswith("mailto:"):
        return link[0]
    goal = (page.parent / path).resolve()
    here = (STAGED / names[page]).parent
    if goal in names:
        return f"{link[1]}({os.path.relpath(STAGED / names[goal], here)}{mark}{fragment})"
    if goal.suffix in (".png", ".svg") and goal.exists():
        copy = STAGED / "pictures" / goal.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(goal, copy)
        return f"{link[1]}({os.path.relpath(copy, here)})"
    if not goal.exists():
        raise ValueError(f"{pages.name_of(page)}: {link[2]}: no such file")
    return link[1].strip("[]")  # a file of the repository: its name is enough


def _toctree(title: str, linked: dict[Path, str], names: dict[Path, str]) -> str:
    entries = "\n".join(f"{words} </{names[page].removesuffix('.md')}>" for page, words in linked.items())
    caption = f":caption: {title}\n" if title else ""
    return f"\n```{{toctree}}\n:hidden:\n:maxdepth: 2\n{caption}\n{entries}\n```\n"


def stage() -> None:
    """Write every page, and what the theme needs, into the folder that Sphinx reads."""
    shutil.rmtree(STAGED, ignore_errors=True)
    names = sources()
    shown = {HOME, *(page for _, linked in navigation() for page in linked), *(ROOT / "docs").rglob("*.md")}
    for page, name in names.items():
        if page in shown or name.startswith("project/"):
            file = STAGED / name
            file.parent.mkdir(parents=True, exist_ok=True)
            orphan = "" if page in shown else "---\norphan: true\n---\n\n"
            file.write_text(orphan + staged(page, names), encoding="utf-8")
    shutil.copytree(ROOT / "docs" / "site", STAGED / "site")


def build() -> None:
    """Let Sphinx build the staged pages; a warning is an error."""
    shutil.rmtree(BUILT, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-j", "auto", "-b", "html"]
    command += ["-c", str(STAGED / "site"), "-d", str(STAGED / "doctrees"), str(STAGED), str(BUILT)]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        sys.exit("site: Sphinx found mistakes: see above")
    for left_over in (".buildinfo", "objects.inv"):
        (BUILT / left_over).unlink(missing_ok=True)


class _Page(HTMLParser):
    """The ids of a page, its links, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("link", "script", "img", "source", "iframe"):
            self.loads += [given[name] for name in ("href", "src", "srcset") if name in given]


def mistakes(folder: Path) -> list[str]:
    """Links that lead nowhere, and what is loaded from elsewhere."""
    read = {file: _Page(file.read_text(encoding="utf-8")) for file in sorted(folder.rglob("*.html"))}
    found = []
    for file, page in read.items():
        where = file.relative_to(folder).as_posix()
        for target in page.links + page.loads:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                found += (
                    [f"{where}: loads {target} from elsewhere"]
                    if target in page.loads and parts.scheme != "data"
                    else []
                )
                continue
            goal = file if not parts.path else (file.parent / unquote(parts.path)).resolve()
            if not goal.is_file():
                found.append(f"{where}: {target}: no such file")
            elif parts.fragment and goal in read and unquote(parts.fragment) not in read[goal].ids:
                found.append(f"{where}: {target}: no such anchor")
    for sheet in sorted(folder.rglob("*.css")):
        outside = re.findall(r"url\(['\"]?(https?:[^)'\"]+)|@import ['\"](https?:[^'\"]+)", sheet.read_text("utf-8"))
        found += [f"{sheet.relative_to(folder)}: loads {''.join(each)}" for each in outside]
    return found


def main() -> None:
    stage()
    build()
    wrong = mistakes(BUILT)
    if wrong:
        sys.exit("site: " + "\n      ".join(wrong))
    count = sum(1 for _ in BUILT.rglob("*.html"))
    print(f"site: {count} pages in {BUILT.relative_to(ROOT)}/, every link leads somewhere; open site/index.html")


if __name__ == "__main__":
    main()
