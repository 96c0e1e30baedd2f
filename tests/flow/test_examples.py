"""The two examples of flows, run as a user runs them: one command, and the story they tell."""

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def told(script: str, folder: Path, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *arguments],
        env={**os.environ, "PYTHONWARNINGS": "error", "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_the_csv_import_fails_is_corrected_and_goes_on_where_it_failed(tmp_path: Path) -> None:
    lines = told("csv_import/app.py", tmp_path)
    assert lines[0] == "split: 1200 lines in 5 chunks"
    assert sum(line.startswith("load: ") for line in lines) == 5  # each chunk once, though one had to be repeated
    assert lines.count("on_failure: line 778: expected cents, got '12,50'") == 1
    assert "the import is failed at 4 of 6 jobs: line 778: expected cents, got '12,50'" in lines
    resumed = lines[next(n for n, line in enumerate(lines) if line.startswith("the file is corrected")) + 1 :]
    assert resumed[0] == "load: lines 752 to 1001"
    assert resumed[1] == "commit: 1200 orders from 5 chunks, in one transaction"
    assert resumed[2].startswith("the import has succeeded: 1200 lines, 1200 orders in the shop")
    assert list(tmp_path.iterdir()) == []


def test_the_csv_import_takes_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("order,customer,cents\nA1,Ada,100\nA2,Bob,250\n", encoding="utf-8")
    assert told("csv_import/app.py", tmp_path, str(tmp_path / "mine.csv"))[-1].endswith(
        "2 orders in the shop, 3.50 in all"
    )
    (tmp_path / "none.csv").write_text("order,customer,cents\n", encoding="utf-8")
    empty = told("csv_import/app.py", tmp_path, str(tmp_path / "none.csv"))
    assert "commit: 0 orders from 0 chunks, in one transaction" in empty


def test_the_thumbnails(tmp_path: Path) -> None:
    lines = told("thumbnails/app.py", tmp_path)
    assert lines[:2] == [
        "enqueued: 12 pictures and a sheet, 0 of 13 jobs done",
        "the flow has succeeded, 13 of 13 jobs done",
    ]
    assert lines[2].startswith("the sheet has 640 x 360 pixels: ")
    assert list(tmp_path.iterdir()) == []
