"""The tree of errors is what model/errors.py draws, and every error travels."""

import copy
import pickle
import re
from typing import Any

import pytest

import taskharbor
import taskharbor.drivers
from taskharbor.model import errors
from taskharbor.model.errors import HandlerSignal, TaskHarborError


def drawn() -> dict[str, tuple[str, ...]]:
    """Name → its bases, as the drawing in the docstring has them."""
    tree: dict[str, tuple[str, ...]] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^    ([│├└─ ]*)([A-Z]\w+)(?: \((\w+)\))?(?:\s{2,}.*)?$", line)
        if match is None:
            continue
        depth = len(match[1]) // 4
        path[depth:] = [match[2]]
        parent = path[depth - 1] if depth else "Exception"
        tree[match[2]] = (parent, match[3]) if match[3] else (parent,)
    return tree


def defined(root: type[BaseException]) -> dict[str, type[BaseException]]:
    found = {root.__name__: root}
    for below in root.__subclasses__():
        if below.__module__ == errors.__name__:
            found |= defined(below)
    return found


def test_the_drawing_is_the_tree():
    real = {name: tuple(base.__name__ for base in kind.__bases__) for name, kind in defined(TaskHarborError).items()}
    assert drawn() == real


def test_the_module_holds_only_the_error_tree_and_the_signals():
    kinds = {
        name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, BaseException)
    }
    assert kinds == set(defined(TaskHarborError)) | set(defined(HandlerSignal))


def test_signals_are_not_errors():
    for signal in defined(HandlerSignal).values():
        assert not issubclass(signal, TaskHarborError)


def test_every_error_is_public_and_has_a_docstring():
    signals = set(defined(HandlerSignal)) - {"HandlerSignal"}
    for name in {*defined(TaskHarborError), *signals}:
        assert getattr(taskharbor, name) is getattr(errors, name)
        assert getattr(errors, name).__doc__
    for name in defined(errors.DriverError):
        assert getattr(taskharbor.drivers, name) is getattr(errors, name)


EXAMPLES: list[Any] = [
    errors.JobDead("j", "why"),
    errors.JobDead("j", "why", "ValueError: text\n\nframes"),
    errors.JobCancelled("j", "why"),
    errors.Unrecoverable("why"),
    errors.RetryLater(5, "why"),
    errors.RetryLater(),
    errors.Snooze(5),
    errors.Cancel("why"),
    *(kind("text") for kind in defined(TaskHarborError).values() if kind not in (errors.JobDead, errors.JobCancelled)),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_every_error_travels_between_processes_and_copies(error: Any):
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert vars(other) == vars(error)


def test_the_texts_of_the_errors():
    assert str(errors.JobDead("j", "why")) == "job j is dead: why"
    assert str(errors.JobDead("j", "why", "\nValueError: text\n\nframes")) == "job j is dead: why: ValueError: text"
    assert len(str(errors.JobDead("j", "why", "ValueError: " + "x" * 8000))) < 350
    assert str(errors.JobCancelled("j", "why")) == "job j was cancelled: why"
    assert str(errors.Snooze(5)) == "snoozed for 5"


def test_the_class_of_a_dead_jobs_last_error_is_the_one_given():
    error = errors.JobDead("j", "why", "Boom: text", "app.Boom")
    assert (error.last_error, error.error_class) == ("Boom: text", "app.Boom")
    assert pickle.loads(pickle.dumps(error)).error_class == "app.Boom"
    assert errors.JobDead("j", "why", "Boom: text").error_class == "", "the text is no record"
