"""The pages on frameworks, followed as a reader would: files written, commands typed, in an empty folder."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import lanes
from tests.docs import pages
from tests.docs.pages import ROOT, Step
from tests.docs.terminal import PATIENCE, Terminal
from tests.in_django import environment

pytestmark = pytest.mark.left_to(
    "full",
    except_for=lanes.Chosen("test_the_fastapi_pages_session_commits_order_and_job_together"),
)

# Calls an ASGI application without a server, as one would: its lifespan, then a request, then the end.
ASK = """
import asyncio, importlib, json, sys

async def lifespan(app, during):
    inbox, started = asyncio.Queue(), asyncio.Event()
    async def send(message):
        assert message["type"].endswith(".complete"), message
        started.set()
    await inbox.put({"type": "lifespan.startup"})
    life = asyncio.create_task(app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, inbox.get, send))
    await started.wait()
    answer = await during()
    await inbox.put({"type": "lifespan.shutdown"})
    await life
    return answer

async def ask(app, method, target, read=lambda body: json.loads(body or b"null"), headers=()):
    path, _, query = target.partition("?")
    scope = {"type": "http", "http_version": "1.1", "method": method, "scheme": "http", "path": path,
             "headers": [*headers], "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
             "state": {}}
    status, body = [], []
    messages = [{"type": "http.request", "body": b"", "more_body": False}]
    async def receive():
        return messages.pop() if messages else await asyncio.Event().wait()  # the client stays
    async def send(message):
        status.append(message["status"]) if "status" in message else body.append(message.get("body", b""))
    await app(scope, receive, send)
    return status[0], read(b"".join(body))
"""


# It runs in a worker that has set Django up, finds the order that was committed with it, and changes it. A view whose
# transaction is rolled back leaves neither order nor job.
LOOK = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
from taskharbor.django import harbor
from django.db import connection
from django.test import Client
from orders import views
from orders.models import Order
from orders.tasks import confirm
from taskharbor.django.testing import enqueued

[result] = enqueued(confirm)
harbor.job(result.id).wait(60)
result.refresh()
connection.settings_dict["ATOMIC_REQUESTS"] = True
views.JsonResponse = None
Client(SERVER_NAME="localhost", raise_request_exception=False).post("/orders", {"email": "x@example.com"})
orders = Order.objects.all()
print(result.return_value, len(orders), [order.confirmed for order in orders], len(enqueued(confirm)))
"""


def python(folder: Path, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ASK + code], cwd=folder, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def follow(page: str, terminal: Terminal) -> list[str]:
    steps = pages.steps(ROOT / "docs" / page)
    assert steps, f"{page} has no files to write"
    return [terminal.follow(step) for step in steps]


def test_the_django_page_works_as_it_is_written(tmp_path: Path) -> None:
    """With Django 6 if there is an environment for it; else with 5.2, and the names that the page says for it."""
    with Terminal(tmp_path, Path(environment.python()).parent) as terminal:
        steps = pages.steps(ROOT / "docs" / "django.md")
        if environment.version() < (6, 0):
            steps = [_backported(step) for step in steps]
        printed = [terminal.follow(step) for step in steps]
        *_, listed, _, tested = printed
        assert "orders.tasks.confirm" in listed
        assert "Found 3 test(s)" in tested
        (tmp_path / "look.py").write_text(LOOK, encoding="utf-8")
        assert terminal.type("python look.py").splitlines()[-1] == "ada@example.com 1 [True] 1"
        ((code, log),) = terminal.interrupt()
        assert code == 0, log
        assert "AppRegistryNotReady" not in log


def _backported(step: Step) -> Step:
    text = step.text.replace("from django.tasks", "from django_tasks")
    return step._replace(text=text.replace('["taskharbor.django", ', '["taskharbor.django", "django_tasks", '))


