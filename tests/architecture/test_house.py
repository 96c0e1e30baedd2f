"""The shape of the house: sizes, names, docstrings, who reads a clock, what an import costs, what tests may do."""

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.architecture import figures
from tests.architecture.figures import ROOT, SOURCE, place

TESTS = ROOT / "tests"
MODULES = sorted(SOURCE.rglob("*.py"))
TEST_FILES = sorted(path for path in TESTS.rglob("*.py"))


def tree(path: Path) -> ast.Module:
    """Parsing is what these tests spend their time on: what cannot hold the thing that is looked for is not parsed."""
    return ast.parse(path.read_text(encoding="utf-8"), place(path))


def calls(path: Path) -> Iterator[tuple[str, str, ast.Call]]:
    """Every call in a file: the function it is in (dotted), what is called (dotted, as written), the node."""

    def visit(node: ast.AST, where: tuple[str, ...]) -> Iterator[tuple[str, str, ast.Call]]:
        for child in ast.iter_child_nodes(node):
            inside = where
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inside = (*where, child.name)
            if isinstance(child, ast.Call):
                yield ".".join(inside), dotted(child.func), child
            yield from visit(child, inside)

    yield from visit(tree(path), ())


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


# Sizes and names


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_no_file_is_over_500_lines_and_each_says_what_it_is_for(path: Path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 500
    assert re.match(r'"""\w|"""`', text) or ast.get_docstring(tree(path)), f"{place(path)} has no docstring"


def test_nothing_has_a_name_that_says_nothing():
    empty = {"util", "utils", "common", "manager", "managers", "helper", "helpers", "misc"}
    for path in (*MODULES, *TEST_FILES):
        assert not empty & {path.stem, *path.relative_to(ROOT).parts[:-1]}, place(path)
    for path in MODULES:
        found = re.search(r"^ *class \w*(?:Manager|Helper|Util|Utils|Base)\b", path.read_text("utf-8"), re.MULTILINE)
        assert found is None, f"{place(path)}: {found[0]}"


@pytest.mark.parametrize("name", ["", ".drivers", ".drivers.kit", ".testing", ".events", ".omniq"])
def test_every_public_name_exists_and_is_documented(name: str):
    module = f"taskharbor{name}"
    found = importlib.import_module(module)
    assert list(found.__all__) == sorted(set(found.__all__), key=_as_ruff_sorts)
    for name in found.__all__:
        value = getattr(found, name)
        if isinstance(value, type) or inspect.isroutine(value):  # a type alias has no docstring of its own
            assert value.__doc__, f"{module}.{name} has no docstring"
            # msgspec and dataclasses write one of their own when there is none.
            assert not value.__doc__.startswith(f"{name}("), f"{module}.{name} has no docstring of its own"


def _as_ruff_sorts(name: str) -> tuple[int, str]:
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


# Sizes of functions, names of classes, exemptions

MAX_FUNCTION_LINES = 60
MAY_BE_LONG = {"run in src/taskharbor/cli/commands/worker.py": "one parameter for each option of the command"}
SAME_NAME = {
    "JobCancelled": "public: an exception, and an event",
    "JobContext": "public: of a task, and of an OmniQ handler",
    "LeaseLost": "public: an event, and an exception of OmniQ",
}


@pytest.mark.parametrize("language", figures.LANGUAGES)
def test_a_function_fits_a_screen(language: str):
    suffix = figures.LANGUAGES[language]
    long = {f"{each.name} in {each.place}": each.lines for each in figures.all_functions(suffix)
            if each.lines > MAX_FUNCTION_LINES}  # fmt: skip
    assert not {name: lines for name, lines in long.items() if name not in MAY_BE_LONG}
    left_over = {name for name in MAY_BE_LONG if name.endswith(suffix)} - set(long)
    assert not left_over, "a reason that is not needed"


def test_a_class_name_exists_once():
    assert set(figures.twice()) == set(SAME_NAME), {
        name: places for name, places in figures.twice().items() if name not in SAME_NAME
    }


@pytest.mark.parametrize("folder", ["src", "tests", "bench", "examples"])
def test_what_is_exempt_from_mypy_or_ruff_says_why(folder: str):
    found = figures.exemptions(path for path in sorted((ROOT / folder).rglob("*.py")) if "typing" not in path.parts)
    assert [each.where for each in found if not each.reason] == []


# What texts name

NAMES_OTHERS = {
    "docs/comparison.md": "files of other projects",
    "docs/dead-letters.md": "files of a user's program",
    "docs/django.md": "files of a user's program",
    "docs/fastapi.md": "files of a user's program",
    "docs/project-layout.md": "files of a user's program",
    "docs/quickstart.md": "files of a user's program",
    "CONTRIBUTING.md": "tests/x.py stands for any test",
}
FILE_NAME = re.compile(r"(?<![\w/.])((?:[\w.-]+/)*[\w-]+\.(?:py|sql|lua))\b")
FOLDERS = ("src", "tests", "bench", "docs", "examples")
EVERY_FILE = {place(path) for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()}
SUFFIXES = {".py", ".sql", ".lua", ".md"}


def named_files(path: Path) -> set[str]:
    """The files of source code that the docstrings and comments of a file name, or the text of a page."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py" and FILE_NAME.search(text):
        scopes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        docstrings = [ast.get_docstring(node) or "" for node in ast.walk(tree(path)) if isinstance(node, scopes)]
        text = "\n".join([*docstrings, *re.findall(r"(?:^|\s)#.*$", text, re.MULTILINE)])
    return set(FILE_NAME.findall(text))


def test_every_file_that_a_text_names_exists():
    ends = {end for name in EVERY_FILE for end in _ends(name)}
    for name in sorted(EVERY_FILE | {"README.md", "CONTRIBUTING.md"}):
        path = ROOT / name
        if path.suffix in SUFFIXES and name not in NAMES_OTHERS and "examples" not in path.parts:
            assert not named_files(path) - ends, name


def _ends(name: str) -> Iterator[str]:
    """A file may be named by its whole path, or by the last parts of it."""
    parts = name.split("/")
    return ("/".join(parts[start:]) for start in range(len(parts)))


def test_decisions_have_numbers_of_their_own():
    text = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"^### (\d+)\. ", text, re.MULTILINE)]
    assert len(numbers) == len(set(numbers)) > 0
    for name in sorted(EVERY_FILE):
        if name.endswith((".py", ".sql", ".lua", ".md")):
            named = re.findall(r"\b[Dd]ecisions? (\d+)\b", (ROOT / name).read_text(encoding="utf-8"))
            assert set(map(int, named)) <= set(numbers), name


# Who reads a clock

CLOCKS = {"time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter", "datetime.now"}
CLOCKS |= {"datetime.utcnow", "datetime.today", "date.today", "datetime.datetime.now", "time.localtime", "time.gmtime"}
MAY_NAME_A_CLOCK = re.compile(r"from time import|" + "|".join(re.escape(f"{each}(") for each in sorted(CLOCKS)))
MAY_READ = {
    "src/taskharbor/model/events.py": "how long an observer that fails is not reported again",
    "src/taskharbor/store/access.py": "the deadline of a blocking call, as an event loop reads its own clock",
    "src/taskharbor/drivers/sqlite/reader.py": "what is left until a blocking call's deadline; how long a read lasts",
    "src/taskharbor/drivers/sqlite/store_clock.py": "what `server_time` returns, and whether the clock was set",
    "src/taskharbor/drivers/sqlite/turns.py": "how long a caller has waited for its turn or the lock: when to give up",
    "src/taskharbor/drivers/sqlite/wal.py": "how long a sync took: which thread does the next one",
    "src/taskharbor/drivers/sqlite/writer.py": "how long a write took: which thread does the next one",
    "src/taskharbor/drivers/postgres/handler_pool.py": "how long a connection was not used: when to close it",
    "src/taskharbor/drivers/postgres/on_connection.py": "how long a call has waited for a lock: when to give up",
    "src/taskharbor/django/store.py": "how long a call has taken: when to give up",
    "src/taskharbor/observe/line_handler.py": "how long a process has held the log's lock: when to write without it",
    "src/taskharbor/ops/doctor.py": "compares the clock of the store with that of the machine, and times one call",
    "src/taskharbor/worker/child_main.py": "a child process does not have its worker's clock; it stamps new jobs only",
}


def test_the_clock_is_read_in_one_class_and_in_server_time():
    readers = []
    for path in MODULES:
        if not MAY_NAME_A_CLOCK.search(path.read_text(encoding="utf-8")):
            continue
        names = {alias.name for node in ast.walk(tree(path)) if isinstance(node, ast.ImportFrom) for alias in node.names
                 if node.module == "time"}  # fmt: skip
        assert not names, f"{place(path)}: import time as a whole, so that reading it can be seen"
        readers += [(place(path), where) for where, called, _ in calls(path) if called in CLOCKS]
    allowed = [
        (file, where)
        for file, where in readers
        if file == "src/taskharbor/model/clock.py"
        or (file.startswith("src/taskharbor/drivers/") and where.endswith(".server_time"))
        or file.startswith(("src/taskharbor/cli/", "src/taskharbor/conformance/"))  # measure, and wait for a real store
        or (
            file.startswith("src/taskharbor/drivers/") and file.endswith("/blocking.py")
        )  # what is left until a deadline
        or file in MAY_READ
    ]
    assert sorted(set(readers) - set(allowed)) == []
    assert {file for file, _ in readers} >= {"src/taskharbor/model/clock.py", *MAY_READ}, "a reason that is not needed"


# What an import costs

IMPORT = """
import json, sys
import msgspec  # with whatever it loads itself
before = set(sys.modules)
from taskharbor import Client, Exponential, Harbor, JobContext, TaskHarborError
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps(sorted(name for name in new if name not in sys.stdlib_module_names)))
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def fresh(program: str) -> list[Any]:
    command = [sys.executable, "-W", "error", "-c", program]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_importing_the_package_loads_msgspec_and_nothing_else_of_third_parties():
    others, everything = fresh(IMPORT)
    assert set(others) <= {"taskharbor", "msgspec"}
    heavy = {"multiprocessing", "click", "rich", "importlib.metadata", "concurrent.futures.process", "sqlite3"}
    assert {*heavy, "pydantic"}.isdisjoint(everything)
    assert not {name for name in everything if name.startswith(("taskharbor.worker", "taskharbor.testing"))}


