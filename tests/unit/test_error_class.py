"""The name of an exception's class: the same for every caller, storable, and another one for another class."""

import builtins
import json
import queue
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import psycopg
import pytest

import taskharbor
from taskharbor.model.bounds import check_label
from taskharbor.model.error_class import error_class_of, error_query, full_error_name, stored_error_name


class Outer:
    class Inner(Exception):
        """Nested."""


def local(module: str | None = None) -> type[Exception]:
    class Local(Exception):
        pass

    if module is not None:
        Local.__module__ = module
    return Local


class Shifty(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(name)


class Hostile(Exception, metaclass=Shifty):
    """Its metaclass tells nothing."""


NAMES: dict[str, type] = {
    "KeyError": KeyError,
    "OSError": socket.error,  # an alias
    "TimeoutError": socket.timeout,  # an alias
    "zipfile.BadZipFile": zipfile.BadZipFile,
    "json.decoder.JSONDecodeError": json.JSONDecodeError,  # has another name where it is imported from
    "_queue.Empty": queue.Empty,  # of an extension
    "taskharbor.JobDead": taskharbor.JobDead,
    f"{__name__}.Outer.Inner": Outer.Inner,
    f"{__name__}.local.<locals>.Local": local(),
    f"{__name__}.Hostile": Hostile,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_class_has_its_module_and_qualified_name(name: str):
    assert error_class_of(NAMES[name]) == name
    assert stored_error_name(full_error_name(name)) == name
    assert error_query(full_error_name(name)) == {"error_class": name}


def test_a_class_of_a_driver_library_is_named_by_its_module():
    assert error_class_of(psycopg.errors.UniqueViolation) == "psycopg.errors.UniqueViolation"
    assert error_class_of(psycopg.OperationalError) == f"{psycopg.OperationalError.__module__}.OperationalError"


LONG = "x" * 300
ODD = {
    "says that it is Python's own": type("ConnectionError", (Exception,), {"__module__": "builtins"}),
    "module is a number": type("ConnectionError", (Exception,), {"__module__": 7}),
    "module is empty": type("ConnectionError", (Exception,), {"__module__": ""}),
    "long": type("A", (Exception,), {"__module__": LONG}),
    "long with another end": type("B", (Exception,), {"__module__": LONG}),
    "accented": type("é" * 200, (Exception,), {}),
    "not storable": type("A", (Exception,), {"__module__": "a\ud800b"}),
    "not storable otherwise": type("A", (Exception,), {"__module__": "a\x00b"}),
}


def test_odd_names_can_be_stored_and_are_those_of_no_other_class():
    names = {what: error_class_of(kind) for what, kind in ODD.items()}
    for name in names.values():
        check_label(name, "error_class")
        assert error_query(full_error_name(name)) == {"error_class": name}, "never bare"
    same = {"says that it is Python's own", "module is a number"}  # both are known by nothing but their own name
    assert len(set(names.values())) == len(names) - len(same) + 1
    assert error_class_of(builtins.ConnectionError) not in names.values()


def test_an_empty_name_is_that_of_no_class():
    assert (full_error_name(""), stored_error_name(""), error_query("")) == ("", "", {"error_class": ""})


SCRIPT = """
import sys
from taskharbor.model.error_class import error_class_of
class Mine(Exception): ...
print(error_class_of(Mine))
Mine.__module__ = "__mp_main__"
print(error_class_of(Mine))
"""


def test_a_class_of_a_script_has_the_name_that_a_worker_gives_it_which_imports_the_file(tmp_path: Path):
    path = tmp_path / "shop.py"
    path.write_text(SCRIPT)

    def told(*arguments: str) -> list[str]:
        return subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.split()

    assert told(str(path)) == told("-m", "shop") == ["shop.Mine"] * 2
    assert told("-c", "import shop")[0] == "shop.Mine"
    assert told("-c", SCRIPT) == ["__main__.Mine"] * 2, "there is no file to import"
