"""FastAPI's own Depends, understood by its shape; and what a worker cannot give, refused at declaration."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Optional

import fastapi
import pytest
from fastapi.security import OAuth2PasswordBearer, SecurityScopes
from starlette.requests import HTTPConnection
from starlette.requests import Request as StarletteRequest

import taskharbor
from taskharbor import Given, Harbor, JobContext
from taskharbor.testing import drain


class Settings:
    name = "settings"


notes: list[str] = []


def get_settings() -> Settings:
    notes.append("settings")
    return Settings()


def get_db(settings: Annotated[Settings, fastapi.Depends(get_settings)]) -> Iterator[str]:
    notes.append("open")
    yield f"db of {settings.name}"
    notes.append("close")


async def get_async_db(settings: Settings = fastapi.Depends(get_settings)) -> AsyncIterator[str]:
    yield f"async db of {settings.name}"


class Common:
    def __init__(self, db: Annotated[str, fastapi.Depends(get_db)]) -> None:
        self.db = db


Db = Annotated[str, fastapi.Depends(get_db)]


def test_one_get_db_serves_an_endpoint_and_a_task() -> None:
    """The diamond: settings are needed by three, and made once."""
    notes.clear()
    harbor = Harbor("memory://")

    @harbor.task
    def sync(user: int, db: Db, other: str = fastapi.Depends(get_async_db), common: Common = fastapi.Depends()) -> str:
        return f"{user}, {db}, {other}, {common.db}"

    app = fastapi.FastAPI()

    @app.get("/")
    def read(db: Db) -> str:
        return db

    job = sync.enqueue(1)  # type: ignore[call-arg]  # without a default, a type checker wants `db`
    drain(harbor)
    assert job.result() == "1, db of settings, async db of settings, db of settings"
    assert notes == ["settings", "open", "close"]
    harbor.close()


def test_use_cache_of_fastapi_is_honoured() -> None:
    notes.clear()
    harbor = Harbor("memory://")

    @harbor.task
    def sync(
        a: Settings = fastapi.Depends(get_settings),
        b: Settings = fastapi.Depends(get_settings),
        c: Settings = fastapi.Depends(get_settings, use_cache=False),
    ) -> list[bool]:
        return [a is b, a is c]

    job = sync.enqueue()
    drain(harbor)
    assert job.result() == [True, False]
    assert notes == ["settings", "settings"]
    harbor.close()


def test_a_dependency_of_fastapi_may_ask_for_what_a_worker_has() -> None:
    harbor = Harbor("memory://")

    def from_context(ctx: JobContext) -> str:
        return ctx.job.type

    @harbor.task(name="t")
    def sync(type: str = fastapi.Depends(from_context)) -> str:
        return type

    job = sync.enqueue()
    drain(harbor)
    assert job.result() == "t"
    harbor.close()


# What only a request has


def wants_request(request: fastapi.Request) -> None: ...
def wants_starlettes(request: StarletteRequest) -> None: ...
def wants_maybe(request: Optional[fastapi.Request] = None) -> None: ...  # noqa: UP045 - as many programs write it
def wants_response(response: fastapi.Response) -> None: ...
def wants_socket(socket: fastapi.WebSocket) -> None: ...
def wants_connection(connection: HTTPConnection) -> None: ...
def wants_background(tasks: fastapi.BackgroundTasks) -> None: ...
def wants_scopes(scopes: SecurityScopes) -> None: ...
def wants_query(q: str = fastapi.Query("x")) -> None: ...
def wants_header(token: Annotated[str, fastapi.Header()]) -> None: ...
def wants_body(item: Annotated[dict[str, Any], fastapi.Body()]) -> None: ...
def wants_plain_query(q: str) -> None: ...
def wants_default_query(q: str | None = None, limit: int = 100) -> None: ...
def wants_user(user: Annotated[str, fastapi.Security(get_settings, scopes=["me"])]) -> None: ...
def deep(db: Annotated[None, fastapi.Depends(wants_request)]) -> None: ...


@pytest.mark.parametrize(
    ("dependency", "told"),
    [
        (wants_request, "parameter 'request' of the dependency wants_request asks for Request"),
        (wants_starlettes, "parameter 'request' of the dependency wants_starlettes asks for Request"),
        (wants_maybe, "parameter 'request' of the dependency wants_maybe asks for Request"),
        (wants_response, "parameter 'response' of the dependency wants_response asks for Response"),
        (wants_socket, "parameter 'socket' of the dependency wants_socket asks for WebSocket"),
        (wants_connection, "parameter 'connection' of the dependency wants_connection asks for HTTPConnection"),
        (wants_background, "parameter 'tasks' of the dependency wants_background asks for BackgroundTasks"),
        (wants_scopes, "parameter 'scopes' of the dependency wants_scopes asks for SecurityScopes"),
        (wants_query, "parameter 'q' of the dependency wants_query asks for Query"),
        (wants_header, "parameter 'token' of the dependency wants_header asks for Header"),
        (wants_body, "parameter 'item' of the dependency wants_body asks for Body"),
        (wants_plain_query, "parameter 'q' of the dependency wants_plain_query has no value"),
        (wants_default_query, "parameter 'q' of the dependency wants_default_query asks for a query parameter"),
        (wants_user, r"parameter 'user' of the dependency wants_user asks for Security\(…\)"),
        (deep, "parameter 'request' of the dependency wants_request asks for Request"),
        (OAuth2PasswordBearer("token"), "parameter 'request' of the dependency OAuth2PasswordBearer asks for "),
    ],
)
def test_a_dependency_that_needs_a_request_is_refused_at_declaration(dependency: Any, told: str) -> None:
    harbor = Harbor("memory://")
    with pytest.raises(TypeError, match=f"^shop.sync: {told}"):

        @harbor.task(name="shop.sync")
        def sync(user: int, db: Any = fastapi.Depends(dependency)) -> None: ...

    assert "shop.sync" not in harbor.tasks


def test_security_of_a_task_itself_is_refused() -> None:
    with pytest.raises(TypeError, match=r"parameter 'user' of t asks for Security\(…\), which only a web request has"):

        @Harbor("memory://").task(name="t")
        def sync(user: Annotated[str, fastapi.Security(get_settings)]) -> None: ...


def test_a_default_stays_a_default_for_our_own_depends() -> None:
    """FastAPI makes a query parameter of it; outside of FastAPI it is what Python says."""
    harbor = Harbor("memory://")

    def connect(timeout: float = 5) -> float:
        return timeout

    @harbor.task
    def sync(limit: float = taskharbor.Depends(connect)) -> float:
        return limit

    job = sync.enqueue()
    drain(harbor)
    assert job.result() == 5
    harbor.close()


def test_given_and_annotated_work_without_a_default() -> None:
    def declare(harbor: Harbor) -> Any:
        @harbor.task
        def sync(app: Annotated[Settings, Given()], user: int = 1) -> str: ...  # type: ignore[empty-body]  # not run

        return sync

    assert declare(Harbor("memory://")).s()._lacking() == ()


def test_nothing_of_a_framework_is_imported() -> None:
    code = """
import sys
from taskharbor import Depends, Given, Harbor
class Looks:  # as FastAPI's params.Depends looks
    dependency, use_cache = staticmethod(lambda: 5), True
Looks.__name__ = "Depends"
harbor = Harbor("memory://")
@harbor.task(name="t")
def task(x: int = Looks()) -> int:
    return x
job = task.enqueue()
harbor.worker().run(until_empty=True)
assert job.result() == 5
assert not {"fastapi", "starlette", "litestar", "pydantic"} & set(sys.modules), sorted(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
