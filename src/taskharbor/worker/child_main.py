"""The main function of a child process for `process=True` jobs: one job at a time, over a pipe.

    parent → ("run", request)   ("cancel", reason)   ("answer", (number, value, error))   None: end
    child  → ("ready",), then for each job   ("progress", done, total, note) …   ("ask", number, verb, …) …
                                             ("returned", result, changed, jobs, handover)
                                             or ("raised", …)
                                             or ("unfit", …): raised, and it ends

The function is found by the module and name from the parent's registry, never by anything in the job. A child leads a
process group, so that everything its handlers start ends with it. When the parent is gone, all of it ends at once.

    with a lifespan:
    entered ──► one job at a time: a coroutine on the loop, a plain function in a thread ──► left at the parent's order

A lifespan that fails is the failure of the job for which the child was started, and ends the child: the next job gets
another one. The parent kills a child that does not leave in time.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NoReturn, TypeAlias

import msgspec

from taskharbor.model.codec import Codec, JsonCodec
from taskharbor.model.current_job import CURRENT, note_handler_thread
from taskharbor.model.errors import Cancel, Unrecoverable
from taskharbor.model.job import JobRecord
from taskharbor.model.memo import Memo
from taskharbor.model.safe_repr import shown
from taskharbor.model.times import truncate
from taskharbor.observe.formatting import Configuration, configure_like, keep_logging
from taskharbor.policy.describe import blamed, describe, summary
from taskharbor.policy.fingerprint import origin_of
from taskharbor.policy.retry import UNRECOVERABLE_KEY, is_unrecoverable
from taskharbor.tasks.context import JobContext, report_early_end
from taskharbor.tasks.handler import Handler, PayloadMismatch, load_reference
from taskharbor.tasks.overrides import Overrides
from taskharbor.tasks.step_transaction import StepHold
from taskharbor.tasks.steps import Steps
from taskharbor.tasks.workflow import is_workflow
from taskharbor.worker.injector import Injector
from taskharbor.worker.lifespan import RunningLifespan
from taskharbor.worker.middleware import CallMiddleware, await_within, call_within
from taskharbor.worker.threads import Threads, unwrap
from taskharbor.worker.waiting import StopBudget, first_of

Layers: TypeAlias = tuple[CallMiddleware, ...]

_threads = Threads("taskharbor-job")
OUT_OF_MEANS = 75  # the exit code of a child that could not begin: no memory, or no thread
JOB_ENDED = "its job has ended"
PARENT_CHECK_S = 5.0  # between two checks that the parent lives, when it sends nothing


class Request(msgspec.Struct, frozen=True):
    """One job for a child."""

    reference: tuple[str, str]
    codec: Codec | None
    job: JobRecord
    deadline: datetime | None
    unrecoverable: str = "[]"  # the handler's types, as `write_unrecoverable` names them
    layers: bytes = b""  # call middleware, pickled; unpickled where an error counts as the job's
    lifespan: bytes = b""  # the same: what the child opens before its first job
    raw: bool = False  # whether the handler receives the payload's bytes
    memos: tuple[Memo, ...] = ()  # of the job's steps
    overrides: bytes = b""  # the same: functions, and what stands in their place

    def __repr__(self) -> str:
        return shown(self, "reference", "job", "deadline")


class JobPipe:
    """The child's end of the pipe. Threads of a handler may use it at the same time, but only until their job ends."""

    def __init__(self, connection: Connection) -> None:
        self.recv, self.poll = connection.recv, connection.poll
        self._send = connection.send
        self._lock = threading.Lock()
        self._running: JobContext | None = None
        self._reason = ""  # why the current job has to stop
        self._questions = 0  # how many there were
        self._answers: dict[int, Future[tuple[Any, BaseException | None]]] = {}  # those without an answer

    def send(self, *message: Any) -> None:
        with self._lock:
            self._send(message)

    def expect(self) -> None:
        """A job has arrived: a cancel from now on is meant for it."""
        with self._lock:
            self._reason = ""

    def begin(self, context: JobContext) -> None:
        """The job begins."""
        with self._lock:
            self._running, reason = context, self._reason
        if reason:
            context.cancelled.set(reason)

    def cancel(self, reason: str) -> None:
        """The job has to stop."""
        with self._lock:
            self._reason, context = reason, self._running
        if context is not None:
            context.cancelled.set(reason)

    def progress(self, context: JobContext, done: float, total: float | None, note: str) -> None:
        with self._lock:
            if self._running is context:
                self._send(("progress", done, total, note))

    def ask(self, context: JobContext, *question: Any) -> Any:
        """Ask the parent, and wait for its answer."""
        answer: Future[tuple[Any, BaseException | None]] = Future()
        with self._lock:
            if self._running is not context:
                raise Cancel(JOB_ENDED)
            self._questions += 1
            self._answers[self._questions] = answer
            self._send(("ask", self._questions, *question))
        value, error = answer.result()
        if error is not None:
            raise error
        return value

    def answer(self, number: int, value: Any, error: BaseException | None) -> None:
        """The parent has answered."""
        with self._lock:
            answer = self._answers.pop(number, None)
        if answer is not None:
            answer.set_result((value, error))

    def finish(self, message: tuple[Any, ...]) -> None:
        """Send the last message about a job."""
        with self._lock:
            self._running = None
            self._send(message)
            left, self._answers = self._answers, {}
        for answer in left.values():  # of threads that the handler has left behind
            answer.set_result((None, Cancel(JOB_ENDED)))


