"""The reference: it is up to date, every public name is in it, and every option is explained where it is declared."""

import importlib
import inspect
import pydoc
import re
from collections import Counter

import pytest

import taskharbor
from taskharbor import Harbor, Task, Worker, events
from taskharbor.client.store_calls import JobFilterArguments
from taskharbor.model import errors
from taskharbor.schedules.rule import RuleOptions
from taskharbor.tasks.options import CallOptions
from taskharbor.tasks.worker_options import WorkerOptions
from tests.docs.pages import ROOT
from tests.docs.reference import assembly, objects
from tests.docs.reference.catalogue import PAGES
from tests.docs.reference.docstrings import fields, members, parse
from tests.docs.reference.environment import VARIABLES
from tests.docs.test_public import PUBLIC

NEEDS_SETTINGS = "taskharbor.django"  # cannot be imported without a project; docs/django.md explains its names
IN_FULL = [path for page in PAGES for path in page.shows]
ERRORS = [kind for root in (errors.TaskHarborError, errors.HandlerSignal) for kind in assembly.error_classes(root)]


def test_the_pages_are_up_to_date() -> None:
    made = assembly.pages()
    assert {file.name for file in assembly.FOLDER.iterdir()} == set(made), "run: make docs"
    old = [name for name, text in made.items() if (assembly.FOLDER / name).read_text(encoding="utf-8") != text]
    assert not old, "run: make docs"


def test_every_public_name_is_on_one_page() -> None:
    """A name of two modules (`Worker` is in `taskharbor` and in `taskharbor.worker`) is one object."""
    shown = Counter(id(_object(path)) for path in IN_FULL)
    shown.update(id(kind) for kind in ERRORS)
    for module in {module for page in PAGES for module in page.brief} | {"taskharbor.events"}:
        loaded = importlib.import_module(module)
        shown.update({id(getattr(loaded, name)) for name in loaded.__all__} - set(shown))
    inside = [module for module in PUBLIC if not module.startswith(NEEDS_SETTINGS)]
    named = {f"{module}:{name}" for module in inside for name in importlib.import_module(module).__all__}
    missing = sorted(path for path in named - {"taskharbor:__version__"} if shown[id(_object(path))] == 0)
    assert not missing, "give each a place in tests/docs/reference/catalogue.py"
    assert not [path for path in IN_FULL if shown[id(_object(path))] > 1]


def _object(path: str) -> object:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("page", [page for page in PAGES if page.shows], ids=lambda page: page.file)
def test_every_option_field_and_method_is_explained(page) -> None:
    assert [each for path in page.shows for each in objects.unexplained(path)] == []


def test_every_event_and_error_is_explained() -> None:
    found = [each for name in events.__all__ for each in objects.unexplained(f"taskharbor.events:{name}")]
    found += [each for kind in ERRORS for each in objects.unexplained(f"taskharbor:{kind.__name__}")]
    assert found == []


LISTS = {
    "CallOptions": (CallOptions, set(CallOptions.__annotations__)),
    "WorkerOptions": (WorkerOptions, set(WorkerOptions.__annotations__)),
    "Harbor.schedule": (Harbor.schedule, set(RuleOptions.__annotations__)),
    "Harbor.jobs": (Harbor.jobs, {"state", *JobFilterArguments.__annotations__}),
    "Harbor": (Harbor, set(inspect.signature(Harbor.__init__).parameters) - {"self"}),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_options_has_all_of_them(name: str) -> None:
    explained, options = LISTS[name]
    assert set(parse(explained.__doc__ or "").options) == options


def test_a_worker_takes_the_options_that_are_listed() -> None:
    taken = set(inspect.signature(Worker.__init__).parameters) - {"self", "driver", "handlers"}
    assert taken == set(WorkerOptions.__annotations__)


@pytest.mark.parametrize(
    ("asked", "options"),
    [(Harbor, LISTS["Harbor"][1]), (Harbor.task, LISTS["CallOptions"][1]), (Task.options, LISTS["CallOptions"][1]),
     (Harbor.worker, LISTS["WorkerOptions"][1]), (Worker, LISTS["WorkerOptions"][1])],
    ids=["Harbor", "Harbor.task", "Task.options", "Harbor.worker", "Worker"],
)  # fmt: skip
def test_help_alone_answers(asked, options: set[str]) -> None:
    shown = pydoc.plain(pydoc.render_doc(asked))
    assert [each for each in options if not re.search(rf"^[ |]+{each}: ", shown, re.MULTILINE)] == []


@pytest.mark.parametrize("store", assembly.STORES)
def test_every_option_of_a_dsn_is_explained(store: str) -> None:
    module = importlib.import_module(f"taskharbor.drivers.{store}.options")
    known = getattr(module, "_OPTIONS", None) or module.OURS
    if store == "redis":
        known = known | module.SENTINEL | module.tls.OPTIONS | {"tls", "db"}
    assert set(parse(assembly.store_options(store).__doc__ or "").options) == known


def test_every_environment_variable_is_explained() -> None:
    source = (path.read_text(encoding="utf-8") for path in (ROOT / "src" / "taskharbor").rglob("*.py"))
    named = {name for text in source for name in re.findall(r"(?<![A-Z_])TASKHARBOR_[A-Z_]+", text)}
    assert named <= {*VARIABLES, "TASKHARBOR_COMPLETE"}, "add it to tests/docs/reference/environment.py"
    assert {name for name in VARIABLES if name.startswith("TASKHARBOR_")} <= named


# The reader of docstrings itself: what it misses is explained nowhere


class Sample:
    """A sample. `seen` is explained here.

    >>> 1 + 1
    2

    Options:
        first: One line.
        second: Two lines, of which this
            is the second.
    """

    commented: int = 0  # behind it
    seen: int = 0
    documented: int = 0
    """Below it."""
    bare: int = 0


def test_the_reader_finds_options_examples_and_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    about = parse(Sample.__doc__ or "")
    assert about.options == {"first": "One line.", "second": "Two lines, of which this is the second."}
    assert about.text == "A sample. `seen` is explained here.\n\n```pycon\n>>> 1 + 1\n2\n```"
    monkeypatch.setattr(inspect, "getfile", lambda kind: __file__)
    monkeypatch.setattr(Sample, "__module__", "taskharbor.sample")
    assert [each.explanation for each in fields(Sample)] == ["Behind it.", "See above.", "Below it.", ""]


def test_the_reader_finds_what_nothing_explains(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(timeout: int = 3, *, by: str = "", patience: int = 2) -> None:
        """Wait for `timeout`."""

    wait.__module__ = "taskharbor.sample"
    monkeypatch.setattr("taskharbor.flow.wait", wait, raising=False)
    assert objects.unexplained("taskharbor.flow:wait") == ["wait(patience=…): not explained"]
    assert members(taskharbor.State)[0] == ("blocked", "It waits for other jobs of its workflow.")
