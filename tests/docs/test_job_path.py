"""The map and the paths in docs/architecture.md are the code's: what import-linter enforces, and what calls pass."""

import asyncio
import itertools
import re
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry

from taskharbor import Harbor
from taskharbor.observe.prometheus import PrometheusObserver, serve
from tests.dashboard.site import Site, visit
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGE = str(ROOT / "src")


def shared(heading: str) -> list[str]:
    """The files of a table of steps, in order, without the contract, which is code of the driver's."""
    table = PAGE.partition(f"**{heading}**")[2].partition("\n\n**")[0].partition("\n\nThen the driver")[0]
    rows = [row for row in table.splitlines() if re.match(r"\| \d", row)]
    return [path for row in rows for path in re.findall(r"`(src/[\w/]+\.py)`", row) if "drivers/base.py" not in path]


def stored(driver: str, call: str) -> list[str]:
    """The files of a driver's row, in order."""
    table = PAGE.partition(f"\n**{driver}")[2]
    (row,) = [row for row in table.splitlines()[:12] if row.startswith(f"| {call} |")]
    return re.findall(r"`(src/[\w/]+\.py)`", row)


def test_the_map_has_the_packages_in_the_rows_that_import_linter_enforces():
    lines = [line.strip() for line in PAGE.partition("```text\n")[2].partition("```")[0].splitlines()]
    tops = [line.strip("│").split("│") for above, line in itertools.pairwise(lines) if above[:1] in ("┌", "├")]
    names = [[re.split(r"\s{2,}", cell.strip())[0].removesuffix(".py") for cell in row] for row in tops]
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    enforced = [set(re.findall(r"\w+", layer)) for layer in contract["layers"]]
    assert [set(", ".join(row).split(", ")) for row in names] == enforced


@contextmanager
def traced() -> Iterator[list[str]]:
    """The files of the package in the order in which functions in them are called, in all threads."""
    files: list[str] = []

    def note(frame: FrameType, event: str, arg: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGE):
            files.append(Path(name).relative_to(ROOT).as_posix())

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def is_passed_in_order(path: list[str], files: list[str]) -> bool:
    at = 0
    for file in files:
        at += at < len(path) and file == path[at]
    return at == len(path)


@pytest.mark.parametrize("driver", ["Memory", "SQLite"])
def test_a_job_passes_the_files_of_the_page_in_their_order(driver: str, tmp_path: Path):
    harbor = Harbor("memory://" if driver == "Memory" else f"sqlite:///{tmp_path}/jobs.db")

    @harbor.task(max_attempts=1)
    async def work(fails: bool) -> None:
        if fails:
            raise ValueError("it fails, so that the policy decides")

    async def enqueue_and_run() -> tuple[list[str], list[str]]:
        with traced() as files:  # from the start: SQLite may write and sync on threads that the first job starts
            await work.aenqueue(False)
            await harbor.worker().arun(until_empty=True)  # the first job opens files and imports modules
            first = len(files)
            await work.aenqueue(True)
            second = len(files)
            await harbor.worker().arun(until_empty=True)
            third = len(files)
        await harbor.aclose()
        return files[first:second], files[second:third]

    enqueueing, running = asyncio.run(enqueue_and_run())
    assert is_passed_in_order(shared("Enqueue"), enqueueing)
    for heading in ("Reserve", "Execute", "Settle"):
        assert is_passed_in_order(shared(heading), running), heading
    assert is_passed_in_order(stored(driver, "enqueue"), enqueueing)
    assert is_passed_in_order(stored(driver, "reserve"), running)
    assert is_passed_in_order(stored(driver, "settle"), running)


@pytest.mark.parametrize("driver", ["Memory", "SQLite"])
def test_a_blocking_enqueue_passes_the_files_of_the_page_in_their_order(driver: str, tmp_path: Path):
    harbor = Harbor("memory://" if driver == "Memory" else f"sqlite:///{tmp_path}/jobs.db")

    @harbor.task
    def work() -> None: ...

    work.enqueue()  # the first call opens the store and imports modules
    with traced() as files:
        work.enqueue()
    harbor.close()
    assert set(shared("Enqueue")) - {"src/taskharbor/client/handle.py"} <= set(files)
    entry, *inside = stored(driver, "blocking enqueue")
    awaited = stored(driver, "enqueue")
    assert is_passed_in_order([entry, *inside, *awaited[awaited.index(inside[-1]) + 1 :]], files)


def test_the_page_has_a_path_for_every_driver_and_call():
    for driver in ("Memory", "SQLite", "Postgres", "Redis"):
        assert all(stored(driver, call) for call in ("enqueue", "reserve", "settle"))
    assert all(shared(heading) for heading in ("Enqueue", "Reserve", "Execute", "Settle"))


def test_a_retry_in_the_dashboard_passes_the_files_of_the_page_in_their_order():
    async def retry(site: Site) -> None:
        await site.post(f"/jobs/{site.scene.done}/retry")  # is refused; imports modules
        with traced() as files:
            reply = await site.post(f"/jobs/{site.scene.dead}/retry")
        assert reply.json() == {"done": "the job is ready"}
        assert is_passed_in_order(shared("Retry in the dashboard"), files)

    visit(retry)


def test_a_metric_passes_the_files_of_the_page_in_their_order():
    registry = CollectorRegistry()
    harbor = Harbor("memory://", observers=[PrometheusObserver(registry=registry)])

    @harbor.task
    def work() -> None: ...

    work.enqueue()
    with traced() as files:
        harbor.worker().run(until_empty=True)
    assert is_passed_in_order(stored("Metrics", "`taskharbor_jobs_succeeded_total`"), files)
    with traced() as files:
        serving = serve(0, harbor.driver, registry=registry)
        text = urlopen(f"http://127.0.0.1:{serving.port}/metrics").read().decode()
        serving.close()
    assert "taskharbor_jobs_succeeded_total{" in text
    assert "taskharbor_queue_jobs{" in text
    path = stored("Metrics", "`taskharbor_queue_jobs`")
    assert is_passed_in_order([file for file in path if "drivers/base.py" not in file], files)
