"""`examples/fastapi_app`, driven over HTTP: a server, a worker inside it or beside it, and a client."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests import lanes
from tests.docs.pages import ROOT
from tests.supervisor.worker_run import PATIENCE, eventually

FOLDER = ROOT / "examples" / "fastapi_app"
RUNNING = re.compile(r"running on (http://[\d.:]+)")


class Programs:
    """Programs in the folder of the example, on a database of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.started: list[tuple[subprocess.Popen[bytes], Path]] = []

    def start(self, *command: str, **environment: str) -> Path:
        """Start a program; returns the file that it logs to."""
        path = self._folder / f"log{len(self.started)}"
        own = {"SHOP_FILE": str(self._folder / "shop.db"), "STEP_SECONDS": "0.05", **environment}
        with path.open("wb") as log:
            program = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=FOLDER,
                env={**os.environ, **own},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.started.append((program, path))
        return path

    def serve(self, loop: str = "auto", **environment: str) -> str:
        """Start the server; returns its address."""
        log = self.start("uvicorn", "app:app", "--loop", loop, "--port", "0", **environment)
        return eventually(lambda: RUNNING.findall(log.read_text()), "the server runs")[0]

    def stop(self) -> None:
        """End all of them in order, as an operator does."""
        for program, log in reversed(self.started):
            program.send_signal(signal.SIGINT)
            assert program.wait(PATIENCE) in (0, -signal.SIGINT), log.read_text()
            assert "Traceback" not in log.read_text()
            assert "ERROR" not in log.read_text()


@contextmanager
def programs(folder: Path) -> Iterator[Programs]:
    made = Programs(folder)
    try:
        yield made
    finally:
        for program, log in made.started:
            program.kill()
            program.wait()
            print(log.read_text())  # pytest shows it when the test has failed


def events(client: httpx.Client, job: str) -> list[dict[str, object]]:
    """All events of the stream of a job, until it ends."""
    with client.stream("GET", f"/jobs/{job}/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    return [json.loads(line.removeprefix("data: ")) for line in lines]


@pytest.mark.left_to("full", except_for=lanes.Chosen("inside"))
@pytest.mark.parametrize(("where", "loop"), [("inside", "uvloop"), ("beside", "asyncio")])
def test_an_order_is_stored_with_its_job_shipped_and_followed(where: str, loop: str, tmp_path: Path) -> None:
    with programs(tmp_path) as running:
        address = running.serve(loop, WORKER="1" if where == "inside" else "0")
        if where == "beside":
            running.start("taskharbor", "worker", "run", "--app", "app:harbor")
        with httpx.Client(base_url=address, timeout=PATIENCE) as client:
            answer = client.post("/orders", params={"email": "ada@example.com"})
            assert answer.status_code == 202
            order, job = answer.json()["order"], answer.json()["job"]
            seen = events(client, job)
            assert seen[-1]["state"] == "done"
            assert {event["state"] for event in seen} <= {"ready", "inflight", "done"}
            # The transaction of the task was committed before its job was done.
            assert client.get(f"/orders/{order}").json() == {"email": "ada@example.com", "shipped": True}
            refused = client.post("/orders", params={"email": "nobody"})
            assert refused.status_code == 422
            assert client.get(f"/orders/{order + 1}").status_code == 404
            assert client.get("/jobs/nowhere/events").status_code == 404
        running.stop()


@pytest.mark.left_to("full")
def test_the_progress_of_a_job_is_in_its_stream(tmp_path: Path) -> None:
    with programs(tmp_path) as running:
        with httpx.Client(base_url=running.serve(STEP_SECONDS="1.5"), timeout=PATIENCE) as client:
            job = client.post("/orders", params={"email": "ada@example.com"}).json()["job"]
            seen = events(client, job)
        steps = ["picked", "packed", "handed over"]
        notes = [steps.index(str(event["note"])) for event in seen if event["note"]]
        assert notes == sorted(notes)
        assert notes
        assert seen[-1]["state"] == "done"
        running.stop()
