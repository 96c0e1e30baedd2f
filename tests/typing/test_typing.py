"""Right calls type-check, wrong calls are type errors: the cases, run through mypy --strict and pyright in its strict
mode, and compared by line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

CASES = Path(__file__).parent / "cases"
MARK = re.compile(r"# E: (.+)$")
DIFFERS = "# pyright takes"  # a line that pyright refuses although it is right, with the reason
REPORT = re.compile(r"^(?:.*[/\\])?(?P<file>\w+\.py):(?P<line>\d+): error: (?P<text>.*?)  \[(?P<code>[\w-]+)\]$")


def expected() -> set[tuple[str, int, str]]:
    found = set()
    for path in CASES.glob("*.py"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            mark = MARK.search(line)
            for code in mark[1].split() if mark else ():
                found.add((path.name, number, code))
    return found


def test_mypy_reports_exactly_the_marked_lines() -> None:
    files = sorted(str(path) for path in CASES.glob("*.py"))
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", "--hide-error-context"]
    environment = {**os.environ, "MYPY_CACHE_DIR": str(CASES.parents[2] / ".mypy_cache" / "typing-cases")}
    done = subprocess.run([*command, *files], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    reported = set()
    for line in done.stdout.splitlines():
        match = REPORT.match(line)
        if match is not None:
            reported.add((match["file"], int(match["line"]), match["code"]))
        else:
            assert ": note: " in line, line
    marked = expected()
    assert len(marked) > 20
    assert reported - marked == set(), done.stdout
    assert marked - reported == set(), "these lines should be type errors and are none"


def test_pyright_reports_exactly_the_marked_lines(tmp_path: Path) -> None:
    # basedpyright is pyright with a node of its own: pyright's wheel downloads one when it is first started.
    settings = {"include": [str(CASES)], "typeCheckingMode": "strict", "pythonVersion": "3.11"}
    project = tmp_path / "pyrightconfig.json"
    project.write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "-p", str(project), "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == len(list(CASES.glob("*.py")))
    reported = {(Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in found["generalDiagnostics"]}
    marked = {(file, line) for file, line, _ in expected()}
    differs = {
        (path.name, number)
        for path in CASES.glob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if DIFFERS in line
    }
    assert reported - marked == differs, done.stdout
    assert marked - reported == set(), "these lines should be type errors and are none"
