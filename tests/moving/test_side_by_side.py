"""Moving while both run, as docs/coming-from-celery.md says: one function, two declarations, a flag, two workers."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.stores import environments
from tests.servers import redis as servers

PROGRAM = """
import json
import os
import sys

from celery import Celery
from taskharbor import Harbor

app = Celery("both", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
harbor = Harbor("sqlite:///jobs.db")

def send(to: str) -> str:
    return f"{to}, sent by {os.environ['WHO']}"

celery_send = app.task(name="both.send")(send)
receipt = harbor.task(name="both.send", max_attempts=1)(send)

def send_later(to: str):
    return receipt.enqueue(to) if receipt.name in os.environ["MOVED"].split(",") else celery_send.delay(to)

if __name__ == "__main__":
    handle = send_later("ada")
    print(json.dumps(handle.result(60) if os.environ["MOVED"] else handle.get(timeout=60)))
    harbor.close()
"""


@pytest.mark.left_to("matrix")
def test_a_flag_sends_a_call_to_one_of_them(tmp_path: Path) -> None:
    assert environments.make("celery") == ""
    (packages,) = (environments.FOLDER / "celery").glob("lib/python*/site-packages")
    servers.shared().empty()
    (tmp_path / "both.py").write_text(PROGRAM, encoding="utf-8")
    own = {**os.environ, "PYTHONPATH": str(packages), "BROKER": servers.shared().url, "MOVED": ""}

    def start(who: str, *command: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"{who}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *command], cwd=tmp_path, env={**own, "WHO": who}, stdout=log, stderr=log
            )

    def call(moved: str) -> str:
        environment = {**own, "MOVED": moved, "WHO": "the caller"}
        done = subprocess.run(
            [sys.executable, "both.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout))

    workers = [
        start("Celery", "celery", "-A", "both", "worker", "--pool", "solo"),
        start("TaskHarbor", "taskharbor", "worker", "run", "--app", "both:harbor"),
    ]
    try:
        assert call(moved="") == "ada, sent by Celery"
        assert call(moved="both.send") == "ada, sent by TaskHarbor"
        assert call(moved="") == "ada, sent by Celery"  # and back
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(60) == 0
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
