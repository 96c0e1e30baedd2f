"""Injected parameters: a call leaves them out, and their types are checked where they are declared. Never run."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, assert_type

from taskharbor import Depends, Given, Harbor, JobContext, JobHandle
from taskharbor.testing import ManualClock, context, isolated


class Session: ...


class Http: ...


class App:
    http: Http


@asynccontextmanager
async def resources() -> AsyncGenerator[App, None]:
    yield App()


async def session(app: App = Given()) -> AsyncIterator[Session]:
    yield Session()


def plain_session() -> Iterator[Session]:
    yield Session()


async def awaited() -> Session:
    return Session()


@contextmanager
def managed() -> Generator[Session, None, None]:
    yield Session()


@asynccontextmanager
async def amanaged() -> AsyncGenerator[Session, None]:
    yield Session()


def number(ctx: JobContext, db: Session = Depends(session)) -> int:
    return 1


harbor = Harbor("memory://", lifespan=resources)


@harbor.task
async def sync(user_id: int, db: Session = Depends(session), http: Http = Given()) -> int:
    return user_id


@harbor.task
def plain(ctx: JobContext, user_id: int, *, n: int = Depends(number), app: App = Given()) -> str:
    return ""


@harbor.task
def annotated(user_id: int, db: Annotated[Session, Depends(plain_session)] = Depends(plain_session)) -> None: ...


@harbor.task
def kinds(
    a: Session = Depends(plain_session),
    b: Session = Depends(awaited),
    c: Session = Depends(managed),
    d: Session = Depends(amanaged),
    e: App = Depends(App),
) -> None: ...


assert_type(sync.enqueue(42), JobHandle[int])
assert_type(plain.enqueue(42), JobHandle[str])
assert_type(annotated.enqueue(user_id=42), JobHandle[None])
assert_type(kinds.enqueue(), JobHandle[None])
called = assert_type(sync(42, Session(), Http()), Coroutine[Any, Any, int])
assert_type(plain(context(attempt=2), 42, n=3), str)
sync.enqueue("42")  # E: arg-type
sync.enqueue()  # E: call-arg
sync.enqueue(42, Http())  # E: arg-type


made = Session()


def wrong_type(a: int = Depends(plain_session)) -> None: ...  # E: assignment
def wrong_kind(a: Session = Depends(number)) -> None: ...  # E: assignment
def not_called(a: Session = Depends(made)) -> None: ...  # E: call-overload


fake: Callable[[], Session] = Session
with harbor.override({session: fake, resources: resources}):
    pass
with harbor.override({session: Session()}):  # E: dict-item
    pass
with isolated(harbor, clock=ManualClock()) as same:
    assert_type(same, Harbor)


async def block() -> None:
    async with isolated(harbor):
        pass


isolated(3)  # E: type-var
Harbor("memory://", lifespan=session)  # E: arg-type
Harbor("memory://", lifespan=3)  # E: arg-type
