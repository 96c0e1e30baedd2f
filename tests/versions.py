"""The lowest and the newest version of each library that pyproject.toml allows, as constraints for pip.

    python -m tests.versions lowest > .constraints-lowest.txt

Only libraries that users install with the package are moved: the dependencies and the extras for users. Tools of
contributors stay as constraints.txt pins them, except those that need a newer library than the lowest.
"""

import re
import sys
import tomllib
from collections.abc import Iterator

from tests.lanes import ROOT

ENDS = ("lowest", "newest")
FOR_USERS = ("postgres", "redis", "dashboard", "prometheus", "opentelemetry", "conformance")
FOLLOW = {
    "psycopg-binary",
    "hiredis",
    "opentelemetry-sdk",
    "opentelemetry-semantic-conventions",
    "fastapi",
    "starlette",
}
"""What depends on a version of those libraries: pip chooses it."""

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?>=([0-9.]+)(?:,<([0-9.]+))?")


def requirements() -> Iterator[tuple[str, str, str | None]]:
    """Name, lower bound and upper bound of each library for users."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    declared = [*project["dependencies"]]
    for extra in FOR_USERS:
        declared += project["optional-dependencies"][extra]
    for text in declared:
        found = _REQUIREMENT.fullmatch(text)
        if found is None:
            raise ValueError(f"pyproject.toml: expected name>=lowest or name>=lowest,<bound, got {text!r}")
        yield found[1], found[2], found[3]


def normal(name: str) -> str:
    """A name as the package index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def constraints(end: str) -> list[str]:
    """The lines of a constraints file for the lowest or the newest versions."""
    ours = {normal(name): lowest for name, lowest, _ in requirements()}
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    others = [line for line in pinned if normal(line.partition("==")[0]) not in {*ours, *FOLLOW}]
    return others if end == "newest" else [*others, *(f"{name}=={version}" for name, version in ours.items())]


if __name__ == "__main__":
    if sys.argv[1:] not in [[end] for end in ENDS]:
        sys.exit(f"python -m tests.versions: expected {' or '.join(ENDS)}")
    print("\n".join(constraints(sys.argv[1])))
