"""Child processes for `process=True` jobs: started when first needed, used again, really killed at a timeout.

Each runs one job at a time and is watched by a thread of the worker's pool, which waits at its pipe. (Python's
own ProcessPoolExecutor is unusable after one child was killed.)
"""

from __future__ import annotations

import multiprocessing
import pickle
import threading
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from taskharbor.model.codec import JsonCodec
from taskharbor.model.job import JobRecord
from taskharbor.observe.lines import configuration
from taskharbor.policy.carried import write_unrecoverable
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.handler import Handler, PayloadMismatch
from taskharbor.tasks.signature import Signature
from taskharbor.tasks.workflow import Spawned, Workflow
from taskharbor.worker.child import Request, serve
from taskharbor.worker.middleware import CallMiddleware
from taskharbor.worker.run import Run
from taskharbor.worker.threads import Threads


class ChildDied(Exception):
    """The child process ended without an answer: killed, out of memory, or it left by itself."""


class RemoteError(Exception):
    """An exception of a child process that cannot travel to its parent; the text is its description."""


class _Child:
    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")  # fork would copy locks that other threads hold
        self.pipe, other = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=serve, args=(other, configuration()), daemon=True, name="taskharbor-child"
        )
        self.process.start()
        other.close()

    def kill(self) -> None:
        self.process.kill()

    def end(self) -> None:
        """Kill it, and leave neither a zombie nor a descriptor behind."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Children:
    """The worker's idle child processes, and the way to run a job in one."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._idle: list[_Child] = []
        self._closed = False

    async def run(
        self, run: Run, handler: Handler, context: JobContext, call_middleware: tuple[CallMiddleware, ...] = ()
    ) -> Any:
        """Run a job in a child and answer what its handler returned, or raise what it raised."""
        stop = _Stop()
        run.kill = stop.kill
        context.cancelled.subscribe(lambda: stop.tell(context.cancelled.reason or ""))
        codec = handler.signature.codec
        own = None if type(codec) is JsonCodec else codec  # the default is made anew there; another one must pickle
        unrecoverable = write_unrecoverable(handler.unrecoverable)
        layers = _packed(call_middleware) if call_middleware else b""
        request = Request(handler.reference, own, run.job, context.deadline, unrecoverable, layers)
        answer = await self._threads.run(lambda: self._perform(request, context, stop))
        return _value_of(answer, handler)

    def close(self) -> None:
        """End the idle children; busy ones were killed, or end with this process."""
        self._closed = True
        while self._idle:
            self._idle.pop().end()

    def _perform(self, request: Request, context: JobContext, stop: _Stop) -> tuple[Any, ...]:
        """In a thread: send the job, pass progress on, wait for the end."""
        child = self._take()
        try:
            stop.begin(child, request)
            while (message := child.pipe.recv())[0] == "progress":
                context.progress(*message[1:])
        except (EOFError, OSError):
            child.process.join(1)  # let it end its own way first: its exit code tells how it died
            child.end()
            raise ChildDied(f"its process ended with {_cause(child.process)}") from None
        except BaseException:
            child.end()
            raise
        finally:
            stop.end()
        if self._closed:
            child.end()
        else:
            self._idle.append(child)
        answer: tuple[Any, ...] = message
        return answer

    def _take(self) -> _Child:
        """An idle child that still lives, or a new one."""
        while True:
            try:
                child = self._idle.pop()
            except IndexError:
                return _Child()
            if child.process.is_alive():
                return child
            child.end()


class _Stop:
    """Reaches a child from the worker's loop, also when it is asked to before the child has started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # a child that went back to the idle ones must be out of reach
        self._child: _Child | None = None
        self._killed = False
        self._reason = ""

    def begin(self, child: _Child, request: Request) -> None:
        """Send the job, and what was asked of it meanwhile."""
        with self._lock:
            self._child = child
            if self._killed:
                child.kill()
            child.pipe.send(("run", request))
            if self._reason:
                _send(child.pipe, ("cancel", self._reason))

    def end(self) -> None:
        with self._lock:
            self._child = None

    def kill(self) -> None:
        with self._lock:
            self._killed = True
            if self._child is not None:
                self._child.kill()

    def tell(self, reason: str) -> None:
        with self._lock:
            self._reason = reason
            if self._child is not None:
                _send(self._child.pipe, ("cancel", reason))


class _Compiled(Workflow):
    """A workflow that the child has compiled already."""

    def __init__(self, spawned: Spawned) -> None:
        self._spawned = spawned

    def compile(self, parent: JobRecord, now: Any) -> Spawned:
        return self._spawned


def _value_of(answer: tuple[Any, ...], handler: Handler) -> Any:
    if answer[0] == "returned":
        _, result, jobs, handover = answer
        if handover is not None:
            return _Compiled(Spawned(jobs, handover))
        return None if result is None else _read(result, handler.signature)
    _, pickled, mismatch, description = answer
    if mismatch:
        raise PayloadMismatch(description.split("\n", 1)[0].removeprefix("PayloadMismatch: "))
    error = pickle.loads(pickled) if pickled is not None else RemoteError(description)
    # The frames were left behind in the child: a note keeps them for the record.
    error.__notes__ = [*description.split("\n\n")[1:]]
    raise error


def _read(result: bytes, signature: Signature) -> Any:
    """A result as it is annotated; one that does not fit is done all the same, as it is without a child process."""
    try:
        return signature.codec.decode(result, signature.return_type)
    except ValueError:
        return signature.codec.decode(result)


def _packed(call_middleware: tuple[CallMiddleware, ...]) -> bytes:
    """The layers as a child finds them again: by their names."""
    for layer in call_middleware:
        try:
            pickle.dumps(layer)
        except Exception:
            name = getattr(layer, "__qualname__", None) or type(layer).__qualname__
            raise TypeError(
                f"call_middleware: process=True: expected functions that a child process can import, got {name}; "
                "move it to its module"
            ) from None
    return pickle.dumps(call_middleware)


def _cause(process: SpawnProcess) -> str:
    code = process.exitcode
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def _send(pipe: Connection, message: Any) -> None:
    try:
        pipe.send(message)
    except (OSError, ValueError):
        return  # the child is gone; whoever waits for it learns that from the pipe