def test_the_fastapi_page_works_as_it_is_written(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        follow("fastapi.md", terminal)
        asked = """
from app import app, harbor
async def main():
    async def during():
        first = await ask(app, "POST", "/emails?to=ada")
        again = await ask(app, "POST", "/emails?to=ada")
        later = await ask(app, "POST", "/emails/later?to=ada")
        while True:
            read = await ask(app, "GET", "/jobs/" + first[1]["job"])
            if read[1]["state"] == "done":
                break
        return [first == again, later[0], read, (await ask(app, "GET", "/jobs/nowhere"))[0]]
    print(json.dumps(await lifespan(app, during)))
asyncio.run(main())
"""
        same, later, (status, read), missing = json.loads(python(tmp_path, asked))
        assert (same, later, status, missing) == (True, 202, 200, 404)
        assert read == {"state": "done", "result": "Hello, ada"}
        ((code, log),) = terminal.interrupt()
        assert code == 0, log


def write_files_of_the_fastapi_page(folder: Path) -> None:
    for step in pages.steps(ROOT / "docs" / "fastapi.md"):
        if step.file:
            (folder / step.file).write_text(step.text, encoding="utf-8")


def test_the_fastapi_pages_session_commits_order_and_job_together(tmp_path: Path) -> None:
    write_files_of_the_fastapi_page(tmp_path)
    asked = """
import orders, sqlalchemy
from taskharbor.testing import adrain, aenqueued
async def main():
    async def during():
        answers = [await ask(orders.app, "POST", "/orders?email=" + email) for email in ("ada@example.com", "nobody")]
        async with orders.sessions() as session:
            emails = list(await session.scalars(sqlalchemy.select(orders.Order.email)))
        jobs = await aenqueued(orders.harbor, orders.confirm)
        await adrain(orders.harbor)
        result = await orders.harbor.job(jobs[0].id).aresult(60)
        return [[status for status, _ in answers], emails, len(jobs), result]
    print(json.dumps(await lifespan(orders.app, during)))
asyncio.run(main())
"""
    assert json.loads(python(tmp_path, asked)) == [[202, 422], ["ada@example.com"], 1, "ada@example.com"]


def test_the_fastapi_pages_stream_follows_a_job_to_its_end(tmp_path: Path) -> None:
    write_files_of_the_fastapi_page(tmp_path)
    asked = """
import stream
from app import send_email
async def main():
    async def during():
        job = await send_email.aenqueue("ada")
        asyncio.get_running_loop().call_later(0, lambda: tasks.append(asyncio.create_task(work())))
        status, body = await ask(stream.app, "GET", f"/jobs/{job.id}/events", read=lambda text: text.decode())
        return [status, body, (await ask(stream.app, "GET", "/jobs/nowhere/events"))[0]]
    async def work():
        await stream.harbor.worker().arun(until_empty=True)
    tasks = []
    print(json.dumps(await lifespan(stream.app, during)))
asyncio.run(main())
"""
    status, body, missing = json.loads(python(tmp_path, asked))
    assert (status, missing) == (200, 404)
    *_, last = [json.loads(line.removeprefix("data: ")) for line in body.strip().split("\n\n")]
    assert last == {"state": "done", "done": None, "note": None}


@pytest.mark.parametrize("module", ["with_starlette", "with_litestar"])
def test_the_starlette_and_litestar_applications_of_the_fastapi_page_enqueue(tmp_path: Path, module: str) -> None:
    write_files_of_the_fastapi_page(tmp_path)
    asked = (
        f"import {module} as web\n"
        + """
from app import harbor, send_email
from taskharbor.testing import aenqueued
async def main():
    async def during():
        answer = await ask(web.app, "POST", "/emails?to=ada")
        return [answer, len(await aenqueued(harbor, send_email, to="ada"))]
    print(json.dumps(await lifespan(web.app, during)))
asyncio.run(main())
"""
    )
    (status, answer), number = json.loads(python(tmp_path, asked))
    assert (status, list(answer), number) == (202, ["job"], 1)


@pytest.mark.parametrize("module", ["with_dashboard", "with_litestar"])
def test_the_fastapi_page_mounts_the_dashboard(tmp_path: Path, module: str) -> None:
    write_files_of_the_fastapi_page(tmp_path)
    asked = (
        f"import {module} as web\n"
        + """
from app import send_email
def read(body): return body.decode()
async def main():
    async def during():
        job = await send_email.aenqueue("ada")
        ada = [(b"x-user", b"ada"), (b"host", b"shop")]
        page = await ask(web.app, "GET", f"/ops/jobs/{job.id}", read, ada)
        listed = await ask(web.app, "GET", "/ops/jobs?queue=mail", read, ada)
        found = [page[0], listed[0], job.id in page[1], job.id in listed[1], "/ops/static/" in page[1]]
        return [*found, (await ask(web.app, "GET", "/ops/", read))[0]]
    print(json.dumps(await lifespan(web.app, during)))
asyncio.run(main())
"""
    )
    assert json.loads(python(tmp_path, asked)) == [200, 200, True, True, True, 303]


def test_the_fastapi_pages_own_worker_runs_and_ends_with_the_application(tmp_path: Path) -> None:
    write_files_of_the_fastapi_page(tmp_path)
    asked = """
import small
from app import send_email
async def main():
    async def during():
        return await (await send_email.aenqueue("ada")).aresult(60)
    print(json.dumps([await lifespan(small.app, during), len(asyncio.all_tasks())]))
asyncio.run(main())
"""
    assert json.loads(python(tmp_path, asked)) == ["Hello, ada", 1]
