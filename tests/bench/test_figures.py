"""From samples of a store to figures, aims and the report."""

import os
from pathlib import Path

import pytest

from bench import layout, meter
from bench.__main__ import main
from bench.figures import Figure
from bench.stores import command, environments, figures, plan, rounds
from bench.stores.report import Report
from bench.stores.rounds import Run, Sample

pytestmark = pytest.mark.lane("bench")


def sample(rate: float, cpu: float = 1.0, server: float = 0.0) -> Sample:
    return Sample(round(rate), wall=1.0, cpu=cpu, server=server)


def test_ratios_are_compared_round_by_round() -> None:
    samples = {"own": [sample(30), sample(60), sample(90)], "limit": [sample(100), sample(100), sample(300)]}
    assert figures.ratio(samples, "own", "limit") == Figure(0.3, 0.3, 0.6)
    assert figures.ratio(samples, "own", "nobody") is None
    assert figures.ratio(samples, "own", "own") is None


def test_the_servers_processor_time_is_counted() -> None:
    assert figures.cost([sample(10, cpu=1, server=2)]).median == pytest.approx(0.3)
    assert figures.server_share([sample(10, cpu=1, server=2)]).median == pytest.approx(0.2)


def run_of(**rates: float) -> Run:
    samples = {name.replace("_", "-"): [sample(rate)] for name, rate in rates.items()}
    samples["latency-ours"] = [Sample(3, latencies=(0.0025, 0.0025, 0.0025))]
    return Run(samples, {"arq": "it is not installed"})


def test_each_store_has_its_aims() -> None:
    rates = {"narrow_limit": 100, "process_limit": 200, "process_ours": 50, "process_wide_ours": 55}
    run = run_of(**rates, backlog_ours=70, small_ours=100, process_rq=4, process_celery=6)
    told = {store: {result.text: result for result in figures.results(store, run)} for store in plan.STORES}
    assert told["sqlite"]["at least 0.4 of the hand-written loop, each with 16 jobs at a time"].reached
    assert told["sqlite"]["at least 0.4 of the hand-written loop, each with 100 jobs at a time"].missed
    beside = told["sqlite"]["0.4 with 16 slots of a loop that takes 100 at a time"]
    assert (beside.reached, beside.missed) == (False, False)
    assert told["postgres"]["at least 0.6 of the hand-written loop, each with 16 jobs at a time"].missed
    assert told["postgres"]["picked up within 3 ms, p50"].reached
    assert told["redis"]["picked up within 2 ms, p50"].missed
    assert told["redis"]["at least 10 times the best peer, celery, each at its best settings (ours: 100 slots)"].missed
    assert told["redis"]["ahead of rq"].reached
    assert told["redis"]["ahead of arq"].found is None
    assert told["redis"]["at least 0.8 of the throughput beside the large backlog"].missed


def test_the_cost_of_durability_is_shown_but_not_an_aim() -> None:
    run = run_of(process_ours=60, relaxed_ours=100, process_wide_ours=90, relaxed_wide_ours=100)
    told = {result.text: result for result in figures.results("postgres", run)}
    narrow = told["0.8 of its own throughput with claims that are not flushed, 16 slots"]
    assert narrow.found == Figure(0.6, 0.6, 0.6)
    assert (narrow.reached, narrow.missed) == (False, False)
    assert told["0.8 of its own throughput with claims that are not flushed, 100 slots"].reached


def test_the_report_names_what_was_missed_and_who_was_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(narrow_limit=100, process_ours=50)
    page, figures_file = tmp_path / "page.md", tmp_path / "figures.json"
    begin, end = layout.markers("redis")
    page.write_text(f"# Title\n\n{begin}\nold\n{end}\n\nthe end\n", encoding="utf-8")
    report = Report("redis", run, plan.QUICK, "Redis 7")
    assert command.publish(report, str(page), str(figures_file)) == 1
    told = capsys.readouterr()
    assert "bench: redis: missed: at least 0.6 of the hand-written loop, each with 16 jobs at a time" in told.err
    assert "not measured: arq: it is not installed" in told.out
    content = page.read_text(encoding="utf-8")
    assert "| taskharbor, 16 slots | 50 | 50 – 50 |" in content
    assert "old" not in content
    assert content.endswith("the end\n")
    assert '"process-ours"' in figures_file.read_text(encoding="utf-8")


@pytest.mark.parametrize("store", ["memory", *plan.STORES])
def test_the_document_has_a_place_for_every_store(store: str) -> None:
    page = (environments.ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert [page.count(marker) for marker in layout.markers(store)] == [1, 1]


def test_a_document_without_a_place_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    with pytest.raises(SystemExit, match="expected a document"):
        main(["memory", "--write", str(page)])
    page.write_text("# no markers\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="figures of memory: begin"):
        main(["memory", "--write", str(page)])


def test_only_takes_names_of_rows_and_of_subjects() -> None:
    assert [row.name for row in command.chosen("sqlite", ["latency-ours"])] == ["latency-ours"]
    assert {row.subject.name for row in command.chosen("sqlite", ["limit"])} == {"limit"}
    with pytest.raises(SystemExit, match="expected some of"):
        command.chosen("sqlite", ["nobody"])
    with pytest.raises(SystemExit, match="expected some of"):
        main(["memory", "--only", "nobody"])


def test_processor_time_is_added_up_over_a_tree_of_processes(tmp_path: Path) -> None:
    for pid, parent, own, ended in ((10, 1, 100, 50), (11, 10, 30, 0), (12, 11, 7, 0), (20, 1, 1000, 0)):
        (tmp_path / str(pid)).mkdir()
        fields = ["S", str(parent), *["0"] * 9, str(own), "0", str(ended), "0"]
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a (strange) name) {' '.join(fields)}")
    (tmp_path / "meminfo").write_text("")
    ticks = meter.cpu_of_tree(10, str(tmp_path)) * os.sysconf("SC_CLK_TCK")
    assert ticks == pytest.approx(187)
    assert meter.cpu_of_tree(0) == 0
    assert meter.cpu_of_tree(99, str(tmp_path)) == 0


def test_a_failed_peer_has_no_samples_left_over(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for row in plan.rows("sqlite") if row.name in ("process-limit", "process-huey")]
    calls = []

    def measured(row: plan.Row, *_: object) -> Sample:
        calls.append(row.name)
        if calls[-1] == "process-huey" and calls.count("process-huey") == 2:
            raise rounds.Failed("it broke\nin the second round")
        return sample(1)

    monkeypatch.setattr(rounds, "_measured", measured)
    monkeypatch.setattr(environments, "ready", lambda peer: True)
    run = rounds.run(rows, plan.Sizes(rounds=3), None, lambda _: None)  # type: ignore[arg-type]  # wrong on purpose
    assert run.left_out == {"huey": "in the second round"}
    assert {name: len(samples) for name, samples in run.samples.items()} == {"process-limit": 3}
