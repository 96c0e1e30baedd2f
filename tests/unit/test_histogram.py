"""Percentiles from merged figures."""

import random
from datetime import UTC, datetime

import pytest

from taskharbor.model.histogram import BUCKETS, RAN, WAITED, bucket_of, merged, percentile
from taskharbor.model.job import Figures

MINUTE = datetime(2030, 1, 1, tzinfo=UTC)


def test_a_bucket_has_what_is_under_its_power_of_four() -> None:
    for number in range(BUCKETS - 1):
        assert bucket_of(4**number - 1) == number
        assert bucket_of(4**number) == min(number + 1, BUCKETS - 1)
    assert bucket_of(10**30) == BUCKETS - 1


def test_without_executions_there_is_no_percentile() -> None:
    assert percentile({"done": 3}, RAN, 0.5) is None


@pytest.mark.parametrize("share", [0.0, 0.5, 0.95, 1.0])
def test_a_percentile_is_exact_to_its_bucket(share: float) -> None:
    rng = random.Random(3)
    times = sorted(int(rng.lognormvariate(5, 2)) for _ in range(1000))
    rows = [Figures(MINUTE, "a", {WAITED[bucket_of(time)]: 1}) for time in times]
    found = percentile(merged(rows), WAITED, share)
    assert found is not None
    exact = times[min(int(share * 1000), 999)]
    assert exact / 4 - 1 <= found <= exact * 4 + 1


def test_figures_are_added_up_by_name() -> None:
    rows = [Figures(MINUTE, "a", {"done": 1, "dead": 2}), Figures(MINUTE, "b", {"done": 3})]
    assert merged(rows) == {"done": 4, "dead": 2}
