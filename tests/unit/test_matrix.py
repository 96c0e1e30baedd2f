"""The matrix finds the Pythons that are here, and names loudly what it did not test."""

import stat
import sys
from pathlib import Path

import pytest

from tests import matrix

MINE = f"{sys.version_info.major}.{sys.version_info.minor}"


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a Python."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", f"{tmp_path}/pyenv")
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", f"{tmp_path}/uv")
    monkeypatch.setattr(matrix, "PLACES", ())
    return tmp_path


def test_every_supported_python_is_known() -> None:
    assert matrix.supported()[0] == "3.11"
    assert MINE in matrix.supported()


@pytest.mark.parametrize("place", ["bin", "pyenv/versions/9.9.1/bin", "uv/cpython-9.9.4-linux/bin"])
def test_a_python_is_found_wherever_it_was_installed(machine: Path, place: str) -> None:
    program(machine / "bin" / "python9.9", "echo pyenv: version not installed >&2; exit 127")  # a shim alone
    program(machine / place / "python9.9", "echo 9.9")
    assert matrix.find("9.9") == f"{machine}/{place}/python9.9"


def test_a_python_of_another_version_or_without_venv_does_not_count(machine: Path) -> None:
    program(machine / "bin" / "python9.9", "echo 9.8")
    program(machine / "pyenv/versions/9.9.1/bin/python9.9", "echo no module named ensurepip >&2; exit 1")
    assert matrix.find("9.9") is None


def test_what_is_not_here_is_named_and_what_fails_fails(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program(machine / "bin" / "python9.8", "echo 9.8")
    program(machine / "bin" / "make", 'echo "$@"; exit "$CODE"')
    monkeypatch.setattr(matrix, "supported", lambda: [MINE, "9.8", "9.9"])
    monkeypatch.setattr("tests.versions.ENDS", ())
    monkeypatch.setattr(matrix, "djangos", lambda: ["django-6.0-9.9"])
    monkeypatch.setenv("CODE", "0")
    assert matrix.main() == 0
    said = capfd.readouterr().out
    assert f"VENV=.venv-9.8 PYTHON={machine}/bin/python9.8 LANES=.lanes-9.8 all-lanes\n" in said
    assert "Python 9.8: all lanes green" in said
    assert "Python 9.9: NOT TESTED" in said
    assert "Django 6.0 on Python 9.9: NOT TESTED" in said
    monkeypatch.setenv("CODE", "2")
    assert matrix.main() == 1
    assert "Python 9.8: FAILED: make VENV=.venv-9.8" in capfd.readouterr().out
