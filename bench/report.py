"""The report: the same rows as text for a terminal and as Markdown for docs/benchmarks.md."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.figures import Figure, Result, percentile, rate, ratio, results
from bench.rounds import Samples, Sizes
from bench.subjects import LATENCY, SUBJECTS

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
HEAD = ("", "jobs/s", "lowest – highest", "µs a job", "wall jobs/s", "ratio")
LATENCY_HEAD = ("", "p50", "lowest – highest", "p99", "lowest – highest")
PACKAGES = ("taskharbor", "msgspec", "huey", "taskiq")

Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


def tables(samples: Samples, sizes: Sizes) -> list[Table]:
    """Section, head and rows of everything that was measured."""
    made: dict[str, Table] = {}
    bases: dict[str, str] = {}
    for name, subject in SUBJECTS.items():
        if not samples.get(name):
            continue
        section = subject.section
        title = subject.title.format(backlog=f"{sizes.backlog:,}")
        head = LATENCY_HEAD if section == LATENCY else HEAD
        rows = made.setdefault(section, (section, head, []))[2]
        if section == LATENCY:
            p50, p99 = percentile(samples[name], 50), percentile(samples[name], 99)
            rows.append((title, _ms(p50.median), _span_ms(p50), _ms(p99.median), _span_ms(p99)))
            continue
        base = bases.setdefault(section, name)
        own, wall, compared = rate(samples[name]), rate(samples[name], "wall"), ratio(samples, name, base)
        rows.append(
            (
                title,
                f"{own.median:,.0f}",
                f"{own.least:,.0f} – {own.most:,.0f}",
                f"{1e6 / own.median:.1f}",
                f"{wall.median:,.0f}",
                "1" if compared is None or name == base else f"{compared.median:.2f}",
            )
        )
    return list(made.values())


def text(samples: Samples, sizes: Sizes) -> str:
    """For a terminal."""
    parts = [facts(sizes)]
    for section, head, rows in tables(samples, sizes):
        widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
        lines = [section]
        for row in (head, *rows):
            cells = [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
            lines.append("  " + "  ".join(cells).rstrip())
        parts.append("\n".join(lines))
    parts.append("Aims\n" + "\n".join(f"  {line}" for line in aim_lines(samples)))
    return "\n\n".join(parts)


def markdown(samples: Samples, sizes: Sizes) -> str:
    """For docs/benchmarks.md."""
    parts = [facts(sizes)]
    for section, head, rows in tables(samples, sizes):
        lines = [f"### {section}", "", _row(head), _row(("---", *["---:"] * (len(head) - 1)))]
        parts.append("\n".join([*lines, *map(_row, rows)]))
    parts.append("### Aims\n\n" + "\n".join(f"- {line}" for line in aim_lines(samples)))
    return "\n\n".join(parts)


def aim_lines(samples: Samples) -> list[str]:
    """One line for each aim."""
    return [_aim_line(result) for result in results(samples)]


def facts(sizes: Sizes) -> str:
    """What the figures depend on."""
    versions = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    return (
        f"{os.cpu_count()} cores, {platform.python_implementation()} {platform.python_version()} on "
        f"{platform.system()}; {versions}. {sizes.rounds} rounds, {sizes.jobs:,} jobs each "
        f"({4 * sizes.jobs:,} bare tasks, {sizes.picks} jobs for the latency)."
    )


def write(path: Path, figures: str) -> None:
    """Replace what stands between the markers of a document."""
    content = path.read_text(encoding="utf-8")
    before, begin, rest = content.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path}: expected the markers {BEGIN} and {END}")
    path.write_text(f"{before}{BEGIN}\n\n{figures}\n\n{END}{after}", encoding="utf-8")


def _aim_line(result: Result) -> str:
    if result.ratio is None:
        return f"not measured: {result.aim.text} (`make bench` installs and measures all of them)"
    word = "MISSED" if result.missed else "reached"
    found = result.ratio
    return f"{word}: {result.aim.text}: {found.median:.3f} ({found.least:.2f} – {found.most:.2f} over the rounds)"


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def _span_ms(figure: Figure) -> str:
    return f"{_ms(figure.least)} – {_ms(figure.most)}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
