"""`taskharbor flow`: the tree, what stands under a dead step, and what changes a whole flow."""

from datetime import UTC, datetime, timedelta

import click
import pytest

from taskharbor.cli.flow_tree import MAX_ROWS, tree_lines
from taskharbor.drivers import JobRecord, State
from taskharbor.model.job import FlowInfo, JobInfo, flow_info
from taskharbor.model.outcome import Ack
from taskharbor.ops.flow_view import next_commands, rows_of
from tests.cli.shell import at_terminal, kill, reserve, store, taskharbor, within

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def job(id: str, type: str, *after: str, state: State = State.DONE, **fields: object) -> JobInfo:
    record = JobRecord(id=id, type=type, depends_on=after, flow_id="f", created_at=NOW, **fields)  # type: ignore[arg-type]  # a field's
    return JobInfo(record, state)


def flow(*nodes: JobInfo) -> FlowInfo:
    return flow_info("f", nodes)


def tree(info: FlowInfo, width: int | None = None) -> list[str]:
    return [click.unstyle(line) for line in tree_lines(rows_of(info), {}, width)]


def names(info: FlowInfo) -> list[tuple[int, int, str]]:
    return [(row.depth, len(row.jobs), row.name) for row in rows_of(info)]


def test_a_chain():
    info = flow(job("1", "fetch"), job("2", "parse", "1"), job("3", "store", "2", state=State.READY))
    assert tree(info) == [
        "fetch        done       1    1",
        "└─ parse     done       1    2",
        "   └─ store  ready      0    3",
    ]


def test_branches_and_a_step_that_waits_for_two():
    info = flow(
        job("1", "a"),
        job("2", "b", "1"),
        job("3", "c", "1", state=State.READY),
        job("4", "d", "2", "3", state=State.BLOCKED),
        job("5", "e", "1", state=State.READY),
    )
    assert [line.split("  ")[0] if line[0] == "a" else line[:9] for line in tree(info)] == [
        "a",
        "├─ b     ",
        "├─ c     ",
        "│  └─ d  ",
        "│        ",
        "└─ e     ",
    ]
    assert "│        waits for b, c" in tree(info)


def test_a_group_of_many_is_one_row_with_its_states():
    members = [job(f"m{n:02}", "page", "0", state=State.DONE if n else State.INFLIGHT) for n in range(30)]
    end = job("z", "total", *(member.job.id for member in members), state=State.BLOCKED)
    info = flow(job("0", "fetch"), *members, end)
    assert names(info) == [(0, 1, "fetch"), (1, 30, "page"), (2, 1, "total")]
    assert tree(info)[1].endswith("1 inflight, 29 done")
    assert len(tree(info)) == 3


def test_many_branches_of_several_steps_are_folded_step_by_step():
    first = [job(f"a{n}", "load") for n in range(8)]
    second = [job(f"b{n}", "clean", f"a{n}") for n in range(8)]
    info = flow(*first, *second, job("z", "merge", *(each.job.id for each in second)))
    assert names(info) == [(0, 8, "load"), (1, 8, "clean"), (2, 1, "merge")]


def test_a_few_alike_keep_their_own_rows():
    info = flow(*(job(f"a{n}", "load") for n in range(4)), job("z", "merge", "a0", "a1", "a2", "a3"))
    assert names(info) == [(0, 1, "load")] * 4 + [(1, 1, "merge")]


def test_what_a_job_handed_over_to_stands_under_it():
    info = flow(
        job("1", "split", handed_to="4"),
        job("2", "part"),
        job("3", "part"),
        job("4", "sum", "2", "3"),
        job("5", "x", "1"),
    )
    found = names(info)
    assert found[0] == (0, 1, "split")
    assert sorted(found[1:]) == [(1, 1, "part"), (1, 1, "part"), (1, 1, "x"), (2, 1, "sum")]


