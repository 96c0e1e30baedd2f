"""What the documents show is run, what they link to exists, and so do the files they name."""

import contextlib
import doctest
import importlib
import io
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.pages import PAGES, ROOT, name_of
from tests.in_django.environment import OF_A_PROJECT
from tests.servers import redis as servers

SOURCE = ROOT / "src"
MODULES = sorted(
    {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        for path in (SOURCE / "taskharbor").rglob("*.py")
        if path.name != "__main__.py" and ">>> " in path.read_text(encoding="utf-8")
    }
    - OF_A_PROJECT
)
EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if (path / "README.md").exists())
COMMAND = "2. `python app.py` in this folder: "
SCRIPTS = [path for path in EXAMPLES if COMMAND in (path / "README.md").read_text(encoding="utf-8")]
SAID = {
    "csv_import": "the import has succeeded: 1200 lines, 1200 orders in the shop",
    "email_job": "the mail server received: 'Welcome, Ada' for ada@example.com",
    "nightly_report": "edited without a deployment: 0 6 * * MON-FRI",
    "omniq_producer": "producer: receipt {'order': 3, 'paid': 99}",
    "thumbnails": "the sheet has 640 x 360 pixels",
}
"""What each example says of how it ended."""


def run_script(path: Path) -> subprocess.CompletedProcess[str]:
    """A script as a user runs it, but with every warning an error."""
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    return subprocess.run(
        [sys.executable, str(path)], cwd=path.parent, env=environment, capture_output=True, text=True, timeout=120
    )


def needs_redis(page: Path) -> bool:
    """Whether the examples of a page connect to a server."""
    return "REDIS_URL" in page.read_text(encoding="utf-8")


# Pages


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_python_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # an example may write a file
    if needs_redis(page):
        servers.shared().empty()
        monkeypatch.setenv("REDIS_URL", servers.shared().url)
    module = types.ModuleType(page.stem.replace("-", "_") + "_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for example in pages.examples(page):
        # Blank lines in front: a traceback names the line of the page.
        code = compile("\n" * example.line + example.text, str(page), "exec", dont_inherit=True)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, module.__dict__)
        if example.prints is not None:
            assert printed.getvalue() == example.prints, f"{name_of(page)}, line {example.line}"


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any("\ndef test_" in example.text for example in pages.examples(page))],
    ids=name_of,
)
def test_the_tests_that_a_page_shows_pass(page: Path, tmp_path: Path) -> None:
    # The run above only defines them. One file, as a reader would paste them.
    shown = [example.text for example in pages.examples(page)]
    expected = sum(text.count("\ndef test_") + text.startswith("def test_") for text in shown)
    (tmp_path / "test_shown.py").write_text("\n".join(shown), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_shown.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{expected} passed" in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_python_hides_from_being_run(page: Path) -> None:
    for block in pages.blocks(page.read_text(encoding="utf-8")):
        where = f"{name_of(page)}, line {block.line}"
        assert block.language in {"python", "pycon", "text", "sh", "toml", ""}, where
        if block.language != "python":
            code = [line for line in block.text.splitlines() if line.startswith(("import ", "from ", "def ", "@"))]
            assert not code, f"{where}: python in a block that is not marked so: {code}"
        assert "not run" not in block.comment or pages._NOT_RUN.fullmatch(block.comment), (
            f"{where}: write <!-- not run: reason -->"
        )


@pytest.mark.parametrize("page", sorted({*PAGES, *ROOT.glob("*.md"), *ROOT.glob("examples/**/*.md")}), ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    dead = []
    for line, target in pages.links(text):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, fragment = target.partition("#")
        goal = (page.parent / path).resolve() if path else page
        if not goal.exists():
            dead.append(f"line {line}: {target}: no such file")
        elif fragment and fragment not in pages.anchors(goal.read_text(encoding="utf-8")):
            dead.append(f"line {line}: {target}: no such heading")
    assert not dead, f"{name_of(page)}: {dead}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_named_in_the_prose_exist(page: Path) -> None:
    named = pages.paths(page.read_text(encoding="utf-8"))
    missing = [f"line {line}: {path}" for line, path in named if not (ROOT / path).exists()]
    assert not missing, f"{name_of(page)}: {missing}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_page_is_in_the_index(page: Path) -> None:
    folder = page.parent if page.parent != ROOT and page.name != "README.md" else ROOT / "docs"
    index = folder / "README.md"
    targets = {(index.parent / target).resolve() for _, target in pages.links(index.read_text(encoding="utf-8"))}
    assert page == index or page in targets, f"{name_of(page)} is not linked from {name_of(index)}"


# Examples


@pytest.mark.parametrize("folder", SCRIPTS, ids=lambda folder: folder.name)
def test_an_example_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if needs_redis(folder / "app.py"):
        servers.shared().empty()
        monkeypatch.setenv("REDIS_URL", servers.shared().url)
    done = run_script(folder / "app.py")
    assert done.returncode == 0, done.stderr
    assert SAID[folder.name] in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("folder", SCRIPTS, ids=lambda folder: folder.name)
def test_an_example_has_five_lines_of_readme_and_one_command(folder: Path) -> None:
    title, blank, *lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    assert title.startswith("# ")
    assert blank == ""
    assert [line[:3] for line in lines] == ["1. ", "2. ", "3. ", "4. ", "5. "]
    assert lines[0].startswith("1. `pip install")
    assert lines[1].startswith(COMMAND)


def test_no_example_hides_from_being_run() -> None:
    assert {path.parent for path in (ROOT / "examples").glob("*/app.py")} <= {*EXAMPLES}
    index = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert all(f"({path.name}/README.md)" in index for path in SCRIPTS), "name it in examples/README.md"
    assert not list((ROOT / "examples").glob("*.py")), "an example is a folder with a README"
    others = {path for path in Path(__file__).parent.parent.rglob("test_*.py") if path.name != Path(__file__).name}
    tested = "\n".join(path.read_text(encoding="utf-8") for path in others)
    assert all(path.name in tested for path in {*EXAMPLES} - {*SCRIPTS}), "another command: in a test of its own"


# Doctests


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_a_module_run(name: str) -> None:
    module = importlib.import_module(name)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert not failed, printed.getvalue()


# The reader of the pages itself: what it misses, nobody checks

PAGE = """
# A page

Text with [a link](other.md#part), `docs/missing.md` and `code`.

```python
print("one")
```
<!-- prints -->
```text
one
```

<!-- not run: it needs a server -->
```python
serve()
```

## A `part`, twice

- in a list:

  ```python
  x = 1
  ```

```sh
[no](link.md)
```

## A part, twice
"""


def test_the_reader_finds_blocks_output_links_paths_and_headings(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    first, second = pages.examples(page)
    assert (first.text, first.prints, first.line) == ('print("one")\n', "one\n", 6)
    assert (second.text, second.prints) == ("x = 1\n", None)
    assert [block.language for block in pages.blocks(PAGE)] == ["python", "text", "python", "python", "sh"]
    assert [target for _, target in pages.links(PAGE)] == ["other.md#part"]
    assert [path for _, path in pages.paths(PAGE)] == ["docs/missing.md"]
    assert pages.anchors(PAGE) == {"a-page", "a-part-twice", "a-part-twice-1"}


def test_the_reader_refuses_a_fence_that_is_never_closed() -> None:
    with pytest.raises(ValueError, match="line 1"):
        pages.blocks("```python\nx = 1\n")
