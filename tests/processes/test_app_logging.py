"""An application that configures logging itself: the worker's lines stay, in the format of the command line."""

import json
from typing import Any

import pytest

from tests.supervisor.worker_run import Yard, eventually

APP = "tests.processes.app_logging:harbor"


def lines(yard: Yard) -> list[dict[str, Any]]:
    return [json.loads(line) for line in yard.log.splitlines() if line.startswith("{")]


def dead(yard: Yard) -> list[Any]:
    return [line["job_type"] for line in lines(yard) if line.get("event") == "JobDeadLettered"]


@pytest.mark.parametrize("disable", [True, False])
def test_its_dict_config_does_not_silence_the_worker(
    here: Yard, disable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGGING", json.dumps({"disable_existing_loggers": disable}))
    program = here.start("--log-format", "json", "--no-spare", app=APP)
    here.enqueue("fails")
    here.enqueue("fails_elsewhere")
    eventually(lambda: sorted(dead(here)) == ["fails", "fails_elsewhere"], "both are dead, and a line says so")
    program.terminate()
    assert here.ended(program) == 0
    other = [line for line in here.log.splitlines() if not line.startswith("{")]
    assert other == ["OWN shop a line of the application"], "each line of ours is JSON, and comes once"
    [thread] = [line for line in lines(here) if "shop thread" in line["message"]]
    assert "KeyError: 'in a thread'" in thread["exception"]
    assert [line["message"] for line in lines(here)].count("from a child process") == 1
    assert sum("has replaced the handlers" in line["message"] for line in lines(here)) == 1


def test_its_handlers_for_our_logger_stay(here: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    loggers = {"taskharbor": {"handlers": ["console"], "level": "INFO", "propagate": False}}
    monkeypatch.setenv("LOGGING", json.dumps({"loggers": loggers}))
    here.start("--log-format", "json", "--no-spare", app=APP)
    here.enqueue("fails")
    eventually(lambda: "OWN taskharbor event=JobDeadLettered" in here.log, "in the format of the application")
    assert not dead(here)
