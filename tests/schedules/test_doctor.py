"""What `doctor` says about schedules, however many there are."""

import pytest

from taskharbor.ops import doctor
from tests.schedules.bench import Bench


@pytest.mark.parametrize(
    ("most", "late", "text"),
    [
        (10, True, "overdue: s4; no worker fires them: taskharbor schedule list tells why"),
        (10, False, "5 schedules, none overdue"),
        (5, False, "5 schedules, none overdue"),
        (4, True, "more than 4 schedules, none of the first 4 overdue"),
        (3, True, "more than 3 schedules, none of the first 3 overdue"),
    ],
)
async def test_all_pages_are_looked_at(bench: Bench, monkeypatch: pytest.MonkeyPatch, most: int, late: bool, text: str):
    monkeypatch.setattr(doctor, "PAGE_SCHEDULES", 2)
    for number in range(5):
        every = 60 if late and number == 4 else 7 * 24 * 3600
        await bench.harbor.schedules.aadd(f"s{number}", bench.ping.s(), every=every)
    bench.clock.advance(24 * 3600)
    (check,) = await doctor.check_schedules(bench.driver, None, "", bench.clock.now(), most)
    assert check.text == text
