"""Each deliberate mistake in the memory driver is noticed by the suite; the same copy without a mistake passes it.

A suite counts after it was seen red. The mistakes are in mutants.py; the last one, a retry in two steps, is
written out here, because it is not a slip of the pen but another design.
"""

import asyncio
from typing import Any

import pytest

from taskharbor.conformance import run
from taskharbor.conformance.machine import check_machine
from taskharbor.drivers import Cancelled, Retry, replace
from taskharbor.drivers.memory import MemoryDriver, admin
from tests import lanes
from tests.architecture import feature_mutants, schedule_mutants
from tests.architecture.mutants import OTHERS, REQUIRED, Mutant, copied
from tests.drivers.memory_damage import damage, damage_field

RUNS = 60
FEATURES = (*feature_mutants.ALL, *schedule_mutants.ALL)
# What `make test` makes sure of: the fence, and the promises that lose or double a job when they break.
FENCE = (
    *(mutant.name for mutant in REQUIRED),
    *("give-back resets lost", "key not freed by delete", "group limit off by one", "prune takes what is needed"),
)
FEATURES_EACH_TIME = (
    *("an expiry is no loss", "an ack loses its trail", "the note of a lost lease is stored", "keep_for is ignored"),
    *("late by a millisecond", "the version is not checked", "a leased job is amended", "requeue ignores seen"),
    *(
        "the revision is not compared",
        "jobs before the compare",
        "a repeat stores its jobs again",
        "due a millisecond late",
    ),
)


def named(mutant: Mutant) -> str:
    return mutant.name


def survives_the_machine(driver: Any, runs: int = RUNS, **how: Any) -> bool:
    try:
        check_machine(lambda: driver("memory://"), runs=runs, share_store=False, shrink=False, seed=0, **how)
    except Exception:
        return False
    return True


def cases(package: Any, **how: Any) -> Any:
    return run(lambda: package.MemoryDriver("memory://"), damage=damage, damage_field=damage_field, **how)


@pytest.mark.left_to("full")
def test_the_copy_without_a_mistake_passes(tmp_path):
    with copied(None, tmp_path) as package:
        assert package.MemoryDriver is not MemoryDriver
        report = cases(package)
        assert report.ok, str(report)
        assert not report.skipped
        assert survives_the_machine(package.MemoryDriver)


@pytest.mark.left_to("full", except_for=lanes.Chosen(*FENCE))
@pytest.mark.parametrize("mutant", [*REQUIRED, *OTHERS], ids=named)
def test_the_cases_notice(mutant, tmp_path, monkeypatch):
    monkeypatch.setattr("taskharbor.conformance.cases.wait.PATIENCE", 0.5)  # a hint that never comes
    with copied(mutant, tmp_path) as package:
        assert cases(package, stop_at_first=True).failed, f"survived: {mutant.name}"


@pytest.mark.left_to("full", except_for=lanes.Chosen(*FEATURES_EACH_TIME))
@pytest.mark.parametrize(("theme", "mutant"), FEATURES, ids=[each.mutant.name for each in FEATURES])
def test_the_cases_of_a_feature_notice(theme, mutant, tmp_path, monkeypatch):
    monkeypatch.setattr("taskharbor.conformance.cases.wait.PATIENCE", 0.5)
    with copied(mutant, tmp_path) as package:
        assert cases(package, themes=[theme], stop_at_first=True).failed, f"survived: {mutant.name}"


@pytest.mark.left_to("full", except_for=lanes.Chosen("token check dropped", "settle applied twice"))
@pytest.mark.parametrize("mutant", REQUIRED, ids=named)
def test_the_machine_notices(mutant, tmp_path):
    how = {"profiles": ["one group"]} if "slot" in mutant.name else {}
    with copied(mutant, tmp_path) as package:
        # The order of sets is another one in each process, and so are the walks: some mistakes need many of them.
        assert not survives_the_machine(package.MemoryDriver, 600, **how), f"survived: {mutant.name}"


@pytest.mark.left_to("full", except_for=lanes.Chosen("the version is not checked", "jobs before the compare"))
@pytest.mark.parametrize("mutant", [*feature_mutants.FOR_THE_MACHINE, *schedule_mutants.FOR_THE_MACHINE], ids=named)
def test_the_machine_notices_in_a_feature(mutant, tmp_path):
    with copied(mutant, tmp_path) as package:
        assert not survives_the_machine(package.MemoryDriver, 200), f"survived: {mutant.name}"


def test_a_text_that_is_gone_is_reported(tmp_path):
    gone = Mutant("gone", (REQUIRED[0].edits[0]._replace(old="no such text"),))
    with pytest.raises(LookupError, match="expected once"), copied(gone, tmp_path):
        pass


class RetryInTwoSteps(MemoryDriver):
    """Takes a retried job off the queue, and puts it back in a second write: a crash between the two loses it."""

    async def settle(self, outcomes, now):
        answers = []
        for outcome in outcomes:
            if type(outcome) is Retry:
                answers.append(await self._retry(outcome, now))
            else:
                answers += await super().settle([outcome], now)
        return answers

    async def _retry(self, outcome, now):
        entry = self.store.entries.get(outcome.lease.job_id)
        if entry is None or entry.lease is None or entry.lease.token != outcome.lease.token:
            return (await super().settle([outcome], now))[0]
        before = entry.record
        refused = (await super().settle([Cancelled(outcome.lease, "on its way")], now))[0]
        if refused is not None:
            return refused
        await asyncio.sleep(0)  # here the process dies, or the call is cancelled
        with self._changing() as store:
            admin.requeue(store, [before.id], now, outcome.run_at, False)
            given_back = outcome.attempts == before.attempts
            entry.record = replace(
                entry.record,
                attempts=outcome.attempts,
                last_error=outcome.last_error or before.last_error,
                failed_at=outcome.failed_at or before.failed_at,
                lost=before.lost if given_back else 0,
            )
            entry.settled = (outcome.lease.token, Retry)
        return None

    def sibling(self):
        other = type(self)(self._dsn)
        other.store = self.store
        return other


def test_a_retry_in_two_steps_is_noticed():
    report = run(lambda: RetryInTwoSteps("memory://"))
    failed = {result.case.title for result in report.failed}
    assert "shutdown.cancelled_retry" in failed
    # There nothing cut the retry in two: so the suite noticed the cut, and nothing else.
    quiet = {"settle.retry_at_once", "settle.retry_later", "settle.give_back", "repeat.until_reserved_again"}
    assert failed.isdisjoint(quiet)
