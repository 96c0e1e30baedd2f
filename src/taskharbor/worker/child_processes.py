"""Child processes for `process=True` jobs: started when first needed, used again, really killed at a timeout.

Each runs one job at a time; a thread of the worker waits at its pipe. It leads a process group: what a handler has
started there ends with it. (Python's own ProcessPoolExecutor is unusable after one child was killed.)
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from taskharbor.model.codec import JsonCodec
from taskharbor.model.errors import HandlerSignal, TaskHarborError, Unrecoverable
from taskharbor.model.job import JobRecord
from taskharbor.model.naming import callable_name
from taskharbor.model.scarcity import missing
from taskharbor.observe.formatting import configuration
from taskharbor.policy.describe import summary
from taskharbor.policy.fingerprint import note_origin
from taskharbor.policy.retry import write_unrecoverable
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.handler import Handler, PayloadMismatch
from taskharbor.tasks.signature import Signature
from taskharbor.tasks.workflow import Spawned, Workflow
from taskharbor.worker.child_main import OUT_OF_MEANS, Request, serve
from taskharbor.worker.delivery import Delivery
from taskharbor.worker.injector import Injector
from taskharbor.worker.middleware import CallMiddleware
from taskharbor.worker.threads import Scarce, Threads
from taskharbor.worker.waiting import first_of

CHILD_CHECK_S = 1.0  # between two checks that a child lives, on systems without pidfd
LEAVE_S = 3.0  # for idle children to leave their lifespans when the worker stops
HURRIED_LEAVE_S = 1.0  # the same after a second signal


class ChildDied(Exception):
    """The child process ended without a result: killed, out of memory, or by an exit of its own."""


class RemoteError(Exception):
    """An exception of a child process that could not be pickled; the text is its description."""


def scarce(error: Exception) -> Exception:
    """What to raise for an error at the start of a child: Scarce, if something of the system is used up."""
    lacking = missing(error)
    return Scarce(f"no child process could be started: {lacking}") if lacking else error


class _Child:
    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")  # fork would copy locks that other threads hold
        self.pipe, other = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=serve, args=(other, configuration()), daemon=True, name="taskharbor-child"
        )
        self.process.start()
        assert self.process.pid
        self._pid = self.process.pid
        other.close()
        self._death = _death_of(self._pid)  # readable once it is dead
        self.ready = False

    def receive(self) -> tuple[Any, ...]:
        """Its next message, or EOFError when it is dead, even if something it started keeps the pipe open."""
        ready: list[Any] = []
        while self.pipe not in ready:
            if ready or not self.is_alive():
                if self.pipe.poll(0):
                    break  # its last message
                raise EOFError
            ready = wait([self.pipe, *self._death], None if self._death else CHILD_CHECK_S)
        message: tuple[Any, ...] = self.pipe.recv()
        self.ready = True
        return message

    def is_alive(self) -> bool:
        """Whether it is alive. A dead one is not reaped here: its process group still has its id."""
        if not hasattr(os, "waitid"):
            return self.process.is_alive()
        try:
            return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False  # something else has reaped it

    def await_end(self) -> None:
        """Give it a moment to end by itself: its exit code shows how it died."""
        wait(self._death or [self.process.sentinel], 1.0)

    def kill(self) -> None:
        """Kill it, with everything it has started."""
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError, AttributeError):
            self.process.kill()  # it leads no group yet, and has started nothing

    def await_exit(self) -> None:
        """Wait until it has exited, or was killed."""
        while self.is_alive():
            wait(self._death or [self.process.sentinel], CHILD_CHECK_S)

    def end(self) -> None:
        """Kill it, reap it, and close its descriptors."""
        self.kill()
        self.process.join()
        self.pipe.close()
        for number in self._death:
            os.close(number)


class ChildProcesses:
    """The worker's idle child processes, and the way to run a job in one."""

    def __init__(self, threads: Threads, injector: Injector) -> None:
        self._threads = threads
        self._injector = injector
        self._idle: list[_Child] = []
        self._closed = False

    async def run(
        self, run: Delivery, handler: Handler, context: JobContext, call_middleware: tuple[CallMiddleware, ...] = ()
    ) -> Any:
        """Run a job in a child; return what its handler returned, or raise what it raised."""
        control = _ChildControl()
        run.kill = control.kill
        # `_reason`: reading `reason` would count as the handler's own check.
        context.cancelled.subscribe(lambda: control.cancel(context.cancelled._reason or ""))
        codec = handler.signature.codec
        request = Request(
            handler.reference,
            None if type(codec) is JsonCodec else codec,  # the child makes the default itself; any other is pickled
            run.job,
            context.deadline,
            write_unrecoverable(handler.unrecoverable),
            _packed("call_middleware", call_middleware),
            self._lifespan(),
            handler.signature.raw,
            run.memos or (),
            _packed("override", tuple(each for pair in self._injector.overrides.pairs for each in pair)),
        )
        result = await self._threads.run(lambda: self._perform(request, context, control))
        if result[0] == "returned":
            run.changed = result[2]
        return _value_of(result, handler)

    def _lifespan(self) -> bytes:
        """What a child enters, pickled: the worker's own lifespan. If that is a function that no child can import, such
        as `lambda: nullcontext(opened)`, which shares what this process has opened, the harbor's."""
        own, declared = self._injector.lifespan, self._injector.declared_lifespan
        if own is not None and declared is not None and not _is_importable(own):
            own = declared
        return _packed("lifespan", () if own is None else (own,))

    async def close(self, hurry: asyncio.Event) -> None:
        """End the idle children; busy ones were killed, or end with this process."""
        self._closed = True
        idle, self._idle = self._idle, []
        if idle and self._injector.lifespan is not None:
            await self._let_leave(idle, hurry)
        for child in idle:
            child.end()

    async def _let_leave(self, idle: list[_Child], hurry: asyncio.Event) -> None:
        """Give children a moment to leave their lifespans."""
        for child in idle:
            _send(child.pipe, None)
        leaving = asyncio.gather(*(self._threads.run(child.await_exit) for child in idle))
        await first_of(leaving, hurry.wait(), asyncio.sleep(LEAVE_S))
        if hurry.is_set():
            await asyncio.wait((leaving,), timeout=HURRIED_LEAVE_S)

    def _perform(self, request: Request, context: JobContext, control: _ChildControl) -> tuple[Any, ...]:
        """In a thread: send the job, pass its progress on, and return its last message."""
        child = self._take()
        try:
            control.begin(child, request)
            while (message := child.receive())[0] in ("progress", "ask"):
                if message[0] == "progress":
                    context.progress(*message[1:])
                else:
                    control.answer(message[1], *_answer(context, *message[2:]))
        except (EOFError, OSError):
            child.await_end()
            child.end()
            raise _died(child, killed=control.killed) from None
        except BaseException:
            child.end()
            raise
        finally:
            control.end()
        if self._closed or message[0] == "unfit":
            child.end()
        else:
            self._idle.append(child)
        return message

    def _take(self) -> _Child:
        """An idle child that still lives, or a new one."""
        while True:
            try:
                child = self._idle.pop()
            except IndexError:
                try:
                    return _Child()
                except (OSError, MemoryError) as error:
                    raise scarce(error) from None
            if child.is_alive():
                return child
            child.end()


