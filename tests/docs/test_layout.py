"""The project that docs/project-layout.md shows, put together from the page and used as it says."""

import re
import subprocess
import sys
from pathlib import Path

from tests.cli.shell import Process, environment, program
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "project-layout.md"


def build(folder: Path) -> None:
    """The files of the page: each block stands under a line that names its file."""
    text = PAGE.read_text(encoding="utf-8")
    names = re.findall(r"^`(shop/\w+\.py)`", text, re.MULTILINE)
    code = [block.text for block in blocks(text) if block.language == "python"]
    (folder / "shop").mkdir()
    for name, block in zip(names, code, strict=True):
        (folder / name).write_text(block, encoding="utf-8")


def commands() -> list[list[str]]:
    """What the page has a reader type to start a worker."""
    text = PAGE.read_text(encoding="utf-8")
    shown = "\n".join(block.text for block in blocks(text) if block.language == "sh")
    return [line.split()[1:] for line in shown.splitlines() if line.startswith("taskharbor worker run")]


def test_the_project_of_the_page_works(tmp_path: Path):
    build(tmp_path)
    environ = environment(TASKHARBOR_DSN="sqlite:///shop.db")
    done = subprocess.run(
        [sys.executable, "-c", "from shop.web import on_paid; print(on_paid(7))"],
        cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    id = done.stdout.strip()
    asked = program("explain", id, "--app", "shop.queue:harbor", "--dsn", "sqlite:///shop.db", cwd=str(tmp_path))
    assert "shop.queue:harbor declares no task 'shop.mail.receipt'" in asked.out
    started = commands()
    assert len(started) == 2
    for command in started:
        with Process(*command, "--no-spare", "--dsn", "sqlite:///shop.db", cwd=str(tmp_path)) as process:
            process.wait_for("tasks=shop.mail.receipt")
            if command is started[0]:
                process.wait_for("event=JobSucceeded")
    found = program("inspect", id, "--show-payload", "--dsn", "sqlite:///shop.db", cwd=str(tmp_path))
    assert "receipt for order 7" in found.out
