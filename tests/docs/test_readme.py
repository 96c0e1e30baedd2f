"""The first page: its example is short and runs, and its commands exist."""

import re
from pathlib import Path

from tests.docs import pages
from tests.docs.pages import ROOT
from tests.docs.test_examples import run_script

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


def test_the_first_page_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 130
