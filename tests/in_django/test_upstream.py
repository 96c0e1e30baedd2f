"""Django's own tests of the tasks API hold for our backend."""

import json
import re
import subprocess

from tests.in_django.environment import described, python, version
from tests.in_django.site_program import PATIENCE, SITE, clean
from tests.in_django.upstream import LEFT_OUT, NOT_IN_6_0, OF_THE_BACKPORT, sources


def test_those_that_hold_for_every_backend() -> None:
    folder = sources()
    left_out = {**LEFT_OUT, **(OF_THE_BACKPORT if version() < (6, 0) else {})}
    done = subprocess.run(
        [python(), str(SITE / "run_upstream.py"), str(folder), json.dumps(list(left_out))],
        cwd=SITE,
        env=clean({}),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, f"{described()}\n{done.stdout}\n{done.stderr}"
    found = re.search(r"(\d+) tests of Django's, 0 failed", done.stdout)
    assert found is not None
    assert int(found[1]) >= (62 if version() >= (6, 1) else 56)


def test_what_is_left_out_exists() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in (sources() / "tasks").glob("test_*.py"))
    for name in LEFT_OUT.keys() - (NOT_IN_6_0 if version() == (6, 0) else set()):
        case, _, test = name.partition(".")
        assert f"class {case}(" in text
        assert test == "*" or f"def {test}(self" in text, name