class PipeSteps:
    """The `StepCalls` of a job in a child: the parent makes them. It kills the child when the job's lease is lost."""

    def __init__(self, pipe: JobPipe, context: JobContext) -> None:
        self._ask = partial(pipe.ask, context)

    def check(self) -> None:
        """Nothing to check: see above."""

    def save(self, name: str, value: bytes) -> None:
        self._ask("save", name, value)

    async def asave(self, name: str, value: bytes) -> None:
        await asyncio.to_thread(self._ask, "save", name, value)

    def now(self) -> datetime:
        now: datetime = self._ask("now")
        return now

    def hold(self, *, is_coroutine: bool) -> StepHold:
        raise RuntimeError("ctx.step_transaction() needs a handler that runs in its worker's own process")


def serve(connection: Connection, logs: Configuration | None = None) -> None:
    """The child's main function. `logs`: how its parent has configured logging, if it has."""
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
        os.set_inheritable(connection.fileno(), False)  # else programs that handlers start would keep it open
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    # To the parent it is a daemon, which ends with it. Here handlers may use multiprocessing: what they start belongs
    # to this process group, and ends with it as well.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]  # no public way
    configure_like(logs)
    note_handler_thread()
    requests: SimpleQueue[Request | None] = SimpleQueue()
    pipe = JobPipe(connection)
    try:
        threading.Thread(target=_listen, args=(pipe, requests, os.getppid()), daemon=True).start()
    except (RuntimeError, MemoryError):
        os._exit(OUT_OF_MEANS)
    pipe.send("ready")
    request = requests.get()
    if request is not None and request.lifespan:
        return asyncio.run(_serve_within(pipe, requests, request))
    while request is not None:
        with _Execution(pipe, request) as execution:
            execution.returned(_call(*execution.prepare()))
        request = requests.get()
    return None


def _listen(pipe: JobPipe, requests: SimpleQueue[Request | None], parent: int) -> None:
    while True:
        try:
            while not pipe.poll(PARENT_CHECK_S):
                if os.getppid() != parent:  # a process that the parent had forked keeps its end of the pipe open
                    _end()
            message = pipe.recv()
        except (EOFError, OSError):
            _end()
        if message is None:
            requests.put(None)
            return
        kind, content = message
        if kind == "run":
            pipe.expect()
            requests.put(content)
        elif kind == "answer":
            pipe.answer(*content)
        else:
            pipe.cancel(content)


def _end() -> NoReturn:
    """End at once, with everything that handlers have started."""
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _call(handler: Handler, request: Request, context: JobContext, layers: Layers) -> Any:
    """Call the handler: in this thread, or on a loop of its own if something is awaited."""
    if handler.injection is None:
        args, kwargs = handler.bind(request.job.payload, context)

        def call() -> Any:
            value = handler.function(*args, **kwargs)
            return asyncio.run(value) if handler.is_coroutine else value

        return call_within(layers, context, call)
    injector = _injector(request)
    injection = injector.injection_of(handler)
    if injection.on_loop or handler.is_coroutine:
        return asyncio.run(injector.call(handler, request.job.payload, context, layers, _in_thread, _go_on))
    values = handler.signature.checked_values(request.job.payload)
    return call_within(layers, context, partial(injector.call_handler, handler, injection, values, context, _go_on))


# A child with a lifespan: its loop runs from the first job to the last, also between jobs ------------------------


def _go_on() -> None:
    """Nothing stops a job in a child before its handler: the parent kills the child instead."""


async def _in_thread(call: Callable[[], Any]) -> Any:
    """Call a plain function while the loop goes on."""
    try:
        return await _threads.run(call)
    except Exception as error:
        raise unwrap(error) from None


def _injector(request: Request, lifespan: RunningLifespan | None = None) -> Injector:
    """The injector for one job."""
    functions = _unpacked(request.overrides)
    overrides = Overrides(tuple(zip(functions[::2], functions[1::2], strict=True)))
    return Injector(overrides) if lifespan is None else Injector(overrides, lifespan.function, lifespan.given)


