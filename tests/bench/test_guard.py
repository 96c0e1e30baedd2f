"""The guard of speed: what it compares, and that the program it counts still runs. Nothing is counted here."""

import gc
import os
import sys
from pathlib import Path

import pytest

from bench.guard import __main__ as guard
from bench.guard import callgrind, program

pytestmark = pytest.mark.lane("bench")


def test_a_figure_may_rise_by_three_percent() -> None:
    kept = {"memory": {"work": 1000}, "sqlite": {"work": 1000}}
    (_, above), (_, noisy) = guard.compare(kept, {"memory": {"work": 1030}, "sqlite": {"work": 1100}})
    assert not above
    assert not noisy
    ((line, above),) = guard.compare(kept, {"memory": {"work": 1031}})
    assert above
    assert line.endswith("+3.1%  allowed +3%  ABOVE")
    ((line, above),) = guard.compare(kept, {"redis": {"work": 10}})
    assert not above
    assert line.endswith("nothing kept")


def test_the_cost_of_a_job_is_what_the_long_section_costs_beyond_the_short_one(tmp_path: Path) -> None:
    for number in range(1, 4 * program.ROUNDS * len(program.WAYS) + 1):
        section = number // 2 - 1  # short and long in turn, round after round, way after way
        way = list(program.WAYS.values())[section // 2 // program.ROUNDS] if number % 2 == 0 else (0, 0)
        second_round = section // 2 % program.ROUNDS
        total = 5000 + 70 * way[section % 2] + second_round  # the least counts
        (tmp_path / f"part.{number}").write_text(f"events: Ir\ntotals: {total}\n")
    assert callgrind._a_job(callgrind._sections(tmp_path)) == dict.fromkeys(program.WAYS, 70)
    (tmp_path / "part.1").unlink()
    with pytest.raises(callgrind.Failed, match="parts from callgrind"):
        callgrind._sections(tmp_path)


def test_the_program_runs_and_marks_each_section(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = 0

    def mark(process: int) -> int:
        nonlocal marks
        marks += 1
        return process

    monkeypatch.setattr(os, "getpgid", mark)
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: None)
    monkeypatch.setattr(gc, "disable", lambda: None)
    program.main("memory://guard-test")
    assert marks == 4 * program.ROUNDS * len(program.WAYS)


def test_without_valgrind_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert guard.main(["memory"]) == 2
    assert "apt-get install valgrind" in capsys.readouterr().err
