"""The table of docs/reliability.md, made from docs/reliability.json."""

import json
from pathlib import Path
from typing import Any

from tests.survival.scenarios import SCENARIOS
from tests.survival.stores import TITLES

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "docs" / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- made by make chaos: begin -->", "<!-- made by make chaos: end -->"


def seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"


def summary(run: dict[str, Any]) -> str:
    rows = run["rows"]
    faults, jobs = sum(row["faults"] for row in rows), sum(row["jobs"] for row in rows)
    lost, unexplained = sum(row["lost"] for row in rows), sum(row["unexplained"] for row in rows)
    again = sum(row["duplicates"] for row in rows)
    ends = dict.fromkeys((run["commits"][0], run["commits"][-1]))
    versions = ", ".join(f"{name} {version}" for name, version in sorted(run["versions"].items()))
    return (
        f"{len(rows)} rows of {len(SCENARIOS)} scenarios: {faults:,} faults, {jobs:,} jobs, **{lost} lost, "
        f"{unexplained} executed again without a cause** ({again:,} executed again because of a fault).\n\n"
        f"Made on {run['date']} by `{run['command']}` (seed {run['seed']}), {run['minutes']} minutes, from "
        f"{'commits' if len(run['commits']) > 1 else 'commit'} {' to '.join(f'`{commit}`' for commit in ends)}. "
        f"{run['machine']} {versions}."
    )


def lines(run: dict[str, Any]) -> list[str]:
    by_cell = {(row["scenario"], row["store"]): row for row in run["rows"]}
    made = [
        "| scenario | store | faults injected | jobs | lost | unexplained | worst recovery | remarks |",
        "| --- | --- | --- | --: | --: | --: | --: | --- |",
    ]
    for scenario in SCENARIOS:
        first = True
        for store, title in TITLES.items():
            row = by_cell.get((scenario.key, store))
            if row is None:
                continue
            name = f"**{scenario.title}**: {scenario.wanted}" if first else ""
            first = False
            jobs = f"{row['jobs']:,}" if row["jobs"] else "–"
            number = f"{row['faults']:,}: " if row["faults"] else ""
            made.append(
                f"| {name} | {title} | {number}{row['what']} | {jobs} | {row['lost']} | {row['unexplained']} "
                f"| {seconds(row['recovery'])} | {row['note']} |"
            )
    return made


def reasons() -> list[str]:
    """The cells without a row, and why."""
    made = []
    for scenario in SCENARIOS:
        why: dict[str, list[str]] = {}
        for store, reason in scenario.absent.items():
            why.setdefault(reason, []).append(TITLES[store])
        if why:
            told = "; ".join(f"{', '.join(stores)}: {reason}" for reason, stores in why.items())
            made.append(f"- {scenario.title}. {told}.")
    return made


def page(run: dict[str, Any]) -> str:
    """What stands between the markers."""
    parts = [summary(run), "\n".join(lines(run)), "Cells without a row:\n\n" + "\n".join(reasons())]
    return "\n\n".join(parts)


def write(run: dict[str, Any]) -> None:
    DATA.write_text(json.dumps(run, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n{page(run)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    write(json.loads(DATA.read_text(encoding="utf-8")))
