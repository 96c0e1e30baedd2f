"""What runs in the child process of a `process=True` job: one job at a time, over a pipe.

    parent → ("run", request)   ("cancel", reason)   None: end
    child  → ("progress", done, total, note)   ("returned", result, jobs, handover)   ("raised", …)

The function is found by the module and name that the parent's registry gave, never by anything in the job. A
parent that is gone closes the pipe; the child then ends at once.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import threading
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

import msgspec

from taskharbor.model.codec import Codec
from taskharbor.model.current import CURRENT, note_handler_thread
from taskharbor.model.errors import Unrecoverable
from taskharbor.model.job import JobRecord
from taskharbor.model.shown import shown
from taskharbor.model.times import truncate
from taskharbor.observe.lines import Configuration, configure_like
from taskharbor.policy.carried import UNRECOVERABLE_KEY, is_unrecoverable
from taskharbor.policy.describe import describe, summary
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.handler import Handler, PayloadMismatch, load_reference
from taskharbor.tasks.workflow import is_workflow
from taskharbor.worker.middleware import CallMiddleware, call_within


class Request(msgspec.Struct, frozen=True):
    """One job for a child."""

    reference: tuple[str, str]
    codec: Codec | None
    job: JobRecord
    deadline: datetime | None
    unrecoverable: str = "[]"  # the handler's types, as `write_unrecoverable` names them
    layers: bytes = b""  # call middleware, pickled; read where a failure to read it is the job's

    def __repr__(self) -> str:
        return shown(self, "reference", "job", "deadline")


def serve(pipe: Connection, logs: Configuration | None = None) -> None:
    """The child's main function. `logs`: how its parent writes log lines, if it was told how."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent decides
    configure_like(logs)
    note_handler_thread()
    requests: SimpleQueue[Request | None] = SimpleQueue()
    running: list[JobContext] = []
    threading.Thread(target=_listen, args=(pipe, requests, running), daemon=True).start()
    while (request := requests.get()) is not None:
        pipe.send(_perform(pipe, request, running))


def _listen(pipe: Connection, requests: SimpleQueue[Request | None], running: list[JobContext]) -> None:
    while True:
        try:
            message = pipe.recv()
        except (EOFError, OSError):
            os._exit(1)
        if message is None:
            requests.put(None)
            return
        kind, content = message
        if kind == "run":
            requests.put(content)
        else:
            for context in list(running):
                context.cancelled.set(content)


def _perform(pipe: Connection, request: Request, running: list[JobContext]) -> tuple[Any, ...]:
    def progress(_: JobRecord, done: float, total: float | None, note: str) -> None:
        pipe.send(("progress", done, total, note))

    context = JobContext(request.job, deadline=request.deadline, _progress=progress)
    running.append(context)
    CURRENT.set(request.job)
    try:
        handler = Handler(request.job.type, load_reference(*request.reference), codec=request.codec)
        handler.results_to_read = 0  # its parent does
        args, kwargs = handler.bind(request.job.payload, context)

        def call() -> Any:
            value = handler.function(*args, **kwargs)
            return asyncio.run(value) if handler.is_coroutine else value

        layers: tuple[CallMiddleware, ...] = pickle.loads(request.layers) if request.layers else ()
        value = call_within(layers, context, call)
        if is_workflow(value):
            spawned = value.compile(request.job, truncate(datetime.now(UTC)))
            return ("returned", None, spawned.jobs, spawned.handover)
        return ("returned", handler.encode_result(value), (), None)
    except BaseException as error:
        travels = _pickled(error) or _pickled(_stand_in(error, request))
        return ("raised", travels, issubclass(type(error), PayloadMismatch), describe(error))
    finally:
        CURRENT.set(None)
        running.clear()


def _stand_in(error: BaseException, request: Request) -> BaseException | None:
    """For an exception that cannot travel: one that is decided as it would be, if its type is unrecoverable."""
    try:
        named = request.job.metadata.get(UNRECOVERABLE_KEY, request.unrecoverable)
        return Unrecoverable(f"unrecoverable {summary(error)}") if is_unrecoverable(named, error) else None
    except ValueError:  # another program wrote what cannot be read: the parent tells of it
        return None


def _pickled(error: BaseException | None) -> bytes | None:
    """The exception for the parent's retry policy, if it can travel; both ends are this program."""
    if error is None:
        return None
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except BaseException:
        return None
    return data
