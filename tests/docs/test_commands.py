"""Shell blocks: each is typed by a test, or says why not; the examples of the command line's own page parse."""

import re
import shlex
from pathlib import Path

import click
import pytest

from taskharbor.cli.lazy import DefaultGroup
from taskharbor.cli.main import main
from tests.docs import pages, test_dead_letters, test_frameworks, test_layout, test_quickstart, test_readme
from tests.docs.pages import PAGES, ROOT, name_of

# A page whose files are written and whose commands are typed, and the test that does it.
FOLLOWED = {
    "README.md": test_readme.test_the_shell_section_works_as_it_is_typed,
    "docs/dead-letters.md": test_dead_letters.test_the_triage_works_as_it_is_typed,
    "docs/django.md": test_frameworks.test_the_django_page_works_as_it_is_written,
    "docs/fastapi.md": test_frameworks.test_the_fastapi_page_works_as_it_is_written,
    "docs/quickstart.md": test_quickstart.test_the_quickstart_works_as_it_is_typed,
    "docs/project-layout.md": test_layout.test_the_project_of_the_page_works,
}


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "cli.md"], ids=name_of)
def test_every_command_is_typed_by_a_test_or_says_why_not(page: Path) -> None:
    shown = [block for block in pages.blocks(page.read_text(encoding="utf-8")) if block.language == "sh"]
    open_ones = [block.line for block in shown if not pages._NOT_RUN.fullmatch(block.comment)]
    typed = [step.line for step in pages.steps(page) if not step.file]
    assert open_ones == typed, "write <!-- not run: reason --> before it, or let the page write the files it needs"
    assert bool(pages.steps(page)) == (name_of(page) in FOLLOWED), "follow this page in a test, and name that here"


SHOWN = [
    line
    for block in pages.blocks((ROOT / "docs" / "cli.md").read_text(encoding="utf-8"))
    if block.language == "sh"
    for line in block.text.replace("\\\n", " ").splitlines()
    if "taskharbor" in line
]


@pytest.mark.parametrize("line", SHOWN)
def test_the_examples_of_the_command_line_parse(line: str) -> None:
    words = shlex.split(re.split(r"[|>)]", line.partition("taskharbor ")[2])[0], comments=True)
    command: click.Command = main
    context = click.Context(main, info_name="taskharbor")
    while isinstance(command, click.Group):
        name, *rest = words or [command.default if isinstance(command, DefaultGroup) else ""]
        found = command.get_command(context, name)
        assert found is not None, name
        command, words = found, rest
    command.make_context("taskharbor", words)
