"""docs/quickstart.md, followed by a stranger: an empty folder, its files, its commands, in its order, on its stores."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.pages import ROOT, Step
from tests.docs.terminal import Terminal
from tests.docs.test_dead_letters import LOOKS_LIKE, steady
from tests.servers import postgres, redis

PAGE = ROOT / "docs" / "quickstart.md"
STEPS = pages.steps(PAGE)
SHOWN = {
    block.line: following.text
    for block, following in pairwise(pages.blocks(PAGE.read_text(encoding="utf-8")))
    if block.language == "sh" and following.comment == LOOKS_LIKE
}
ADDRESSES = {"postgresql": "postgresql://localhost/shop", "redis": "redis://localhost:6379/0"}
WARNINGS = ("fsync is off", "appendonly is no")  # of the tests' own servers, which do not wait for the disk
OTHER = [step for step in STEPS if any(address in step.text for address in ADDRESSES.values())]


def followed(terminal: Terminal, step: Step) -> str:
    printed = terminal.follow(step)
    if step.beside:
        terminal.wait_for("WorkerStarted" if "worker run" in step.text else "http://", newest=True)
    if step.line in SHOWN:
        said = [line for line in steady(printed) if not any(words in line for words in WARNINGS)]
        assert said == steady(SHOWN[step.line]), printed
    return printed


def test_the_quickstart_works_as_it_is_typed(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        for step in STEPS:
            if step not in OTHER:  # any free port: another program may listen on the usual one
                printed = followed(
                    terminal, step._replace(text=step.text.replace("dashboard --", "dashboard --port 0 --"))
                )
                if "dlq requeue" in step.text:
                    before, after = printed.split("requeue", 1)
                    assert "the bank is closed" in before
                    assert "the bank is closed" not in after
                elif "schedule list" in step.text:
                    assert "Europe/Zurich" in printed
        endings = terminal.interrupt()
    assert [code for code, _ in endings] == [0, 0], endings
    assert "signal 9" in endings[1][1] or "SIGKILL" in endings[1][1], "the step killed its worker process"
    assert [file.name for file in tmp_path.glob("*.db")] == ["shop.db"], "one store, not two"


def test_every_command_for_another_store_is_known() -> None:
    assert [step.beside for step in OTHER] == [True, False] * len(ADDRESSES)


@pytest.mark.left_to("full")
def test_the_quickstart_works_on_postgres_and_redis(tmp_path: Path) -> None:
    redis.shared().empty()
    server = postgres.shared()
    real = {"postgresql": server.address(server.database()), "redis": redis.shared().url}
    with Terminal(tmp_path) as terminal:
        for step in STEPS:
            text = step.text
            for name, address in ADDRESSES.items():
                text = text.replace(address, real[name])
            if step.file or step in OTHER:
                followed(terminal, step._replace(text=text))
        assert [code for code, _ in terminal.interrupt()] == [0, 0]
