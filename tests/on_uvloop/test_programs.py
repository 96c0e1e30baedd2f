"""The programs of users on uvloop: FastAPI at a real uvicorn, and `taskharbor worker run` for a module with it."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests import lanes
from tests.docs.test_fastapi_app import RUNNING, programs
from tests.on_uvloop.stores import STORES
from tests.supervisor.worker_run import PATIENCE, ROOT, eventually


@pytest.mark.left_to("full", except_for=lanes.Chosen("redis"))
@pytest.mark.parametrize("store", STORES.values(), ids=STORES)
def test_a_request_enqueues_and_a_worker_process_answers(store: Callable[[Path], str], tmp_path: Path) -> None:
    """The server's loop, the supervisor's, that of its worker process and those of its threads are all uvloop's."""
    where = {"TASKHARBOR_DSN": store(tmp_path), "PYTHONPATH": str(ROOT)}
    with programs(tmp_path) as running:
        log = running.start("uvicorn", "tests.on_uvloop.web_app:app", "--loop", "uvloop", "--port", "0", **where)
        running.start("taskharbor", "worker", "run", "--app", "tests.on_uvloop.worker_app:harbor", **where)
        address = eventually(lambda: RUNNING.findall(log.read_text()), "the server runs")[0]
        with httpx.Client(base_url=address, timeout=PATIENCE) as client:
            jobs = [client.post("/sums", params={"a": 1, "b": b, "blocking": b == 3}).json()["job"] for b in (2, 3)]
            answers = [client.get(f"/sums/{job}").json() for job in jobs]
            page = client.get(f"/ops/jobs/{jobs[0]}")
            assert (page.status_code, jobs[0] in page.text) == (200, True)
        assert [answer["sum"] for answer in answers] == [3, 4]
        assert {answer["loop"] for answer in answers} == {"uvloop"}
        running.stop()
