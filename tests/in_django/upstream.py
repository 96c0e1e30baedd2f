"""Django's own tests of the tasks API, run against our backend.

They come from the sdist of Django on PyPI, pinned; nothing of it is kept in this repository. They are written for the
two backends that Django ships. `DummyBackend` keeps what it is given and `ImmediateBackend` runs it at once, so each
test is run against ours in the same role: site/run_upstream.py. `LEFT_OUT` names the tests that do not hold for
every backend, each with its reason; all others must pass.
"""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.in_django.environment import FOLDER, NEWEST, SERIES, version

CACHE = FOLDER.parent / ".venv-django-tests"

_ITS_CLASS = "asserts the class of Django's own backend"
_ITS_LACK = "asserts what only the immediate backend lacks"
_ITS_LOG = (
    "asserts that the log repeats the text of the exception, which may quote arguments: ours never does. What else it "
    "says of errors holds in shop.cases.results"
)
_ITS_PARTS = "changes a result inside the dummy backend's list; ours is refreshed in shop.cases.results"
_OTHER_BACKEND = "is about a backend of the test's own"
LEFT_OUT = {
    "TaskTestCase.test_using_correct_backend": _ITS_CLASS,
    "TaskTestCase.test_get_backend": _ITS_CLASS,
    "TaskTestCase.test_refresh_result": "calls refresh() on an event loop, where ours refuses to block",
    "TaskTestCase.test_get_missing_result": "calls get_result() on an event loop, where ours refuses to block",
    "DummyBackendTestCase.test_using_correct_backend": _ITS_CLASS,
    "DummyBackendTestCase.test_refresh_result": _ITS_PARTS,
    "DummyBackendTestCase.test_refresh_result_async": _ITS_PARTS,
    "DummyBackendTestCase.test_get_missing_result": "calls get_result() on an event loop, where ours refuses to block",
    "ImmediateBackendTestCase.test_using_correct_backend": _ITS_CLASS,
    "ImmediateBackendTestCase.test_cannot_get_result": _ITS_LACK,
    "ImmediateBackendTestCase.test_cannot_refresh_result": _ITS_LACK,
    "ImmediateBackendTestCase.test_cannot_pass_run_after": _ITS_LACK,
    "ImmediateBackendTestCase.test_throws_keyboard_interrupt": "a worker survives it; it ends no caller's program",
    "ImmediateBackendTestCase.test_catches_exception": _ITS_LOG,
    "CustomBackendTestCase.*": _OTHER_BACKEND,
    "CustomTaskTestCase.*": _OTHER_BACKEND,
}
NOT_IN_6_0 = {"CustomTaskTestCase.*"}
"""Tests of `LEFT_OUT` that Django 6.0 does not have yet."""
_NEW_IN_6_1 = "Django 6.1 is the first to have it"
OF_THE_BACKPORT = {
    "TaskTestCase.test_run_after_in_decorator": _NEW_IN_6_1,
    "DummyBackendTestCase.test_validate_disallowed_async_task": "the backport writes the message with a small letter",
    "TaskTestCase.test_pickle_task": _NEW_IN_6_1,
    "TaskTestCase.test_pickle_task_result": _NEW_IN_6_1,
    "TaskTestCase.test_unpickle_arbitrary_string": _NEW_IN_6_1,
    "TaskTestCase.test_unpickle_non_task_object": _NEW_IN_6_1,
}


def sources() -> Path:
    """The folder that has Django's `tests/tasks` as a package; downloaded once. Those of the newest Django for the
    backport, whose sdist has no tests."""
    major, minor = version()
    wanted = SERIES[f"{major}.{minor}"] if major >= 6 else NEWEST
    folder = CACHE / wanted
    if not (folder / "tasks" / "__init__.py").exists():
        folder.mkdir(parents=True, exist_ok=True)
        archive = _download(wanted, folder)
        with tarfile.open(archive) as packed:
            members = [each for each in packed.getmembers() if "/tests/tasks/" in each.name and each.isfile()]
            (folder / "new" / "tasks").mkdir(parents=True, exist_ok=True)
            for member in members:
                text = packed.extractfile(member)
                assert text is not None  # it is a file
                (folder / "new" / "tasks" / member.name.rpartition("/")[2]).write_bytes(text.read())
        archive.unlink()
        shutil.rmtree(folder / "tasks", ignore_errors=True)
        (folder / "new" / "tasks").rename(folder / "tasks")
    return folder


def _download(wanted: str, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    pip += ["--no-binary", ":all:", "--ignore-requires-python", "--dest", str(folder), f"Django=={wanted}"]
    done = subprocess.run(pip, capture_output=True, text=True)
    found = [*folder.glob("*.tar.gz")]
    if not found:
        raise RuntimeError(f"the sdist of Django {wanted} cannot be downloaded:\n{done.stderr}")
    return found[0]
