"""Writes docs/licences.md from the metadata of what is installed: `python -m tests.release.licences`.

It follows the requirements of the package and of each extra for users, on every supported Python. A licence that is not
in ALLOWED is a failure until a person has read it and added it there.
"""

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import Distribution
from importlib.metadata import distribution as read_distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.lanes import ROOT
from tests.matrix import supported

PAGE = ROOT / "docs" / "licences.md"
FOR_CONTRIBUTORS = {"tests", "dev", "bench", "docs"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOR_USERS = [extra for extra in PROJECT["optional-dependencies"] if extra not in FOR_CONTRIBUTORS]

# Licence as the metadata writes it → its SPDX name.
ALLOWED = {
    "MIT": "MIT",
    "MIT License": "MIT",
    "BSD-2-Clause": "BSD-2-Clause",
    "BSD-3-Clause": "BSD-3-Clause",
    "Apache-2.0": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache-2.0 OR BSD-2-Clause": "Apache-2.0 OR BSD-2-Clause",
    "Apache-2.0 AND BSD-2-Clause": "Apache-2.0 AND BSD-2-Clause",
    "PSF-2.0": "PSF-2.0",
    "MPL-2.0": "MPL-2.0",
    "LGPL-3.0-only": "LGPL-3.0-only",
}
# The metadata names only a family; the text is in the file LICENSE.
READ = {"cronsim": "BSD-3-Clause", "Jinja2": "BSD-3-Clause", "sqlparse": "BSD-3-Clause"}
NOTES = {
    "LGPL-3.0-only": "weak copyleft: it is imported, unchanged, and can be replaced",
    "MPL-2.0": "weak copyleft, by file: it is imported, unchanged",
}

HEAD = """# Licences

TaskHarbor is under the [MIT licence](../LICENSE). Its wheel also contains three files of others, for the dashboard: htmx and idiomorph (0BSD) and uPlot (MIT), with
their texts in `src/taskharbor/dashboard/licences/`. Below is what `pip install` brings beside it, and the licence that the metadata of each package states.
`make docs` writes this page from the packages that are installed, in the versions of `constraints.txt` and for the newest patch release of each supported Python. A test
compares it, and refuses a licence that was not reviewed.

## Always
"""  # noqa: E501  a page, whose lines are longer


@cache
def distribution(name: str) -> Distribution:
    return read_distribution(name)


def licence(found: Distribution) -> str:
    """The licence by the newest field of the metadata that is filled."""
    if found.name in READ:
        return READ[found.name]
    fields = found.metadata.json
    families = [line.rpartition(" :: ")[2] for line in fields.get("classifier", ()) if line.startswith("License ::")]
    stated = str(fields.get("license_expression") or fields.get("license") or " AND ".join(families))
    written = stated if len(stated) < 60 else " AND ".join(families)  # a longer one is the whole text
    if written not in ALLOWED:
        raise ValueError(f"{found.name}: the licence {written!r} is not in ALLOWED of tests/release/licences.py")
    return ALLOWED[written]


@cache
def asked_by(name: str, extra: str) -> list[Requirement]:
    """What a package requires for an extra ("": without one), on the newest patch of any supported Python."""
    places = [{"extra": extra, "python_version": each, "python_full_version": f"{each}.99"} for each in supported()]
    wanted = [Requirement(text) for text in distribution(name).requires or ()]
    return [each for each in wanted if each.marker is None or any(each.marker.evaluate(place) for place in places)]


def needed(extra: str) -> set[str]:
    """The names of everything that `taskharbor` or `taskharbor[extra]` installs."""
    names: set[str] = set()
    waiting = [("taskharbor", each) for each in {"", extra}]
    seen = set(waiting)
    while waiting:
        name, asked = waiting.pop()
        for wanted in asked_by(name, asked):
            found = str(canonicalize_name(wanted.name))
            names.add(found)
            new = {(found, each) for each in ("", *wanted.extras)} - seen
            seen |= new
            waiting += new
    return names - {"taskharbor"}


def rows(names: set[str]) -> Iterator[str]:
    yield "| package | licence | |"
    yield "| --- | --- | --- |"
    for name in sorted(names):
        found = distribution(name)
        stated = licence(found)
        yield f"| [{found.name}](https://pypi.org/project/{name}/) | {stated} | {NOTES.get(stated, '')} |"


def page() -> str:
    always = needed("")
    text = [HEAD, *rows(always)]
    for extra in FOR_USERS:
        text += ["", f"## With `[{extra}]`", "", *rows(needed(extra) - always)]
    text += ["", "Tools of contributors are not distributed, and not listed.", ""]
    return "\n".join(text).replace(" |  |", " | |")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