async def _serve_within(pipe: JobPipe, requests: SimpleQueue[Request | None], first: Request) -> None:
    """Serve jobs within the lifespan that the first one names; they all name the same."""
    stop = asyncio.Event()
    try:
        (function,) = _unpacked(first.lifespan)
        lifespan = RunningLifespan(function, stop.set)
        await lifespan.enter(asyncio.Event(), stop)
    except Exception as error:
        pipe.finish(_raised(first, error, None, "unfit"))
        return
    request: Request | None = first
    while request is not None:
        with _Execution(pipe, request) as execution:
            execution.returned(await _call_within(*execution.prepare(), lifespan))
        following = _threads.run(requests.get)
        await first_of(following, stop.wait())
        request = following.result() if following.done() else None
    await lifespan.leave(StopBudget(stop))


async def _call_within(
    handler: Handler, request: Request, context: JobContext, layers: Layers, lifespan: RunningLifespan
) -> Any:
    """The same on the loop of the lifespan."""
    if handler.injection is not None:
        injector = _injector(request, lifespan)
        return await injector.call(handler, request.job.payload, context, layers, _in_thread, _go_on)
    args, kwargs = handler.bind(request.job.payload, context)
    call = partial(handler.function, *args, **kwargs)
    if handler.is_coroutine:
        return await await_within(layers, context, call)
    return await _in_thread(partial(call_within, layers, context, call))


# The parts of a job ---------------------------------------------------------------------------------------------------


class _Execution:
    """One job, as a context: it begins, and whatever happens within, its last message is sent."""

    def __init__(self, pipe: JobPipe, request: Request) -> None:
        self._pipe, self._request = pipe, request
        self._context = JobContext(
            request.job, deadline=request.deadline, _progress=self._progress, _open_steps=self._steps
        )
        self._function: Callable[..., Any] | None = None
        self._last: tuple[Any, ...] = ()

    def _progress(self, _: JobRecord, done: float, total: float | None, note: str) -> None:
        self._pipe.progress(self._context, done, total, note)

    def _steps(self) -> Steps:
        codec = self._request.codec or JsonCodec()
        return Steps(codec, self._request.memos, PipeSteps(self._pipe, self._context))

    def __enter__(self) -> _Execution:
        self._pipe.begin(self._context)
        CURRENT.set(self._request.job)
        return self

    def prepare(self) -> tuple[Handler, Request, JobContext, Layers]:
        """What a call needs: the handler, its annotations resolved, and call middleware."""
        self._function = load_reference(*self._request.reference)
        keep_logging()  # the import may have configured logging
        handler = self._handler = Handler(
            self._request.job.type, self._function, codec=self._request.codec, raw=self._request.raw
        )
        handler.results_to_check = 0  # the parent checks them
        handler.prepare()
        return handler, self._request, self._context, _unpacked(self._request.layers)

    def returned(self, value: Any) -> None:
        """The handler returned."""
        report_early_end(self._context)
        if is_workflow(value):
            spawned = value._compile(self._request.job, truncate(datetime.now(UTC)))
            self._last = ("returned", None, None, spawned.jobs, spawned.handover)
        else:
            result = self._handler.encode_result(value)
            changed = None if result is None else self._handler.change_of(value, result)
            self._last = ("returned", result, changed, (), None)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        CURRENT.set(None)
        self._pipe.finish(self._last if error is None else _raised(self._request, error, self._function))
        return True


def _unpacked(functions: bytes) -> tuple[Any, ...]:
    """Functions that the parent has pickled."""
    return pickle.loads(functions) if functions else ()


def _raised(
    request: Request, error: BaseException, function: Callable[..., Any] | None, kind: str = "raised"
) -> tuple[Any, ...]:
    """The last message about a job that failed."""
    travels = _pickled(error) or _pickled(_stand_in(error, request))
    mismatch = issubclass(type(error), PayloadMismatch)
    return (kind, travels, mismatch, describe(error), *origin_of(blamed(error), function))


def _stand_in(error: BaseException, request: Request) -> BaseException | None:
    """For an exception that cannot be pickled: an Unrecoverable, if its type is an unrecoverable one."""
    try:
        named = request.job.metadata.get(UNRECOVERABLE_KEY, request.unrecoverable)
        return Unrecoverable(f"unrecoverable {summary(error)}") if is_unrecoverable(named, error) else None
    except ValueError:  # another program wrote unreadable metadata: the parent reports it
        return None


def _pickled(error: BaseException | None) -> bytes | None:
    """The exception, pickled for the parent's retry policy, if that works; both ends are this program."""
    if error is None:
        return None
    try:
        data = pickle.dumps(error)
        return data if type(pickle.loads(data)) is type(error) else None
    except BaseException:
        return None
