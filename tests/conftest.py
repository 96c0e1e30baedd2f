"""What holds for every test: its lane, what a skip means in CI, and settings that no machine may change.

- `@pytest.mark.lane("name", …)`: the lanes of a test, in place of its directory's. A test without a lane is an error.
- `@pytest.mark.may_skip("reason")`: this test may be skipped in CI too. Any other skip there is a failure: a test that
  does not run guards nothing, and nobody reads the list of skips.
- `@pytest.mark.left_to("full")`: this test runs in `make full` (or `matrix`) only, whose lanes must hold its lane.
  `except_for=`: a function of the name of a test; those for which it is true run in `make test` too. Of two such
  markers the nearer one decides: that of a function before that of its class.
- A test that is named on the command line runs, whatever its marker says.
- `--lane=NAME` (repeatable): only these lanes.

What ran is written down only when `make` asks for it with TASKHARBOR_LANES=folder. The variable is taken out of the
environment at once and given to xdist's workers by hand, so that a pytest started *by* a test never counts.
"""

import contextlib
import gc
import os
import signal
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests import lanes

LANES = pytest.StashKey[tuple[str, ...]]()
OUTCOME = pytest.StashKey[str]()
FOLDER = pytest.StashKey[str]()
RECORDS = pytest.StashKey[defaultdict[str, lanes.Record]]()

# No deadlines: a slow machine is not a failure. The same examples each time, unless a seed is given: then others, and
# what a run with a seed finds becomes an `@example`, which every run tries.
hypothesis.settings.register_profile("fixed", deadline=None, print_blob=True, derandomize=True, database=None)
hypothesis.settings.register_profile("seeded", deadline=None, print_blob=True, database=None)
# Hypothesis draws numbers and words of the program too, those of the modules that were imported by then: other values
# in another order of tests, and after a change elsewhere in the program. There is no setting for it.
with contextlib.suppress(ImportError):  # older versions do not do that
    from hypothesis.internal.conjecture import providers

    providers.is_local_module_file = lambda path: False  # type: ignore[attr-defined,assignment]  # it is not public


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane", action="append", default=[], metavar="NAME", help="run only this lane (repeatable)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "lane(*names): the lanes of a test, in place of its directory's")
    config.addinivalue_line("markers", "may_skip(reason): may be skipped in CI too, for this reason")
    config.addinivalue_line("markers", "left_to(run, except_for=None): runs in that run only")
    # A shell makes what it starts in the background ignore Ctrl-C, `nohup` hang-ups; so would the programs of tests.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)  # back to the default in the programs, not in pytest
    os.environ.pop("TASKHARBOR_DSN", None)
    folder = os.environ.pop("TASKHARBOR_LANES", "")
    worker = getattr(config, "workerinput", None)
    config.stash[FOLDER] = worker.get("lanes_folder", "") if worker is not None else folder and os.path.abspath(folder)
    config.stash[RECORDS] = defaultdict(lanes.Record)
    seeded = config.getoption("--hypothesis-seed", default=None) is not None  # refused beside derandomize
    hypothesis.settings.load_profile("seeded" if seeded else "fixed")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["lanes_folder"] = node.config.stash[FOLDER]


# Which lane


def lanes_of(item: pytest.Item) -> tuple[str, ...]:
    named: dict[str, None] = {}
    for marker in item.iter_markers("lane"):
        named.update(dict.fromkeys(marker.args))
    if named:
        return tuple(named)
    root = item.config.rootpath
    place = lanes.lane_of(item.path.relative_to(root).as_posix()) if item.path.is_relative_to(root) else None
    return (place,) if place else ()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    homeless = []
    for item in items:
        item.stash[LANES] = lanes_of(item)
        if not item.stash[LANES] and item.path.is_relative_to(here):
            homeless.append(item.nodeid)
    if homeless:
        raise pytest.UsageError(
            f"{len(homeless)} test(s) belong to no lane, the first is {homeless[0]}. "
            'Mark it with @pytest.mark.lane("name") or put it into a directory that tests/lanes.py knows.'
        )
    wanted: set[str] = set(config.getoption("--lane"))
    if not wanted and lanes.run() != "test":
        wanted = {lane.name for lane in lanes.listed() if lanes.run() in lane.runs}
    if lanes.run() == "test" and not config.getoption("keyword") and not named(config):
        refuse_unknown_names(items)
    own = [item for item in items if not wanted or any(name in wanted for name in item.stash[LANES])]
    chosen = [item for item in own if not left_to(config, item)]
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


