"""The benchmark still runs: each subject once, with a handful of jobs, and no timing asserted."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import blocking, figures, layout, report, steps
from bench.__main__ import main
from bench.peers import memory as peers
from bench.rounds import Samples, Sizes
from bench.sample import Sample
from bench.subjects import SUBJECTS

JOBS, BACKLOG = 100, 50
OURS = [name for name, subject in SUBJECTS.items() if not subject.peer]
PEERS = [name for name, subject in SUBJECTS.items() if subject.peer]


@pytest.fixture
def signal_handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    assert {number: signal.getsignal(number) for number in before} == before


@pytest.mark.parametrize("name", OURS)
def test_a_subject_runs_every_job(name: str) -> None:
    sample = SUBJECTS[name].run(JOBS, BACKLOG)
    # A worker that its handler stops runs a few more before it stops; they are counted as well.
    assert JOBS <= sample.jobs <= JOBS + (BACKLOG if name == "before-ready" else 0)
    assert len(sample.latencies) == (JOBS if name == "latency" else 0)
    assert name == "latency" or sample.wall > 0


@pytest.mark.may_skip("the others are installed by `make bench` only")
@pytest.mark.usefixtures("signal_handlers")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PEERS)
def test_a_peer_runs_every_job(name: str) -> None:
    if not peers.installed(SUBJECTS[name].peer):
        pytest.skip(f"{SUBJECTS[name].peer} is not installed")
    assert SUBJECTS[name].run(JOBS, 0).jobs == JOBS


def test_blocking_calls_are_compared() -> None:
    rates = blocking.measure("memory://", {blocking.HAND: lambda number: None}, jobs=5, rounds=2)
    assert {name: len(each) for name, each in rates.items()} == {"blocking": 2, "awaited": 2, "hand-written": 2}
    assert "memory: 0.50 of awaited (0.25 … 0.75)" in blocking.report(
        "memory", {"blocking": [1.0, 3.0], "awaited": [4.0, 4.0]}
    )


def test_the_steps_are_measured() -> None:
    text = steps.report(rounds=1, jobs=JOBS)
    assert all(step in text for step in (*steps.WORKER, *steps.CLIENT, "the rest", "a bare asyncio task"))


def test_a_sample_is_printed_for_the_parent(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sample", "bare", "100", "0"]) == 0
    assert '"jobs":100' in capsys.readouterr().out


# Figures


def samples(**rates: list[int]) -> Samples:
    return {name: [Sample(rate, wall=2.0, cpu=1.0) for rate in each] for name, each in rates.items()}


def test_ratios_are_compared_round_by_round() -> None:
    found = figures.ratio(samples(process=[30, 60, 90], bare=[100, 100, 300]), "process", "bare")
    assert found == figures.Figure(0.3, 0.3, 0.6)


def test_an_aim_is_missed_reached_or_not_measured() -> None:
    aims = figures.results(samples(process=[29], bare=[100], taskiq=[28]))
    assert [result.missed for result in aims] == [True, False, False, False, False]
    assert [result.ratio is None for result in aims] == [False, True, False, True, True]
    lines = report.aim_lines(samples(process=[29], bare=[100], taskiq=[28]))
    assert [line.split(":")[0] for line in lines] == [
        "MISSED",
        "not measured",
        "reached",
        "not measured",
        "not measured",
    ]


def test_the_figures_of_a_document_are_replaced_and_nothing_else(tmp_path: Path) -> None:
    taken = samples(process=[30], bare=[100])
    taken["latency"] = [Sample(3, latencies=(0.001, 0.002, 0.003))]
    page = tmp_path / "page.md"
    begin, end = layout.markers("memory")
    page.write_text(f"# Title\n\n{begin}\nold\n{end}\n\nthe end\n", encoding="utf-8")
    for _ in range(2):
        layout.write(page, "memory", report.markdown(taken, Sizes()))
        content = page.read_text(encoding="utf-8")
        assert content.startswith("# Title\n\n<!--")
        assert content.endswith("-->\n\nthe end\n")
        assert "old" not in content
        assert "| taskharbor | 30 |" in content
        assert "2.00 ms" in content
    page.write_text("no markers", encoding="utf-8")
    with pytest.raises(ValueError, match="expected the markers"):
        layout.write(page, "sqlite", "")
