"""Handlers for process=True: functions of a module, so that a child process can import them."""

import importlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from taskharbor import JobContext, Snooze, Unrecoverable
from taskharbor.worker import child_main


def where(ctx: JobContext) -> dict[str, Any]:
    ctx.progress(1, 2, "half way")
    return {"pid": os.getpid(), "fence": ctx.fence, "key": ctx.key("where")}


def in_steps(ctx: JobContext) -> list[Any]:
    """The first execution does the steps and fails; the second one finds them."""
    is_first = ctx.fence == 1
    number = ctx.step("one", int, "1" if is_first else "2")
    ctx.sleep("nap", 0)
    if is_first:
        ctx.checkpoint({"page": 1})
        raise ValueError("after the steps")
    return [number, "one", ctx.last_checkpoint]


def tell_slot(ctx: JobContext) -> str:
    return str(ctx.slot and ctx.slot.isoformat())


async def where_awaited(ctx: JobContext) -> dict[str, Any]:
    return where(ctx)


async def coroutine(name: str) -> str:
    return f"hello {name}"


def hangs() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(60)


def nothing() -> None: ...


def square(number: int) -> int:
    return number * number


def in_parallel(way: str, start: str) -> list[int]:
    """Compute in processes of its own, as programs do."""
    context = multiprocessing.get_context(start)
    if way == "pool":
        with context.Pool(2) as pool:
            return pool.map(square, [1, 2, 3])
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        return list(executor.map(square, [1, 2, 3]))


def hangs_in_parallel(ctx: JobContext) -> None:
    """Report the processes that it has started, and wait for them."""
    processes = [multiprocessing.get_context("fork").Process(target=hangs) for _ in range(2)]
    for each in processes:
        each.start()
    ctx.progress(0, note=" ".join(str(each.pid) for each in (*processes, multiprocessing.current_process())))
    processes[0].join()


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leaves() -> None:
    os._exit(7)


class Rejected(Exception):
    """Cannot be made again from its text, so it cannot travel to the parent."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")


def rejects() -> None:
    raise Rejected(404, "no such thing")


def raises(kind: str) -> None:
    class Local(Exception):
        pass

    if kind == "local":
        raise Local("cannot travel")
    raise {"value": ValueError("in the child"), "final": Unrecoverable("no use"), "later": Snooze(60)}[kind]


def waits_for_the_signal(ctx: JobContext) -> str:
    ctx.progress(0, note="started")
    ctx.cancelled.wait(60)
    return str(ctx.cancelled.reason)


noted: list[int] = []


@contextmanager
def noting_the_process(ctx: JobContext) -> Iterator[None]:
    noted.append(os.getpid())
    yield
    noted.clear()


def what_was_noted() -> tuple[int, int]:
    (pid,) = noted
    return pid, os.getpid()


def fails() -> None:
    raise ValueError("of the handler")


@contextmanager
def swallows(ctx: JobContext) -> Iterator[None]:
    try:
        yield
    except BaseException:
        pass


@contextmanager
def refuses(ctx: JobContext) -> Iterator[None]:
    raise PermissionError("not today")
    yield


@contextmanager
def fails_afterwards(ctx: JobContext) -> Iterator[None]:
    yield
    raise ConnectionError("could not be closed")


class Ghost:
    """Call middleware of a module that no child finds."""

    def __call__(self, ctx: JobContext) -> Any:
        raise AssertionError("not called")

    def __reduce__(self) -> tuple[Any, ...]:
        return _import, ("ghost",)


def _import(name: str) -> Any:
    return importlib.import_module(name)


def checking(ctx: JobContext) -> str:
    """Works until `ctx.cancelled` is set."""
    while True:
        ctx.cancelled.wait(0.01)
        ctx.cancelled.check()


def reports(ctx: JobContext) -> None:
    ctx.progress(1, 2, "in a process")
    ctx.cancelled.wait(60)


@dataclass
class Receipt:
    number: int


@dataclass
class SignedReceipt(Receipt):
    signature: str = "hunter2"


def signed_receipt() -> Receipt:
    return SignedReceipt(1)


def begins_without_memory(*_: Any) -> None:
    """In place of a child's main function: what the kernel does when memory is out."""
    os.kill(os.getpid(), signal.SIGKILL)


def begins_without_thread(*_: Any) -> None:
    """The same, where the system has no thread for it."""

    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    threading.Thread.start = refuse  # type: ignore[method-assign,assignment]  # of a process that ends now
    child_main.serve(*_)
