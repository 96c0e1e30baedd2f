"""What the pages load: known files, small, with their licences; and templates without a hole in the policy."""

import hashlib
import re
import tomllib
from pathlib import Path

import pytest

import taskharbor.dashboard
from taskharbor.dashboard.assets import assets

ROOT = Path(taskharbor.dashboard.__file__).parent
MAX_BYTES = 152_000
VENDORED = tomllib.loads((ROOT / "vendored.toml").read_text())
TEMPLATES = sorted((ROOT / "templates").glob("*.html"))


def test_what_is_vendored_is_what_was_published():
    folder = ROOT / "static" / "vendor"
    assert {path.name for path in folder.iterdir()} == set(VENDORED)
    for name, facts in VENDORED.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == facts["sha256"], name
        assert facts["version"] in facts["source"]
        assert (ROOT / facts["text"]).read_text().strip()


def test_all_files_together_are_small():
    total = sum(len(content) for content, _ in assets().values())
    assert total < MAX_BYTES


def test_nothing_is_loaded_from_elsewhere():
    own = [path for path in (ROOT / "static").iterdir() if path.is_file()]
    for path in [*TEMPLATES, *own]:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"(https?:)?//[a-z0-9-]+\.[a-z]{2,}", text.replace("ada@example.com", "")), path.name


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_no_hole_in_the_policy(path: Path):
    text = path.read_text()
    assert not re.search(r"\|\s*safe\b", text), "everything is escaped"
    assert "autoescape" not in text
    assert "Markup" not in text
    assert not re.search(r"\sstyle\s*=", text), "no inline style"
    assert not re.search(r"\son[a-z]+\s*=", text), "no inline script"
    assert not re.search(r"hx-on|hx-vals=.js:|javascript:", text), "nothing that is evaluated"
    for script in re.findall(r"<script\b[^>]*>(.*?)</script>", text, re.S):
        assert script == "", "no inline script"
