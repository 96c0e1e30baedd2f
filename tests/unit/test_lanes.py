"""The lane comparison notices what it is there for, and pytest really feeds it: a lane cannot go missing in silence."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import lanes

LIST = lanes.read_list("alpha 10\nbeta 20 matrix  # also on other servers\n\n# a comment\n")


def passed(number: int, seconds: float = 0.0, **left: int) -> lanes.Record:
    return lanes.Record(Counter(passed=number), seconds, Counter(left))


# The list


def test_list_knows_names_and_runs() -> None:
    assert [lane.name for lane in LIST] == ["alpha", "beta"]
    assert LIST[0].runs == {"test", "full"}
    assert LIST[1].runs == {"test", "full", "matrix"}
    assert [lane.ceiling for lane in LIST] == [10, 20]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("alpha 10 choas", "line 1: expected test, quick, full, matrix, chaos, soak, got choas"),
        ("alpha 10\nalpha 10", "line 2: alpha is listed twice"),
        ("alpha 10 +mysql", "line 1: expected postgres, pgbouncer, redis, chromium, django, faketime, got mysql"),
        ("alpha", "line 1: expected a ceiling in seconds after alpha, got ''"),
        ("alpha chaos", "line 1: expected a ceiling in seconds after alpha, got 'chaos'"),
    ],
)
def test_list_refuses_what_it_does_not_know(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        lanes.read_list(text)


def test_a_lane_names_the_servers_that_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert lanes.read_list("alpha 10 chaos +postgres +redis")[0].servers == ("postgres", "redis")
    assert (lanes.main(["servers", "unit"]), capsys.readouterr().out) == (0, "none\n")
    assert (lanes.main(["servers", "pgbouncer"]), capsys.readouterr().out) == (0, "postgres pgbouncer\n")
    assert lanes.main(["servers", "unti"]) == 2
    assert "got 'unti'" in capsys.readouterr().err


def test_own_list_is_well_formed() -> None:
    assert lanes.listed()


def test_all_lanes_together_take_nine_minutes() -> None:
    processes, seconds = 4, 540
    assert sum(lane.ceiling for lane in lanes.listed()) <= processes * seconds


def test_every_directory_leads_to_a_listed_lane() -> None:
    assert set(lanes.DIRECTORIES.values()) <= {lane.name for lane in lanes.listed()}


@pytest.mark.parametrize(
    ("path", "lane"),
    [
        ("tests/unit/test_x.py", "unit"),
        ("tests/unit/deeper/test_x.py", "unit"),
        ("tests/architecture/test_names.py", "architecture"),
        ("tests/architecture/test_mutants.py", "mutants"),
        ("tests/units/test_x.py", None),
        ("tests/test_x.py", None),
    ],
)
def test_lane_by_directory(path: str, lane: str | None) -> None:
    assert lanes.lane_of(path) == lane


# The comparison


def test_all_ran() -> None:
    assert lanes.compare(LIST, {"alpha": passed(3), "beta": passed(1)}) == []


def test_missing_lane_is_named_with_how_to_run_it() -> None:
    (sentence,) = lanes.compare(LIST, {"alpha": passed(3)})
    assert "beta did not run" in sentence
    assert "make lane LANE=beta" in sentence


@pytest.mark.parametrize("tally", [Counter(), Counter(skipped=2), Counter(failed=1, xfailed=1)])
def test_empty_lane_is_named(tally: lanes.Tally) -> None:
    (sentence,) = lanes.compare(LIST, {"alpha": lanes.Record(tally), "beta": passed(1)})
    assert "alpha is empty" in sentence
    assert "make lane LANE=alpha" in sentence
    assert all(f"{number} {kind}" in sentence for kind, number in tally.items())


def test_unlisted_lane_is_named() -> None:
    (sentence,) = lanes.compare(LIST, {"alpha": passed(1), "beta": passed(1), "gamma": passed(9)})
    assert "gamma ran, but tests/lanes.txt does not list it" in sentence


def test_larger_run_wants_its_own_lanes_only() -> None:
    assert lanes.compare(LIST, {"beta": passed(1)}, "matrix") == []
    (sentence,) = lanes.compare(LIST, {}, "matrix")
    assert "TASKHARBOR_LANE=matrix make lane LANE=beta" in sentence


def test_what_a_lane_leaves_to_a_larger_run_must_be_listed_there() -> None:
    assert lanes.compare(LIST, {"alpha": passed(3, full=2), "beta": passed(1, matrix=7)}) == []
    (sentence,) = lanes.compare(LIST, {"alpha": passed(3, matrix=7), "beta": passed(1)})
    assert "alpha leaves 7 test(s) to matrix, where it is not listed" in sentence


def test_records_of_all_processes_add_up(tmp_path: Path) -> None:
    lanes.write_records(tmp_path / "new", "gw0-1", {"alpha": passed(2, 1.5, full=4)})
    mixed = lanes.Record(Counter(passed=1, skipped=1), 2.0, Counter(full=4))
    lanes.write_records(tmp_path / "new", "gw1-2", {"alpha": mixed, "beta": passed(5)})
    assert lanes.read_records(tmp_path / "new") == {
        "alpha": lanes.Record(Counter(passed=3, skipped=1), 3.5, Counter(full=4)),
        "beta": passed(5),
    }


def test_a_lane_above_its_ceiling_is_reported_and_does_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lanes.txt").write_text("alpha 10\nbeta 20\n")
    monkeypatch.setattr(lanes, "LIST", tmp_path / "lanes.txt")
    lanes.write_records(tmp_path / "ran", "main-1", {"alpha": passed(1, 10.0), "beta": passed(2, 21.4, full=3)})
    assert lanes.main(["check", str(tmp_path / "ran")]) == 0
    said = capsys.readouterr().out
    assert "alpha      1 passed     10 of  10 s\n" in said
    assert "beta       2 passed     21 of  20 s  (3 more in full)\n" in said
    assert said.count("WARNING") == 1
    assert "WARNING: lane beta took 21 s, its ceiling is 20 s" in said
    assert lanes.main(["check", str(tmp_path / "ran"), "--run", "full"]) == 0
    assert "WARNING" not in capsys.readouterr().out, "ceilings are those of make test"


@pytest.mark.parametrize(
    ("ran", "code", "complaint"),
    [
        ({"alpha": passed(1), "beta": passed(2)}, 0, ""),
        ({"beta": passed(2)}, 1, "lane alpha did not run"),
        ({"alpha": lanes.Record(Counter(skipped=1)), "beta": passed(2)}, 1, "lane alpha is empty"),
        ({"alpha": passed(1), "beta": passed(2), "gamma": passed(1)}, 1, "lane gamma ran"),
    ],
)
def test_check_command(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ran: dict[str, lanes.Record],
    code: int,
    complaint: str,
) -> None:
    (tmp_path / "lanes.txt").write_text("alpha 10\nbeta 10\n")
    monkeypatch.setattr(lanes, "LIST", tmp_path / "lanes.txt")
    lanes.write_records(tmp_path / "ran", "main-1", ran)
    assert lanes.main(["check", str(tmp_path / "ran")]) == code
    said = capsys.readouterr()
    assert "beta       2 passed" in said.out
    assert complaint in said.err
    assert bool(said.err) == bool(complaint)


def test_check_of_a_run_that_wrote_nothing_fails(tmp_path: Path) -> None:
    assert lanes.main(["check", str(tmp_path / "nothing")]) == 1


# The knobs


def test_figure_follows_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {}
    for run in lanes.RUNS:
        monkeypatch.setenv("TASKHARBOR_LANE", run)
        sizes[run] = (lanes.figure(1), lanes.figure(1, 2), lanes.figure(1, chaos=3), lanes.figure(1, 2, 3))
    small = (1, 1, 1, 1)
    larger = {"full": (1, 2, 1, 2), "chaos": (1, 2, 3, 3)}
    assert sizes == {"test": small, "quick": small, "matrix": small, "soak": small, **larger}
    monkeypatch.setenv("TASKHARBOR_LANE", "kaos")
    with pytest.raises(ValueError, match="expected test, quick, full, matrix, chaos, soak, got 'kaos'"):
        lanes.run()


def test_soak_stops_at_the_first_failing_round_and_says_how_to_repeat_it(capfd: pytest.CaptureFixture[str]) -> None:
    child = "import os, sys; sys.exit(7 if os.environ['TASKHARBOR_LANE'] == 'soak' else 0)"
    assert lanes.soak([sys.executable, "-c", child], budget=60) == 7
    said = capfd.readouterr()
    assert said.out.count("soak: ") == 1
    assert "TASKHARBOR_SEED=" in said.err


# What pytest writes down: a small project with this conftest, run by a pytest of its own

SAMPLE = """
import pytest