def test_a_damaged_flow_with_a_ring_is_shown_all_the_same():
    info = flow(job("1", "a", "2"), job("2", "b", "1"), job("3", "c"))
    assert sorted(name for _, _, name in names(info)) == ["a", "b", "c"]


def test_a_flow_of_ten_thousand_steps_is_bounded():
    chain = [job(f"{n:05}", "step", *([f"{n - 1:05}"] if n else [])) for n in range(10_000)]
    info = flow(*chain)
    assert len(rows_of(info)) == 10_000
    lines = tree(info, 80)
    assert len(lines) == MAX_ROWS
    assert max(map(len, lines)) <= 80


def test_a_narrow_terminal_keeps_the_end_of_a_name():
    ids = ["01M7HG69P849N38WGBK6M8KYD0", "01M7HG69P849N38WGBK6M8KYD1"]
    info = flow(
        job(ids[0], "shop.checkout.tasks.receipts.render"), job(ids[1], "shop.checkout.tasks.mail.send", ids[0])
    )
    lines = tree(info, 80)
    assert all(len(line) <= 80 for line in lines)
    assert "receipts.render" in lines[0]
    assert ids[0] in lines[0]


def dead_chord(dsn: str, reason: str = "failed 2 of 2 attempts") -> str:
    pages = [JobRecord(id=f"p{n}", type="page", flow_id="f", payload=b'{"n": "canary-77"}') for n in range(7)]
    end = JobRecord(id="z", type="total", flow_id="f", depends_on=tuple(page.id for page in pages))
    store(dsn, *pages, end)
    kill(dsn, "p3", reason=reason, error="ValueError: page canary-77 is empty\n  File x.py")
    outcomes = [Ack(held.lease) for held in reserve(dsn, limit=10)]
    within(dsn, lambda driver, now: driver.settle(outcomes, now))
    return dsn


def test_under_a_dead_step_stands_why_and_at_the_end_what_to_type(dsn: str):
    dead_chord(dsn)
    answer = taskharbor("flow", "show", "f", "--dsn", dsn)
    lines = answer.out.partition("\n\n")[2].splitlines()
    assert lines == [
        "7 × page  6 done, 1 dlq",
        "│  p3 failed 2 of 2 attempts: ValueError: page ••• is empty",
        "└─ total  blocked    0    z",
        "",
        "try: taskharbor inspect p3",
        "try: taskharbor flow requeue f",
    ]
    found = taskharbor("flow", "show", "f", "--dsn", dsn, "--output", "json").json
    assert found["next"] == ["taskharbor inspect p3", "taskharbor flow requeue f"]
    assert (found["status"], found["complete"]) == ("failed", True)


def test_a_long_reason_is_wrapped_under_its_step(dsn: str):
    dead_chord(dsn, reason=" ".join(["broken"] * 30))
    code, seen = at_terminal("flow", "show", "f", "--dsn", dsn, columns=80, NO_COLOR="1")
    assert code == 0
    lines = [line for line in seen.splitlines() if "broken" in line]
    assert len(lines) == 3
    assert all(line.startswith("│  ") and len(line) <= 80 for line in lines)


def test_requeue_and_cancel(dsn: str):
    dead_chord(dsn)
    answer = taskharbor("flow", "requeue", "z", "--dsn", dsn)
    assert (answer.code, answer.out) == (0, "1 job of flow f was requeued\n")
    assert taskharbor("flow", "requeue", "f", "--dsn", dsn, "--output", "json").json == {"flow": "f", "requeued": 0}
    answer = taskharbor("flow", "cancel", "f", "--dsn", dsn)
    assert (answer.code, "pass --yes" in answer.line) == (2, True)
    answer = taskharbor("flow", "cancel", "f", "--yes", "--dsn", dsn, "--output", "json")
    assert answer.json == {"flow": "f", "cancelled": 2}
    assert "all of them have ended" in taskharbor("flow", "cancel", "f", "--yes", "--dsn", dsn).out
    lines = taskharbor("flow", "show", "f", "--dsn", dsn).out.splitlines()
    assert lines[-1] == "try: taskharbor job retry p3 z"


