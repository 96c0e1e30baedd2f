"""The project in `project/`, served as its users serve it, with the scene of the dashboard in its store.

It runs with the Python and the Django of the lane `django`.
"""

import asyncio
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from taskharbor import Harbor
from tests.dashboard.scene import Scene, plan, play
from tests.in_django import environment
from tests.lanes import ROOT

PROJECT = Path(__file__).parent / "project"
PATIENCE_S = 60
KINDS = ("wsgi", "asgi")
TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


class Site:
    """Two servers over one database. The dashboard is at /admin/jobs/ and in the admin."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = f"sqlite:///{folder}/shop.db"
        self.scene = Scene()
        self.urls: dict[str, str] = {}
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self._people: dict[tuple[str, str], httpx.Client] = {}
        path = os.pathsep.join([str(PROJECT), str(ROOT)])
        self._env = {**os.environ, "FOLDER": str(folder), "PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "settings"}

    def run(self, *words: str) -> str:
        """Run a program of the project; its output."""
        command = [environment.python(), *words]
        done = subprocess.run(command, cwd=PROJECT, env=self._env, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def __enter__(self) -> "Site":
        self.run("serve.py", "prepare")
        with ThreadPoolExecutor(1) as pool:  # in tests with a browser, a loop runs in this thread
            pool.submit(lambda: asyncio.run(self._play())).result(PATIENCE_S)
        for kind in KINDS:
            self.processes[kind] = subprocess.Popen(
                [environment.python(), "serve.py", kind], cwd=PROJECT, env=self._env, stdout=subprocess.PIPE, text=True
            )
        for kind, process in self.processes.items():
            assert process.stdout is not None
            self.urls[kind] = f"http://127.0.0.1:{int(process.stdout.readline())}"
        return self

    def __exit__(self, *raised: object) -> None:
        for client in self._people.values():
            client.close()
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.communicate(timeout=PATIENCE_S)

    async def _play(self) -> None:
        async with Harbor(self.store) as harbor:
            driver: Any = await harbor._store.awaited.driver(0)
            self.scene = await play(driver, await driver.server_time())
            await plan(harbor)

    def person(self, kind: str, name: str) -> "Person":
        """A person who has logged in at a server; "anonymous" has not. The password is the name."""
        url = self.urls[kind]
        client = self._people.get((kind, name))
        if client is None:
            client = self._people[kind, name] = httpx.Client(base_url=url, timeout=PATIENCE_S)
            if name != "anonymous":
                form = client.get("/admin/login/", params={"next": "/admin/"})
                found = TOKEN.search(form.text)
                assert found is not None, form.text
                fields = {"username": name, "password": name, "csrfmiddlewaretoken": found[1]}
                client.post("/admin/login/", params={"next": "/admin/"}, data=fields)
        return Person(client, url)

    def log_in_again(self, kind: str, name: str) -> "Person":
        """The same, with a new session."""
        before = self._people.pop((kind, name), None)
        if before is not None:
            before.close()
        return self.person(kind, name)


class Person:
    """Requests as a browser sends them from a page of the dashboard."""

    def __init__(self, client: httpx.Client, url: str) -> None:
        self.client = client
        self.own = {"x-taskharbor": "1", "sec-fetch-site": "same-origin", "origin": url}

    def get(self, path: str, prefix: str = "/admin/jobs", **headers: str) -> httpx.Response:
        return self.client.get(f"{prefix}{path}", headers=headers)

    def post(self, path: str, fields: dict[str, str] | None = None, **headers: str | None) -> httpx.Response:
        """An action. None leaves a header out."""
        given = {**self.own, **{name.replace("_", "-"): value for name, value in headers.items()}}
        kept = {name: value for name, value in given.items() if value is not None}
        return self.client.post(f"/admin/jobs{path}", data=fields or {}, headers=kept)