def test_importing_slots_loads_no_parser_and_no_time_zones():
    program = "import json, sys\nimport taskharbor.policy.slots\nprint(json.dumps(sorted(sys.modules)))"
    (everything,) = fresh(program)
    assert {"cronsim", "zoneinfo", "calendar", "difflib"}.isdisjoint(everything)


def test_importing_a_worker_loads_nothing_that_only_child_processes_or_failures_need():
    (everything,) = fresh("import json, sys\nfrom taskharbor import Worker\nprint(json.dumps(sorted(sys.modules)))")
    assert {"multiprocessing", "taskharbor.worker.child_processes", "difflib", "sysconfig"}.isdisjoint(everything)


# What tests may do


def test_warnings_are_errors():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    assert options["filterwarnings"][0] == "error"
    assert options["xfail_strict"] is True


SKIPS = {"pytest.skip", "pytest.mark.skip", "pytest.mark.skipif", "pytest.importorskip", "pytest.xfail"}
SKIPS |= {"unittest.skip"}
MAY_SLEEP = {
    "tests/bulk/test_triage.py": "an operation in another process shows in the store alone; the test polls",
    "tests/drivers/test_redis_idle.py": "an idle second has no signal; the loop's seconds are short",
    "tests/everyday": "handlers that have work to do; polls processes and their journal",
    "tests/processes": "handlers and imports that last until a file is there",
    "tests/worker/signal_program.py": "a handler that blocks its loop until it is killed",
    "tests/drivers/test_sqlite_abort.py": "polls until a thread waits in line",
    "tests/drivers/test_sqlite_turns.py": "polls until a thread waits in line",
    "tests/omniq/consumer_program.py": "a handler that is interrupted has to be at something",
    "tests/servers/redis.py": "a server sends no signal when it has started; the test polls",
    "tests/worker/process_handlers.py": "a handler that is killed at its timeout has to be at something",
    "tests/worker/test_outage.py": "the worker's own backoff is real time; the test polls until it is over",
    "tests/worker/test_renewals.py": "the worker's own backoff is real time; the test polls until it is over",
    "tests/drivers/test_few_connections.py": "the same, and a server does not report that a connection is gone",
    "tests/worker/test_heart.py": "the store does not report that a lease was extended; the test polls",
    "tests/simulation": "asyncio.sleep on a loop whose time is virtual",
    "tests/schedules/test_kills.py": "a store does not report that a slot was fired; it polls, and kills at random",
    "tests/schedules/world.py": "asyncio.sleep on the simulation's loop, whose time is virtual",
    "tests/servers/proxy.py": "a slow network is one that waits",
    "tests/drivers/test_postgres_network.py": "the server does not report that a connection is gone; the test polls",
    "tests/flow/random_kill_worker.py": "a handler that is killed has to be at something",
    "tests/flow/cluster_worker.py": "a handler that is killed has to be at something",
    "tests/drivers/test_redis_connection.py": "a slow server is one that waits; nothing reports a closed connection",
    "tests/drivers/test_redis_reshard.py": "the store does not report how far the worker is; the test polls",
    "tests/flow/test_cluster.py": "the store does not report how far the workers are; the test polls",
    "tests/flow/simulated_kills.py": "asyncio.sleep on the simulation's loop, whose time is virtual",
    "tests/flow/test_kills.py": "asyncio.sleep on the simulation's loop, whose time is virtual",
    "tests/flow/test_mistakes.py": "asyncio.sleep on the simulation's loop, whose time is virtual",
    "tests/worker/test_stop_budget.py": "asyncio.sleep on the simulation's loop, whose time is virtual",
    "tests/unit/test_clock.py": "a sleep on the clock under test",
    "tests/resources/app.py": "a resource with a heartbeat of its own, in another process",
    "tests/supervisor": "handlers in other processes, and tests that poll these",
    "tests/survival": "work in other processes, rows that last a given time, and polls of journals",
    "tests/client": "a clock of the tests' own, and a loop that polls",
}