def test_a_flow_that_waits_for_a_worker_says_whom_to_ask():
    info = flow(job("1", "a"), job("2", "b", "1", state=State.READY), job("3", "c", "2", state=State.BLOCKED))
    assert next_commands(info) == ["taskharbor explain 2"]
    assert next_commands(flow(job("1", "a"))) == []
    assert next_commands(flow(job("1", "a", state=State.INFLIGHT), job("2", "b", state=State.READY))) == []
    assert next_commands(flow(*(job(str(n), "a", state=State.CANCELLED) for n in range(9)))) == []


@pytest.mark.parametrize("limit", [3, 8])
def test_reading_a_flow_is_bounded(dsn: str, limit: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("taskharbor.store.flows.MAX_FLOW_JOBS", limit)
    monkeypatch.setattr("taskharbor.store.flows.PAGE_JOBS", 2)
    dead_chord(dsn)
    found = taskharbor("flow", "show", "f", "--dsn", dsn, "--output", "json").json
    assert (len(found["jobs"]), found["complete"]) == (limit, limit == 8)
    out = taskharbor("flow", "show", "f", "--dsn", dsn).out
    assert ("more jobs: taskharbor list --flow f" in out) == (limit == 3)


def test_durations_stand_beside_the_steps():
    (line,) = tree_lines(rows_of(flow(job("1", "a"))), {"1": timedelta(seconds=75)}, 80)
    assert click.unstyle(line) == "a  done       1  1m 15s  1"


def test_flows_are_listed_by_status_and_time(any_dsn: str):
    dead_chord(any_dsn)
    store(any_dsn, JobRecord(id="r1", type="x", flow_id="g", queue="other"))
    found = taskharbor("flow", "list", "--dsn", any_dsn, "--output", "json").json
    assert [list(row) for row in found["flows"]] == [["id", "status", "created_at", "newest_job_at"]] * 2
    assert [(row["id"], row["status"]) for row in found["flows"]] == [("f", "failed"), ("g", "running")]
    for filters, expected in (
        (["--newest"], ["g", "f"]),
        (["--status", "failed", "--since", "1h"], ["f"]),
        (["--until", "1h"], []),
        (["--limit", "1"], ["f"]),
    ):
        answer = taskharbor("flow", "list", *filters, "--dsn", any_dsn)
        assert [line.split()[0] for line in answer.out.splitlines()[1:]] == expected
        assert answer.code == 0
    assert answer.err.startswith("more flows: --cursor ")
    assert taskharbor("flow", "list", "--until", "1h", "--dsn", any_dsn).err == "no flows\n"
    assert "--cursor" in taskharbor("flow", "list", "--cursor", "x", "--dsn", any_dsn).line


def test_a_big_flow_on_every_store(any_dsn: str):
    pages = [JobRecord(id=f"p{n:04}", type="page", flow_id="f") for n in range(2_500)]
    store(any_dsn, *pages, JobRecord(id="z", type="total", flow_id="f", depends_on=tuple(page.id for page in pages)))
    lines = taskharbor("flow", "show", "f", "--dsn", any_dsn).out.partition("\n\n")[2].splitlines()
    assert lines[:2] == ["2500 × page  2500 ready", "└─ total     blocked    0    z"]


def test_jobs_alike_in_different_places_are_not_folded_together():
    def branch(name: str) -> list[JobInfo]:
        members = [job(f"{name}{n}", "page", name) for n in range(5)]
        return [job(name, f"fetch_{name}"), *members, job(f"{name}9", "sum", *(each.job.id for each in members))]

    found = names(flow(*branch("a"), *branch("b")))
    assert found == [(0, 1, "fetch_a"), (1, 5, "page"), (2, 1, "sum"), (0, 1, "fetch_b"), (1, 5, "page"), (2, 1, "sum")]
