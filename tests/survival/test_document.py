"""docs/reliability.md holds what docs/reliability.json says; each scenario has a row or a reason; nothing is lost."""

import json
import re
from typing import Any

import pytest

from tests.lanes import ROOT
from tests.survival import table
from tests.survival.registry import ALL, load
from tests.survival.scenarios import SCENARIOS
from tests.survival.table import BEGIN, DATA, END, PAGE


@pytest.fixture(scope="module")
def run() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return found


def test_every_scenario_has_on_every_store_a_row_or_a_reason() -> None:
    rows = load()
    known = {scenario.key for scenario in SCENARIOS}
    assert {scenario for scenario, _ in rows} == known
    for scenario in SCENARIOS:
        for store in ALL:
            has_row, has_reason = (scenario.key, store) in rows, bool(scenario.absent.get(store))
            assert has_row != has_reason, f"{scenario.key} on {store}: a row {has_row}, a reason {has_reason}"


def test_the_page_is_made_from_the_figures(run: dict[str, Any]) -> None:
    shown = PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert shown.strip() == table.page(run).strip(), "run: python -m tests.survival.table"


def test_the_readme_shows_the_same_sums(run: dict[str, Any]) -> None:
    faults, jobs = (f"{sum(row[what] for row in run['rows']):,} {what}" for what in ("faults", "jobs"))
    shown = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{len(SCENARIOS)} scenarios" in shown
    assert f"{faults}, {jobs}, **0 lost**" in shown


def test_every_row_was_run(run: dict[str, Any]) -> None:
    assert {(row["scenario"], row["store"]) for row in run["rows"]} == set(load())


def test_nothing_was_lost_and_nothing_unexplained(run: dict[str, Any]) -> None:
    for row in run["rows"]:
        assert (row["lost"], row["unexplained"]) == (0, 0), row
        assert row["jobs"] > 0 or row["note"]


def test_the_run_can_be_repeated(run: dict[str, Any]) -> None:
    assert run["command"] == f"make chaos SEED={run['seed']}"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", run["date"])
    assert run["commits"]
    assert all(re.fullmatch(r"[0-9a-f]{12}", commit) for commit in run["commits"])
    assert 0 < run["minutes"] <= 60
    assert {row["seed"] for row in run["rows"]} == {run["seed"]}