@pytest.mark.parametrize("n", range(6))
def test_by_directory(n): pass

@pytest.mark.lane("alpha", "beta")
def test_of_two_lanes(): pass

@pytest.mark.lane("gamma")
def test_skipped(): pytest.skip("no server")

@pytest.mark.lane("gamma")
@pytest.mark.may_skip("needs a machine with a server")
def test_allowed_skip(): pytest.skip("no server")

@pytest.mark.lane("gamma")
@pytest.mark.xfail(reason="known", strict=True)
def test_expected_failure(): assert False

@pytest.fixture
def broken():
    yield
    raise RuntimeError("teardown")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("tests/conftest.py", "tests/lanes.py", "tests/lanes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(lanes.ROOT / name, tmp_path / name)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\ntestpaths = tests\npythonpath = .\naddopts = --import-mode=importlib --strict-markers\n"
    )
    (tmp_path / "tests/unit").mkdir()
    (tmp_path / "tests/unit/test_sample.py").write_text(SAMPLE)
    return tmp_path


def pytest_in(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "TASKHARBOR", "CI"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "no:cacheprovider", "-q", *arguments],
        cwd=project,
        env={**clean, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},  # other plugins only take time to load
        capture_output=True,
        text=True,
    )


def recorded(project: Path) -> dict[str, dict[str, int]]:
    return {name: dict(record.tally) for name, record in lanes.read_records(project / ".lanes").items()}