def with_a_reason(node: ast.AST) -> bool:
    """Whether a test says why it may be skipped: `@pytest.mark.may_skip("reason")`."""
    decorators = getattr(node, "decorator_list", ())
    return any(
        isinstance(each, ast.Call) and dotted(each.func).endswith(".may_skip") and each.args for each in decorators
    )


# What every skip, sleep and assertion of a constant has in its text; other things have it too.
SUSPICIOUS = re.compile(r"skip|xfail|sleep|\bassert[\s(\\]*(?:[rbfuRBFU]{0,2}[\"']|[\d.]|True\b|False\b|None\b)")


@pytest.mark.parametrize("path", TEST_FILES, ids=place)
def test_no_test_skips_sleeps_or_asserts_nothing(path: Path):
    if not SUSPICIOUS.search(path.read_text(encoding="utf-8")):
        return
    name, module = place(path), tree(path)
    excused = {id(below) for node in ast.walk(module) if with_a_reason(node) for below in ast.walk(node)}
    for node in ast.walk(module):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant):
            raise AssertionError(f"{name}:{node.lineno} asserts a constant")
        if isinstance(node, ast.Attribute) and dotted(node) in SKIPS and id(node) not in excused:
            raise AssertionError(f"{name}:{node.lineno} skips; run it, or give its reason with may_skip")
    if name.startswith(tuple(MAY_SLEEP)):
        return
    for _, called, call in calls(path):
        if called in {"time.sleep", "asyncio.sleep", "sleep"}:
            nothing = len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
            assert nothing, f"{name}:{call.lineno} sleeps; wait for a signal, or put it on the list with its reason"


def test_no_reason_is_left_over():
    for name in (*MAY_SLEEP, *MAY_READ, *NAMES_OTHERS):
        assert (ROOT / name).exists(), name
