"""Given(): the lifespan's object, or the field of it that has the annotated type."""

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Annotated, Any, Generic, NamedTuple, Optional, Protocol, TypeVar

import msgspec
import pytest

from taskharbor import Depends, Given, Harbor, LifespanFailed
from taskharbor.tasks.lifespan import GivenMismatch, getter
from taskharbor.testing import drain

T = TypeVar("T")


class Http:
    pass


class FakeHttp:
    """Not a subclass: what a test puts in its place."""


class Pool(Generic[T]):
    pass


class SmallPool(Pool[int]):
    pass


class Speaks(Protocol):
    def speak(self) -> str: ...


@dataclasses.dataclass
class App:
    http: Http
    pool: Pool[int]
    fallback: Optional[SmallPool] = None  # noqa: UP045 - as many programs write it
    _hidden: int = 5


class Struct(msgspec.Struct):
    http: Http
    pool: Pool[int]


class Pair(NamedTuple):
    http: Http
    pool: Pool[int]


class Plain:
    def __init__(self) -> None:
        self.http = Http()
        self.pool = Pool[int]()


HTTP, POOL = Http(), Pool[int]()


@pytest.mark.parametrize(
    "given",
    [App(HTTP, POOL), Struct(HTTP, POOL), Pair(HTTP, POOL), Plain(), SimpleNamespace(http=HTTP, pool=POOL),
     {"http": HTTP, "pool": POOL}],
    ids=lambda given: type(given).__name__,
)  # fmt: skip
def test_a_field_is_found_by_its_type_in_every_kind_of_object(given: Any) -> None:
    http = given["http"] if isinstance(given, dict) else given.http
    assert getter(given, Http)(given) is http
    assert getter(given, Http | None)(given) is http
    assert getter(given, Annotated[Http, "meta"])(given) is http
    assert isinstance(getter(given, Pool)(given), Pool)
    for whole in (type(given), Any, object):
        assert getter(given, whole)(given) is given
    with pytest.raises(GivenMismatch, match="expected a str, or a field of that type; the lifespan gave a"):
        getter(given, str)


def test_a_declared_type_counts_whatever_is_there() -> None:
    """A test puts a fake into the field that is declared as the real thing."""
    app = App(FakeHttp(), POOL)  # type: ignore[arg-type]  # a fake
    assert getter(app, Http)(app) is app.http
    assert getter(app, SmallPool)(app) is None  # declared as optional, and not there
    app.http = Http()
    assert getter(app, Http)(app) is app.http


def test_the_exact_type_wins_over_one_that_also_fits() -> None:
    app = App(HTTP, POOL, SmallPool())
    assert getter(app, Pool[int])(app) is POOL
    assert getter(app, SmallPool)(app) is app.fallback


class Order: ...


class User: ...


class Orders(Pool[Order]): ...


@dataclasses.dataclass
class Repositories:
    users: Pool[User]
    orders: Orders


def test_another_kind_of_a_generic_does_not_fit() -> None:
    """An instance does not show what it is a `Pool` of: its declaration and its class do."""
    given = Repositories(Pool[User](), Orders())
    assert getter(given, Pool[User])(given) is given.users
    assert getter(given, Pool[Order])(given) is given.orders
    for wanted in (Pool[int], Pool[str]):
        with pytest.raises(GivenMismatch, match="or a field of that type"):
            getter(given, wanted)
    by_name: dict[str, Any] = {"orders": Orders()}
    assert getter(by_name, Pool[Order])(by_name) is by_name["orders"]
    with pytest.raises(GivenMismatch):
        getter(by_name, Pool[User])
    bare = {"pool": Pool()}  # type: ignore[var-annotated]  # of what, nobody knows
    assert getter(bare, Pool[User])(bare) is bare["pool"]


class Two:
    primary: Http
    replica: Http

    def __init__(self) -> None:
        self.primary, self.replica = Http(), Http()


@pytest.mark.parametrize(
    ("given", "wanted", "told"),
    [
        (Two(), Http, "the lifespan gave a Two, and its fields 'primary' and 'replica' are all of the type Http; let "
         "the parameter depend on a function that takes the whole Two and returns one of them"),
        (SimpleNamespace(a=SmallPool(), b=SmallPool(), c=HTTP), Pool, "its fields 'a' and 'b' are all"),
        (None, Http, "expected a Http, but the lifespan gave nothing"),
        (App(HTTP, POOL), int, "the lifespan gave an App, whose fields are http: Http, pool: .*Pool.int., fallback: "),
        (7, Http, "the lifespan gave an int, which has no fields"),
        (App(HTTP, POOL), Speaks, "expected a Speaks, or a field of that type"),
    ],
)  # fmt: skip
def test_nothing_that_fits_or_too_much_is_an_error_that_names_the_fields(given: Any, wanted: Any, told: str) -> None:
    with pytest.raises(GivenMismatch, match=told):
        getter(given, wanted)


@asynccontextmanager
async def resources() -> AsyncIterator[App]:
    yield App(HTTP, POOL)


left: list[str] = []


@asynccontextmanager
async def two() -> AsyncIterator[Two]:
    yield Two()
    left.append("two")


def primary(both: Two = Given()) -> Http:
    return both.primary


def test_handlers_and_dependencies_receive_what_the_lifespan_gave() -> None:
    harbor = Harbor("memory://", lifespan=resources)
    seen: list[Any] = []

    def pool(app: App = Given()) -> Pool[int]:
        return app.pool

    @harbor.task
    async def sync(user: int, http: Http = Given(), db: Pool[int] = Depends(pool), anything: Any = Given()) -> int:
        seen.extend([http, db, type(anything)])
        return user

    @harbor.task
    def plain(user: int, app: Annotated[App | None, Given()] = None) -> int:
        assert app is not None
        seen.append(app.http)
        return user

    jobs = [sync.enqueue(42), plain.enqueue(43)]
    assert drain(harbor) == 2
    assert [job.result() for job in jobs] == [42, 43]
    assert seen == [HTTP, POOL, App, HTTP]
    harbor.close()


def test_what_the_lifespan_does_not_give_ends_the_worker_before_its_first_job() -> None:
    def none(harbor: Harbor) -> None:
        @harbor.task(name="shop.sync")
        async def sync(http: Http = Given()) -> None: ...

    def deep(harbor: Harbor) -> None:
        def client(http: Http = Given()) -> Http:
            return http

        @harbor.task(name="shop.sync")
        async def sync(http: Http = Depends(client)) -> None: ...

    for declare, lifespan, told in [
        (none, None, r"parameter 'http' of shop.sync: Given\(\) receives what the lifespan gave, and there is none"),
        (none, two, "parameter 'http' of shop.sync: the lifespan gave a Two, and its fields 'primary' and 'replica'"),
        (deep, two, "shop.sync: parameter 'http' of the dependency .*client: the lifespan gave a Two"),
    ]:
        harbor = Harbor("memory://", lifespan=lifespan)
        declare(harbor)
        harbor.tasks["shop.sync"].enqueue()
        left.clear()
        with pytest.raises(LifespanFailed, match=told):
            harbor.worker().run(until_empty=True)
        assert harbor.counts()["default"]["ready"] == 1
        assert left == (["two"] if lifespan is two else [])
        harbor.close()


def test_an_ambiguous_field_is_chosen_by_a_dependency() -> None:
    harbor = Harbor("memory://", lifespan=two)

    @harbor.task
    def sync(http: Http = Depends(primary)) -> str:
        return type(http).__name__

    job = sync.enqueue()
    drain(harbor)
    assert job.result() == "Http"
    harbor.close()