@pytest.mark.left_to("full")
def test_xdist_workers_write_down_what_passed(project: Path) -> None:
    done = pytest_in(project, "-n", "2", TASKHARBOR_LANES=".lanes")
    assert done.returncode == 0, done.stdout
    assert recorded(project) == {
        "unit": {"passed": 6},
        "alpha": {"passed": 1},
        "beta": {"passed": 1},
        "gamma": {"skipped": 2, "xfailed": 1},
    }
    assert all(file.name.startswith("gw") for file in (project / ".lanes").iterdir())


def test_skip_in_ci_is_a_failure_unless_it_says_why(project: Path) -> None:
    done = pytest_in(project, CI="true", TASKHARBOR_LANES=".lanes")
    assert done.returncode == 1
    assert "Skipped in CI: Skipped: no server" in done.stdout
    assert "FAILED tests/unit/test_sample.py::test_skipped" in done.stdout
    assert "FAILED tests/unit/test_sample.py::test_allowed_skip" not in done.stdout
    assert recorded(project)["gamma"] == {"failed": 1, "skipped": 1, "xfailed": 1}


def test_module_skipped_in_ci_is_a_failure(project: Path) -> None:
    (project / "tests/unit/test_sample.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    assert pytest_in(project).returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    done = pytest_in(project, CI="true")
    assert done.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    assert "Skipped in CI: " in done.stdout


def test_body_that_passes_with_a_broken_teardown_does_not_count(project: Path) -> None:
    (project / "tests/unit/test_sample.py").write_text(f"{SAMPLE}\ndef test_broken(broken): pass\n")
    pytest_in(project, "--lane=unit", TASKHARBOR_LANES=".lanes")
    assert recorded(project) == {"unit": {"passed": 6, "failed": 1}}


def test_pytest_started_by_a_test_counts_nothing(project: Path) -> None:
    inner = project / "tests/unit/test_sample.py"
    (project / "tests/client").mkdir()
    (project / "tests/client/test_outer.py").write_text(
        "import subprocess, sys\n"
        "def test_outer():\n"
        f"    argv = [sys.executable, '-m', 'pytest', {str(inner)!r}]\n"
        "    assert subprocess.run(argv).returncode == 0\n"
    )
    done = pytest_in(project, "-n", "1", "tests/client", TASKHARBOR_LANES=".lanes")
    assert done.returncode == 0, done.stdout
    assert recorded(project) == {"client": {"passed": 1}}


def test_test_without_a_lane_is_an_error(project: Path) -> None:
    (project / "tests/elsewhere").mkdir()
    (project / "tests/elsewhere/test_lost.py").write_text("def test_lost(): pass\n")
    done = pytest_in(project)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "belong to no lane, the first is tests/elsewhere/test_lost.py::test_lost" in done.stderr


def test_larger_run_selects_its_lanes(project: Path) -> None:
    (project / "tests/lanes.txt").write_text("unit 1\nalpha 1\nbeta 1 matrix\ngamma 1\n")
    done = pytest_in(project, TASKHARBOR_LANE="matrix", TASKHARBOR_LANES=".lanes")
    assert done.returncode == 0, done.stdout
    assert recorded(project) == {"alpha": {"passed": 1}, "beta": {"passed": 1}}
    (file,) = (project / ".lanes").iterdir()
    assert json.loads(file.read_text())["beta"]["tally"] == {"passed": 1}


LEFT = """
import pytest

@pytest.mark.left_to("matrix", except_for=lambda name: name.endswith("sensitive"))
class TestOtherVersion:
    def test_sensitive(self): pass
    @pytest.mark.parametrize("n", range(3))
    def test_the_rest(self, n): pass
"""


CHOSEN = """
import pytest
from tests import lanes

pytestmark = pytest.mark.left_to("full", except_for=lanes.Chosen("test_whole", "test_one[2-two words]", "redis"))

def test_whole(): print("<whole>")
def test_never(): print("<never>")
@pytest.mark.parametrize("word", ["two words", "three"])
@pytest.mark.parametrize("n", [1, 2])
def test_one(n, word): print(f"<{n} {word}>")
@pytest.mark.parametrize("store", ["redis", "redis7"])
def test_on(store): print(f"<{store}>")
@pytest.mark.left_to("matrix")
@pytest.mark.left_to("full", except_for=lanes.Chosen("test_nearer"))
def test_nearer(): print("<nearer>")
"""


@pytest.mark.parametrize(
    ("run", "printed"),
    [
        ("", ["whole", "2 two words", "redis", "nearer"]),
        ("full", ["whole", "never", "1 two words", "2 two words", "1 three", "2 three", "redis", "redis7", "nearer"]),
    ],
)
def test_chosen_tests_run_each_time_and_all_of_them_in_full(project: Path, run: str, printed: list[str]) -> None:
    (project / "tests/lanes.txt").write_text("unit 1\n")
    (project / "tests/unit/test_sample.py").write_text(CHOSEN)
    done = pytest_in(project, "-s", TASKHARBOR_LANES=".lanes", TASKHARBOR_LANE=run)
    assert sorted(re.findall(r"<([\w ]+)>", done.stdout)) == sorted(printed), done.stdout
    assert lanes.read_records(project / ".lanes")["unit"].left == ({} if run else {"full": 5})


def test_a_chosen_name_that_no_test_has_is_an_error(project: Path) -> None:
    (project / "tests/unit/test_sample.py").write_text(CHOSEN.replace('"test_whole", ', '"test_hole", '))
    done = pytest_in(project)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_sample.py: no test is called test_hole" in done.stderr


def test_a_few_of_a_list_are_chosen_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKHARBOR_LANE", raising=False)
    assert lanes.few(range(8), [2, 5]) == [2, 5]
    with pytest.raises(ValueError, match=r"expected some of \[0, 1, 2\], got \[7\]"):
        lanes.few(range(3), [1, 7])
    monkeypatch.setenv("TASKHARBOR_LANE", "full")
    assert lanes.few(range(8), [2, 5]) == list(range(8))


DRAWN = """
import program
from hypothesis import given, strategies as st

@given(st.integers())
def test_drawn(number): print(f"<{number}>")
"""


def test_every_value_is_the_same_each_time_unless_a_seed_is_given(project: Path) -> None:
    """Also when other numbers stand in the program: another commit, or more modules that were imported before."""
    (project / "tests/unit/test_sample.py").write_text(DRAWN)
    drawn = []
    for version, seed in enumerate(([], [], ["--hypothesis-seed=7"])):
        (project / "program.py").write_text(f"NUMBERS = {[*range(1000, 1000 + 100 * version)]}")
        out = pytest_in(project, "-s", "-p", "_hypothesis_pytestplugin", *seed).stdout
        drawn.append(re.findall(r"<(-?\d+)>", out))
    first, again, seeded = drawn
    assert len(first) == len(seeded) == 100
    assert first == again != seeded


@pytest.mark.parametrize(
    ("run", "arguments", "passed", "left"),
    [
        ("", ["-n", "2"], 1, {"matrix": 3}),
        ("matrix", [], 4, {}),
        ("", ["tests/unit/test_sample.py::TestOtherVersion::test_the_rest"], 3, {}),
    ],
)
def test_what_is_left_to_another_run(
    project: Path, run: str, arguments: list[str], passed: int, left: dict[str, int]
) -> None:
    (project / "tests/lanes.txt").write_text("unit 1 matrix\n")
    (project / "tests/unit/test_sample.py").write_text(LEFT)
    done = pytest_in(project, *arguments, TASKHARBOR_LANE=run, TASKHARBOR_LANES=".lanes")
    assert done.returncode == 0, done.stdout
    record = lanes.read_records(project / ".lanes")["unit"]
    assert (record.tally, record.left) == ({"passed": passed}, left)
    assert record.seconds > 0
