"""What schedules cost a program that has none: no import, no call, no step for each job."""

import json
import subprocess
import sys

from tests.lanes import ROOT

PROGRAM = """
import json, sys
from taskharbor import Harbor, Worker
harbor = Harbor("memory://")

@harbor.task(name="ping")
async def ping() -> None: ...

ping.enqueue()
{extra}
found = sorted(name for name in sys.modules if name.startswith("taskharbor.schedules") or name in {names})
print(json.dumps(found))
"""
NAMES = {"cronsim", "taskharbor.client.schedules", "taskharbor.policy.slots", "zoneinfo"}


def loaded(extra: str = "") -> list[str]:
    program = PROGRAM.format(extra=extra, names=repr(NAMES))
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    found: list[str] = json.loads(ended.stdout.splitlines()[-1])
    return found


def test_a_program_without_schedules_loads_nothing_of_them():
    assert loaded() == []
    assert loaded("harbor.worker(schedules=False).run(until_empty=True)") == []


def test_a_declaration_loads_what_it_needs():
    found = loaded('harbor.schedule("ping", ping.s(), every=60)')
    assert "taskharbor.schedules.rule" in found
    assert "cronsim" not in found
    assert "zoneinfo" not in found
    assert "cronsim" in loaded('harbor.schedule("ping", ping.s(), cron="0 4 * * *", tz="Europe/Zurich")')
