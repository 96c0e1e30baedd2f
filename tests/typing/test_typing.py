"""Right calls type-check, wrong calls are type errors: the cases, run through mypy --strict and compared by line."""

import os
import re
import subprocess
import sys
from pathlib import Path

CASES = Path(__file__).parent / "cases"
MARK = re.compile(r"# E: (.+)$")
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
