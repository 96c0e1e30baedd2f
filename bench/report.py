"""The report of memory://: the same rows as text for a terminal and as Markdown for docs/benchmarks.md."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from bench.figures import Result, percentile, rate, ratio, results
from bench.layout import LATENCY_HEAD, Table, as_markdown, as_text, machine, ms, span, span_ms
from bench.rounds import Samples, Sizes
from bench.subjects import LATENCY, SUBJECTS

HEAD = ("", "jobs/s", "lowest – highest", "µs a job", "wall jobs/s", "ratio")
PACKAGES = ("taskharbor", "msgspec", "huey", "taskiq")


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
            rows.append((title, ms(p50.median), span_ms(p50), ms(p99.median), span_ms(p99)))
            continue
        base = bases.setdefault(section, name)
        own, wall, compared = rate(samples[name]), rate(samples[name], "wall"), ratio(samples, name, base)
        rows.append(
            (
                title,
                f"{own.median:,.0f}",
                span(own),
                f"{1e6 / own.median:.1f}",
                f"{wall.median:,.0f}",
                "1" if compared is None or name == base else f"{compared.median:.2f}",
            )
        )
    return list(made.values())


def text(samples: Samples, sizes: Sizes) -> str:
    """For a terminal."""
    return as_text(facts(sizes), tables(samples, sizes), aim_lines(samples))


def markdown(samples: Samples, sizes: Sizes) -> str:
    """For docs/benchmarks.md."""
    return as_markdown(facts(sizes), tables(samples, sizes), aim_lines(samples))


def aim_lines(samples: Samples) -> list[str]:
    """One line for each aim."""
    return [_aim_line(result) for result in results(samples)]


def facts(sizes: Sizes) -> str:
    """What the figures depend on."""
    versions = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    fewer = min(sizes.rounds, sizes.long_rounds)
    return (
        f"{machine()}; {versions}. {sizes.rounds} rounds ({fewer} beside a backlog), {sizes.jobs:,} jobs each "
        f"({4 * sizes.jobs:,} bare tasks, {sizes.picks} jobs for the latency)."
    )


def _aim_line(result: Result) -> str:
    if result.ratio is None:
        return f"not measured: {result.aim.text} (`make bench` installs and measures all of them)"
    word = "MISSED" if result.missed else "reached"
    found = result.ratio
    return f"{word}: {result.aim.text}: {found.median:.3f} ({found.least:.2f} – {found.most:.2f} over the rounds)"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
