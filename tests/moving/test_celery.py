"""`taskharbor from celery` on a small project: the whole report, and that what it says to write works.

In `make test` a stand-in takes the place of Celery, in the shapes that the report reads. `make matrix` installs the
real one, and expects the same report. After a change: TASKHARBOR_WRITE=1 pytest tests/moving writes the reports anew.
"""

import ast
import json
import os
from pathlib import Path
from typing import Any

import pytest

from bench.stores import environments
from taskharbor import Harbor
from taskharbor.testing import drain
from tests.cli.shell import Answer, program

HERE = Path(__file__).parent
SHOP = HERE / "celery_shop"
STAND_IN = HERE / "stand_in"


def report(*arguments: str, celery: Path = STAND_IN, cwd: Path = SHOP) -> Answer:
    return program("from", "celery", *arguments, cwd=str(cwd), PYTHONPATH=str(celery))


def expect(path: Path, text: str) -> None:
    if os.environ.get("TASKHARBOR_WRITE"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def findings() -> list[dict[str, Any]]:
    answer = report("--app", "shop.celery:app", "--scan", ".", "--output", "json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)["findings"]
    assert isinstance(found, list)
    return found


def test_the_whole_report() -> None:
    answer = report("--app", "shop.celery:app", "--scan", ".")
    assert (answer.code, answer.err) == (0, "")
    expect(HERE / "celery_shop.txt", answer.out)


@pytest.mark.left_to("matrix")
def test_the_real_celery_gives_the_same_report() -> None:
    assert environments.make("celery") == ""
    (packages,) = (environments.FOLDER / "celery").glob("lib/python*/site-packages")
    answer = report("--app", "shop.celery:app", "--scan", ".", celery=packages)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == (HERE / "celery_shop.txt").read_text(encoding="utf-8")


def test_without_a_scan_only_the_files_of_tasks_are_read() -> None:
    found = json.loads(report("--app", "shop.celery:app", "--output", "json").out)["findings"]
    assert {finding["file"] for finding in found} == {"shop/tasks.py", "shop/celery.py", ""}


def test_secrets_of_the_settings_are_not_shown(findings: list[dict[str, Any]]) -> None:
    assert "broker_url" in {finding["subject"] for finding in findings}
    assert "secret" not in json.dumps(findings)


def test_each_line_is_where_the_report_says(findings: list[dict[str, Any]]) -> None:
    checked = 0
    for finding in findings:
        if finding["line"] and finding["kind"] in ("call", "task"):
            line = (SHOP / finding["file"]).read_text(encoding="utf-8").splitlines()[finding["line"] - 1]
            shown = finding["theirs"].removeprefix("class Sweep, ")
            assert shown.split("(")[0].lstrip("(") in line.replace('"', "'"), finding
            checked += 1
    assert checked > 20


def test_what_it_says_to_write_is_python(findings: list[dict[str, Any]]) -> None:
    for finding in findings:
        if finding["kind"] in ("call", "schedule") and "…" not in finding["ours"]:
            ast.parse(finding["ours"])
        elif finding["kind"] == "task":
            bound = finding["ours"].endswith(":")
            ast.parse(finding["ours"] + (" ..." if bound else "\ndef function(): ..."))


def test_what_it_says_to_write_works(findings: list[dict[str, Any]]) -> None:
    """The tasks of the project, declared as the report says, and its workflows: with the results that Celery gives."""
    harbor = Harbor("memory://")
    tasks = {
        finding["subject"].rpartition(".")[2]: finding["ours"] for finding in findings if finding["kind"] == "task"
    }
    names: dict[str, Any] = {"harbor": harbor}
    code = """
from taskharbor import Exponential, Fixed, JobContext
from taskharbor.flow import chain, chord, group
"""
    bodies = {
        "add": "def add(x: int, y: int) -> int: return x + y",
        "total": "def total(numbers: list[int], tax: int = 0) -> int: return sum(numbers) + tax",
        "fetch": "def fetch(url: str) -> str: raise ConnectionError",
        "ping": "def ping() -> str: return 'pong'",
        "report": "def report(region: str = 'eu') -> str: return region",
    }
    code += "\n".join(f"{tasks[name]}\n{body}" for name, body in bodies.items())
    exec(code, names)

    for finding in findings:
        if finding["kind"] == "schedule":
            exec(finding["ours"], names)

    flows = [
        eval(finding["ours"].replace(".options(delay=10)", ""), names)
        for finding in findings
        if finding["subject"] in ("chain", "chord", "group") and finding["file"] == "shop/tasks.py"
    ]
    drain(harbor)
    assert {info.name for info in harbor.schedules.list()} == {"nightly", "poll", "sweep", "payday", "hourly"}
    assert [flow.result() for flow in flows] == [3, 13, [2, 4], 7, 7]
    assert names["retry_fetch"](1, ConnectionError()) >= 2
    assert names["retry_fetch"](1, ValueError()) is None


@pytest.mark.parametrize(
    ("app", "words"),
    [
        ("shop", "expected module:name, for example proj.celery:app"),
        ("shop.nowhere:app", "there is no module 'shop.nowhere' here"),
        ("shop.celery:nothing", "expected a Celery application, found a NoneType"),
        ("shop.tasks:checkout", "expected a Celery application, found a function"),
    ],
)
def test_a_wrong_app_is_one_line(app: str, words: str) -> None:
    answer = report("--app", app)
    assert answer.code == 2
    assert words in answer.line


def test_a_module_that_cannot_be_imported_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "from celery import Celery\napp = Celery('x', broker='', include=['nowhere'])\n"
    )
    answer = report("--app", "broken:app", cwd=tmp_path)
    assert answer.code == 2
    assert "importing its tasks failed" in answer.line
    assert "No module named 'nowhere'" in answer.line


def test_a_file_that_cannot_be_parsed_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text("def half(\n")
    answer = report("--app", "shop.celery:app", "--scan", str(tmp_path), "--output", "json")
    (half,) = [finding for finding in json.loads(answer.out)["findings"] if finding["file"].endswith("half.py")]
    assert half["level"] == "missing"
    assert "SyntaxError" in half["advice"][0]["text"]


def test_lines_that_would_lead_astray(tmp_path: Path) -> None:
    """What waits for ever, runs elsewhere, or lands in another queue under another name is said."""
    (tmp_path / "calls.py").write_text(
        "from celery.utils.log import get_task_logger\n"
        "from shop.celery import app\nfrom shop.tasks import add, fetch\n"
        "logger = get_task_logger(__name__)\n"
        "add.delay(1, 2).get()\n"
        "add.apply(args=(1, 2)).get()\n"
        "app.send_task('shop.tasks.fetch', ['https://example.com'], task_id='f-1', countdown=5)\n"
        "app.send_task('elsewhere', kwargs={'to': 'ada'}, queue='mail')\n"
        "add.delay_on_commit(1, 2)\n"
    )
    answer = report("--app", "shop.celery:app", "--scan", str(tmp_path), "--output", "json")
    found = {
        finding["line"]: finding
        for finding in json.loads(answer.out)["findings"]
        if finding["file"].endswith("calls.py")
    }
    assert found[4]["ours"] == "logging.getLogger(__name__)"
    assert (found[5]["ours"], "taskharbor.testing.drain(harbor)" in str(found[5])) == (
        "add.enqueue(1, 2).result()",
        True,
    )
    assert found[6]["ours"] == "add(1, 2)"
    assert found[7]["ours"] == (
        "harbor.client.enqueue(JobRequest(type='shop.tasks.fetch', payload={'url': 'https://example.com'}, "
        "idempotency_key='f-1', delay=5))"
    )
    assert found[8]["ours"] == (
        "harbor.client.enqueue(JobRequest(type='elsewhere', payload={'to': 'ada'}, queue='mail'))"
    )
    assert found[9]["ours"] == "add.enqueue(1, 2)"