def pytest_collection_finish() -> None:
    """Thousands of tests and modules stay until the end: to look at them takes each `gc.collect()` a quarter second."""
    gc.collect()
    gc.freeze()


def left_to(config: pytest.Config, item: pytest.Item) -> str | None:
    """The run that has this test in place of this one. It is written down: the list of lanes must hold that run."""
    if named(config):
        return None
    marked = list(item.iter_markers_with_node("left_to"))
    nearest = [marker for node, marker in marked if node is marked[0][0]]
    if not nearest or any(stays(item, marker) for marker in nearest) or nearest[0].args[0] == lanes.run():
        return None
    larger = str(nearest[0].args[0])
    for name in item.stash[LANES]:
        config.stash[RECORDS][name].left[larger] += 1
    return larger


def named(config: pytest.Config) -> bool:
    """Whether the command line names single tests: they run, wherever they are left."""
    return any("::" in argument for argument in config.args)


def refuse_unknown_names(items: list[pytest.Item]) -> None:
    """A name that `lanes.Chosen` has and no test of its file would leave that test to the larger run, unnoticed."""
    unmet: dict[tuple[Path, tuple[str, ...]], set[str]] = {}
    for item in items:
        for marker in item.iter_markers("left_to"):
            if isinstance(chosen := marker.kwargs.get("except_for"), lanes.Chosen):
                left = unmet.setdefault((item.path, chosen.names), set(chosen.names))
                left -= {name for name in left if chosen.fits(item.name, name)}
    wrong = [f"{path}: no test is called {', '.join(sorted(left))}" for (path, _), left in unmet.items() if left]
    if wrong:
        raise pytest.UsageError("\n".join(["left_to: some exceptions do not exist", *wrong]))


def stays(item: pytest.Item, marker: pytest.Mark) -> bool:
    """Whether this test is an exception of its marker."""
    excepted = marker.kwargs.get("except_for")
    return excepted is not None and excepted(item.name)


# What a skip means


def refusal(reason: object) -> str:
    return (
        f"Skipped in CI: {reason}\n"
        "A skipped test guards nothing. Let it run here, or say why it may be skipped: "
        '@pytest.mark.may_skip("reason").'
    )


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> object:
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped and in_ci():
        report.outcome = "failed"
        report.longrepr = refusal(reason_of(report))
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    expected_failure = hasattr(report, "wasxfail")
    allowed = any(marker.args and str(marker.args[0]).strip() for marker in item.iter_markers("may_skip"))
    if report.skipped and not expected_failure and in_ci() and not allowed:
        report.outcome = "failed"
        report.longrepr = refusal(reason_of(report))
    write_down(item, report, expected_failure)
    return report


# What ran


def write_down(item: pytest.Item, report: pytest.TestReport, expected_failure: bool) -> None:
    """A test counts as passed when its body passed and nothing around it failed."""
    if report.failed:
        item.stash[OUTCOME] = "failed"
    elif report.skipped:
        item.stash[OUTCOME] = "xfailed" if expected_failure else "skipped"
    elif report.when == "call":
        item.stash[OUTCOME] = "passed"
    for name in item.stash.get(LANES, ()):
        record = item.config.stash[RECORDS][name]
        record.seconds += report.duration
        if report.when == "teardown":
            record.tally[item.stash.get(OUTCOME, "failed")] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    folder, records = session.config.stash[FOLDER], session.config.stash[RECORDS]
    if folder and records:
        process = os.environ.get("PYTEST_XDIST_WORKER", "main")
        lanes.write_records(Path(folder), f"{process}-{os.getpid()}", records)