class _ChildControl:
    """Cancels or kills a job's child from the worker's loop, even before the child has started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # a child that is idle again must not be reached
        self._child: _Child | None = None
        self.killed = False
        self._sent = False
        self._reason = ""

    def begin(self, child: _Child, request: Request) -> None:
        """Send the job, and then a cancel that was requested meanwhile. Only the thread that calls this waits."""
        with self._lock:
            self._child = child
            if self.killed:
                child.kill()
        if not child.ready:
            child.receive()
        child.pipe.send(("run", request))  # blocks until the child has read a large one
        with self._lock:
            self._sent = True
            if self._reason:
                _send(child.pipe, ("cancel", self._reason))

    def answer(self, number: int, value: Any, error: BaseException | None) -> None:
        """Answer a question of the child."""
        with self._lock:
            if self._child is not None:
                _send(self._child.pipe, ("answer", (number, value, error)))

    def end(self) -> None:
        with self._lock:
            self._child = None

    def kill(self) -> None:
        with self._lock:
            self.killed = True
            if self._child is not None:
                self._child.kill()

    def cancel(self, reason: str) -> None:
        with self._lock:
            self._reason = reason
            if self._child is not None and self._sent:
                _send(self._child.pipe, ("cancel", reason))


def _answer(context: JobContext, verb: str, *arguments: Any) -> tuple[Any, BaseException | None]:
    """What a step of the child asks for, and the error if that failed."""
    try:
        return getattr(context._steps.calls, verb)(*arguments), None
    except Exception as error:
        return None, error if isinstance(error, TaskHarborError | HandlerSignal) else RuntimeError(summary(error))


class _Compiled(Workflow):
    """A workflow that the child has compiled already."""

    def __init__(self, spawned: Spawned) -> None:
        self._spawned = spawned

    def _compile(self, parent: JobRecord, now: Any) -> Spawned:
        return self._spawned


def _value_of(message: tuple[Any, ...], handler: Handler) -> Any:
    if message[0] == "returned":
        _, result, _, jobs, handover = message
        if handover is not None:
            return _Compiled(Spawned(jobs, handover))
        return None if result is None else _read(result, handler.signature)
    _, pickled, mismatch, description, error_class, place = message
    if mismatch:
        error: BaseException = PayloadMismatch(description.split("\n", 1)[0].removeprefix("PayloadMismatch: "))
    else:
        error = _remote(pickled, description)
    note_origin(error, error_class, place)
    raise error


def _remote(pickled: bytes | None, description: str) -> BaseException:
    """What the handler raised. Its traceback stayed in the child: notes keep the text of it."""
    try:
        error: BaseException = RemoteError(description) if pickled is None else pickle.loads(pickled)
        assert isinstance(error, BaseException)
    except Exception:  # it cannot be unpickled
        error = RemoteError(description)
    try:
        BaseException.__setattr__(error, "__notes__", [*description.split("\n\n")[1:]])
    except Exception:
        return error  # its class allows no notes
    return error


def _read(result: bytes, signature: Signature) -> Any:
    """A result as it is annotated. One that does not fit is accepted all the same, as without a child process."""
    try:
        return signature.codec.decode(result, signature.return_type)
    except ValueError:
        return signature.codec.decode(result)


def _packed(what: str, functions: tuple[Callable[..., Any], ...]) -> bytes:
    """Functions, pickled: a child finds them again by their names. Nothing for none."""
    for function in functions:
        if not _is_importable(function):
            raise TypeError(
                f"{what}: process=True: expected functions that a child process can import, got "
                f"{callable_name(function)}; move it to its module"
            )
    return pickle.dumps(functions) if functions else b""


def _is_importable(function: Callable[..., Any]) -> bool:
    try:
        pickle.dumps(function)
    except Exception:
        return False
    return True


def _died(child: _Child, killed: bool) -> Exception:
    """Why there is no result. `killed`: this worker has ended it."""
    code = child.process.exitcode
    if not child.ready and not killed and code in (OUT_OF_MEANS, -signal.SIGKILL):  # KILL: the kernel, out of memory
        return Scarce("no child process could be started: the system had no memory or no thread for it")
    if code is not None and code < 0:
        return ChildDied(f"its process ended with signal {-code}")
    if child.ready:
        return ChildDied(f"its process ended with exit code {code}")
    # It would end like this each time. Nothing of the job has run.
    main = getattr(sys.modules["__main__"], "__file__", None)
    return Unrecoverable(
        f"process=True: its child process ended with exit code {code} before it could begin: it could not import the "
        f"program's main script {main}; its error is in the log. Put what starts the program (enqueueing, "
        'worker.run()) below: if __name__ == "__main__":'
    )


def _death_of(pid: int) -> list[int]:
    """A descriptor that becomes readable when a process ends, where the system has such."""
    if not hasattr(os, "pidfd_open"):
        return []
    try:
        return [os.pidfd_open(pid)]
    except OSError:  # an older kernel, or no descriptor is left
        return []


def _send(pipe: Connection, message: Any) -> None:
    try:
        pipe.send(message)
    except (OSError, ValueError):
        return  # the child is gone; the thread at its pipe notices that
