"""The project that docs/project-layout.md shows: its files written and its commands typed, as a reader would."""

from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.pages import ROOT
from tests.docs.terminal import Terminal


def test_the_project_of_the_page_works(tmp_path: Path):
    with Terminal(tmp_path) as terminal:
        for step in pages.steps(ROOT / "docs" / "project-layout.md"):
            terminal.follow(step)
        terminal.type('until taskharbor inspect "$id" --show-payload | grep -q "receipt for order 7"; do :; done')
        terminal.wait_for("tasks=shop.mail.receipt")
        endings = terminal.interrupt()
        assert [code for code, _ in endings] == [0, 0], endings


@pytest.mark.left_to("full")
def test_a_forgotten_module_is_what_the_page_says(tmp_path: Path):
    with Terminal(tmp_path) as terminal:
        for step in pages.steps(ROOT / "docs" / "project-layout.md"):
            if not step.beside:
                terminal.follow(step)
        said = terminal.type('taskharbor explain "$id" --app shop.queue:harbor')
        assert "shop.queue:harbor declares no task 'shop.mail.receipt'" in said
        assert "shop.mail.receipt" in terminal.type("taskharbor doctor --app shop.queue:harbor || true")
