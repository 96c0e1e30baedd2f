"""The first page: its example is short and runs, its commands work as they are typed, its figures were measured."""

import re
from pathlib import Path

from bench.stores.environments import PEERS, pinned
from tests.docs import pages
from tests.docs.pages import ROOT
from tests.docs.terminal import Terminal
from tests.docs.test_comparison import cells, tables
from tests.docs.test_examples import run_script
from tests.release.licences import PROJECT

README = ROOT / "README.md"


def test_the_first_example_has_fewer_than_thirty_lines() -> None:
    example = pages.examples(README)[0]
    assert "harbor" in example.text
    assert len(example.text.splitlines()) < 30


def test_the_first_example_runs_as_a_script_and_prints_what_is_shown(tmp_path: Path) -> None:
    example = pages.examples(README)[0]
    assert example.prints, "the example shows what it prints"
    script = tmp_path / "first.py"
    script.write_text(example.text, encoding="utf-8")
    done = run_script(script)
    assert (done.returncode, done.stdout) == (0, example.prints), done.stderr


def test_the_commands_are_targets_of_the_makefile() -> None:
    text = README.read_text(encoding="utf-8")
    inline = [code for _, line in pages.prose(text) for code in re.findall(r"`([^`]+)`", line)]
    shell = [line for block in pages.blocks(text) if block.language == "sh" for line in block.text.splitlines()]
    named = {found[1] for code in (*inline, *shell) if (found := re.match(r"make ([a-z]+)", code))}
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"demo", "test"} <= named
    assert named <= targets


def test_the_demo_needs_no_tools() -> None:
    """Who only wants to see it does not wait for hundreds of megabytes of linters and servers."""
    rules = dict(re.findall(r"^(\S+): ?(.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert rules["demo"].partition(" ##")[0] == "$(PACKAGE)"
    assert "$(STAMP)" not in rules["$(PACKAGE)"]
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ndemo:")[2].splitlines()[1]
    assert recipe.split() == ["@$(BIN)/taskharbor", "demo"]


def test_the_first_page_is_read_in_a_few_minutes() -> None:
    """Tables and commands are looked at, not read."""
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    words = [word for _, line in pages.prose(text) if not line.startswith("|") for word in line.split()]
    assert len(words) <= 600


def test_hello_world_has_eight_lines_of_code() -> None:
    lines = [line for line in pages.examples(README)[0].text.splitlines() if line.strip()]
    assert len(lines) <= 8


def test_the_shell_section_works_as_it_is_typed(tmp_path: Path) -> None:
    """Word by word, in an empty folder: nothing that a reader would have to guess."""
    with Terminal(tmp_path) as terminal:
        printed = [terminal.follow(step) for step in pages.steps(README)]
        commands = printed[-1]
        assert "tasks.send_email" in commands
        assert "ada@example.com" in commands
        # Both jobs end: one is done, the other dead, for the reason that the handler gave.
        ended = "taskharbor list --output json --state {}"
        for state in ("dlq", "done"):
            terminal.type(f"until {ended.format(state)} | grep -q tasks.send_email; do :; done")
        assert "ValueError: not an address" in terminal.type("taskharbor dlq list")
        ((code, log),) = terminal.interrupt()
        assert code == 0, log
        assert "Traceback" not in log
    assert [file.name for file in tmp_path.glob("*.db")] == ["harbor.db"], "one store, not two"


def test_the_figures_are_those_of_the_benchmarks_page() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    header, *rows = [row for row in tables(README) if row[0] in ("jobs/s", "Redis", "Postgres")]
    assert [row[0] for row in rows] == ["Redis", "Postgres"]
    for store, *figures in rows:
        begin = page.index(f"<!-- figures of {store.lower()}: begin -->")
        worker = page[begin : page.index("### Enqueueing one at a time", begin)]
        measured = {row[0].partition(",")[0]: row[1] for row in reversed(cells(worker))}  # the first row of each
        for subject, figure in zip(header[1:], figures, strict=True):
            assert figure in ("", measured.get(subject.lower())), f"{subject} on {store}"


def test_the_versions_that_are_compared_are_those_that_were_measured() -> None:
    (header,) = [row for row in tables(README) if "TaskHarbor 0.1" in row]
    compared = dict(column.split() for column in header[1:])
    measured = {name for name in compared if name.lower() in PEERS}
    assert {"Celery", "RQ", "Dramatiq", "Procrastinate", "BullMQ"} <= measured
    for name in measured:
        assert pinned(name.lower()).startswith(f"{compared[name]}.")
    assert PROJECT["version"].startswith(f"{compared['TaskHarbor']}.")
