"""`examples/django_project`, driven over HTTP: its one command starts a server and a worker."""

import os
import signal
import subprocess
from pathlib import Path

import httpx

from tests.docs.pages import ROOT
from tests.in_django.environment import python
from tests.servers.ports import free_port
from tests.supervisor.worker_run import PATIENCE, eventually

FOLDER = ROOT / "examples" / "django_project"


def test_a_cake_is_ordered_with_its_job_baked_and_followed(tmp_path: Path) -> None:
    log, port = tmp_path / "log", free_port()
    own = {"BAKERY_FILE": str(tmp_path / "bakery.sqlite3"), "STEP_SECONDS": "0.05", "PYTHONDONTWRITEBYTECODE": "1"}
    with log.open("wb") as output:
        program = subprocess.Popen(
            [python(), "manage.py", "serve", f"127.0.0.1:{port}"],
            cwd=FOLDER,
            env={**os.environ, **own, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        eventually(lambda: "development server at http" in log.read_text(), "the server runs")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
            answer = client.post("/orders", data={"cake": "plum"})
            assert answer.status_code == 202, answer.text
            order, job = answer.json()["order"], answer.json()["job"]
            eventually(lambda: client.get(f"/jobs/{job}").json()["state"] == "done", "the job is done")
            assert client.get(f"/orders/{order}").json() == {"cake": "plum", "baked": True}
            assert client.post("/orders", data={"cake": "3.14"}).status_code == 422
            assert client.get(f"/orders/{order + 1}").status_code == 404
            assert client.get("/jobs/nowhere").status_code == 404
        os.killpg(program.pid, signal.SIGINT)  # as Ctrl-C does
        assert program.wait(PATIENCE) == 0, log.read_text()
        assert "WorkerStopped" in log.read_text()
        assert "Traceback" not in log.read_text(), log.read_text()
    finally:
        if program.poll() is None:
            program.terminate()
            program.wait(PATIENCE)
        print(log.read_text())  # pytest shows it when the test has failed


def test_its_own_tests(tmp_path: Path) -> None:
    done = subprocess.run(
        [python(), "manage.py", "test"],
        cwd=FOLDER,
        env={**os.environ, "BAKERY_FILE": str(tmp_path / "x"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert "Ran 2 tests" in done.stderr
