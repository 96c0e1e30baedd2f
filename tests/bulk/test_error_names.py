"""Dead jobs by the class of their error, on every store: exactly the class that was given; a bare name only looks.

The jobs die in a real worker, so the names are those that it records.
"""

import builtins
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from taskharbor import Harbor, JobDead
from tests.flow.stores import STORES


class ConnectionError(Exception):  # a program may name its class like one of Python's
    """A program's own class with the name of a builtin."""


class Refused(ConnectionError):
    """Of a subclass no job is meant by its parent."""


def local_class() -> type[Exception]:
    class Local(Exception):
        pass

    return Local


KINDS: dict[str, type[BaseException]] = {
    "builtin": builtins.ConnectionError,
    "own": ConnectionError,
    "child": Refused,
    "zip": zipfile.BadZipFile,
    "json": json.JSONDecodeError,
    "local": local_class(),
}
HERE = __name__


def raising(kind: Any) -> Callable[[], None]:
    def fail() -> None:
        raise kind("m", "d", 0) if kind is json.JSONDecodeError else kind("m")

    return fail


@pytest.fixture(params=list(STORES))
def harbor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harbor]:
    """A harbor with a dead job of every kind, whose type is the kind, beside one that waits."""
    with Harbor(STORES[request.param](tmp_path) or "") as made:
        for kind, error in KINDS.items():
            made.task(name=kind, max_attempts=1)(raising(error)).enqueue()
        made.worker().run(until_empty=True)
        made.task(name="waits", queue="elsewhere")(raising(ConnectionError)).enqueue()
        yield made


def kinds(harbor: Harbor, error: str | type[BaseException] | None = None) -> list[str]:
    """The types of the dead jobs."""
    return sorted(info.job.type for info in harbor.dead(error=error))


def without(*gone: str) -> list[str]:
    return sorted(set(KINDS) - set(gone))


def test_a_class_means_its_own_jobs_and_no_others(harbor: Harbor) -> None:
    assert {kind: kinds(harbor, each) for kind, each in KINDS.items()} == {kind: [kind] for kind in KINDS}
    assert kinds(harbor, Exception) == kinds(harbor, OSError) == []
    assert harbor.dead(error=ConnectionError).delete().run().done == 1
    assert kinds(harbor) == without("own")
    assert harbor.dead(error=builtins.ConnectionError).delete().run().done == 1
    assert kinds(harbor) == without("own", "builtin")
    assert harbor.dead(error=zipfile.BadZipFile).requeue().run().done == 1
    assert kinds(harbor) == without("own", "builtin", "zip")


def test_a_full_name_means_one_class(harbor: Harbor) -> None:
    assert kinds(harbor, "zipfile.BadZipFile") == ["zip"]
    assert kinds(harbor, "json.decoder.JSONDecodeError") == ["json"]
    assert kinds(harbor, f"{HERE}.ConnectionError") == ["own"]
    assert kinds(harbor, "builtins.ConnectionError") == ["builtin"]
    assert harbor.dead(error="builtins.ConnectionError").delete().run().done == 1
    assert kinds(harbor) == without("builtin")


def test_a_bare_name_looks_for_every_class_of_that_name(harbor: Harbor) -> None:
    assert kinds(harbor, "ConnectionError") == ["builtin", "own"]
    assert (kinds(harbor, "BadZipFile"), kinds(harbor, "Local")) == (["zip"], ["local"])
    for none in ("ZipFile", "Connection_rror", "%", "NoSuch", "zipfile", ".BadZipFile", "connectionerror"):
        assert kinds(harbor, none) == [], none
    found = harbor.dead(error="ConnectionError")
    assert (found.count().n, len(found.summary("error")), len(found.preview(1))) == (2, 2, 1)


def test_a_bare_name_changes_nothing_and_the_error_lists_the_full_names(harbor: Harbor) -> None:
    for change in (harbor.dead(error="ConnectionError").requeue, harbor.dead(error="ConnectionError").delete):
        for dry_run in (False, True):
            with pytest.raises(ValueError, match=f"'builtins.ConnectionError', '{HERE}.ConnectionError'"):
                change(dry_run=dry_run)
    with pytest.raises(ValueError, match=r"full name.*'zipfile\.BadZipFile'"):
        harbor.dead(error="BadZipFile").delete()
    assert kinds(harbor) == without()
    assert harbor.dead(error="ConnectionError", queue="elsewhere").delete().run().done == 0, "the rest of the filter"


def test_a_bare_name_of_a_builtin_means_it_if_no_other_class_has_that_name(harbor: Harbor) -> None:
    assert harbor.dead(error=ConnectionError).delete().run().done == 1
    assert harbor.dead(error="ConnectionError").delete(dry_run=True).count.n == 1
    assert harbor.dead(error="ConnectionError").delete().run().done == 1
    assert harbor.dead(error="NoSuch").delete().run().done == 0
    assert kinds(harbor) == without("builtin", "own")


def test_the_error_of_a_dead_job_has_the_name_that_its_record_has(harbor: Harbor) -> None:
    told = {}
    for info in harbor.dead():
        with pytest.raises(JobDead) as caught:
            harbor.job(info.job.id).result()
        told[info.job.type] = caught.value.error_class
        assert caught.value.error_class == info.job.error_class
    assert (told["builtin"], told["zip"]) == ("ConnectionError", "zipfile.BadZipFile")
    assert told["own"] == f"{HERE}.ConnectionError"
