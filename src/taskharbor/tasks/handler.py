"""Handlers: what the worker knows about a job type, and the registry that finds it.

A handler is made once for each type and used for every job, so `bind` is a closure that does only what its signature
needs. A payload that is an object is bound to the parameters by name; any other payload is the only argument.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

from taskharbor.model.codec import Codec, JsonCodec, type_name
from taskharbor.model.times import Duration, duration
from taskharbor.policy.retry import RetryPolicy, check_policy
from taskharbor.tasks.annotations import called, without_partials
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.dependencies import Injection, compile_injection, declared_parameters
from taskharbor.tasks.flow_metadata import check_type
from taskharbor.tasks.on_dead import DeathWatches
from taskharbor.tasks.payload_errors import PayloadMismatch, describe
from taskharbor.tasks.signature import Assemble, Bound, Signature, assembler, binder

if TYPE_CHECKING:
    from taskharbor.schedules.changes import Declaration

__all__ = ["Bound", "Handler", "HandlerRegistry", "PayloadMismatch", "load_reference"]

MAX_NAMED = 10  # handlers in a note
RESULTS_TO_CHECK = 20
"""The first results of a handler are decoded as its annotation says: a wrong annotation shows soon."""

logger = logging.getLogger("taskharbor")


class Handler:
    """How jobs of one type are run. `bind(payload, context)` returns the args and kwargs to call `function` with."""

    bind: Callable[[bytes, JobContext], Bound]
    assemble: Assemble
    injection: Injection | None
    is_resolved: bool

    def __init__(
        self,
        type: str,
        function: Callable[..., Any],
        *,
        codec: Codec | None = None,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        process: bool = False,
        unrecoverable: type[BaseException] | Iterable[type[BaseException]] = (),
        signature: Signature | None = None,
        raw: bool = False,
    ) -> None:
        check_type(type)
        if not callable(function):
            raise TypeError(
                f"{type}: expected a function or another callable as handler, got {function.__class__.__name__}"
            )
        if retry is not None:
            check_policy(retry, f"{type}: retry")
        self.type = type
        self.function = function
        self.is_coroutine = is_coroutine(function)
        if not self.is_coroutine:
            _refuse_generators(function, type)
        self.process = process
        self.retry = retry
        self.timeout: timedelta | None = None if timeout is None else duration(timeout, f"{type}: timeout", zero=False)
        self.unrecoverable = exception_types(unrecoverable, f"{type}: unrecoverable")
        self.signature = signature or Signature(function, codec or JsonCodec(), type, raw=raw)
        self._write_result: Callable[[Any], bytes] | None = None
        self.results_to_check = RESULTS_TO_CHECK  # how many more
        self.bind = self._bind_first
        self.takes_context = True  # until its annotations are resolved
        self._find_injected()
        if process:
            check_importable(function, type)

    def __repr__(self) -> str:
        return f"Handler({self.type!r}, {self.function!r})"

    @property
    def reference(self) -> tuple[str, str]:
        """Module and qualified name, by which a child process finds the function (`load_reference`)."""
        return self.function.__module__, self.function.__qualname__

    def encode_result(self, value: Any) -> bytes | None:
        """What the handler returned, as bytes; None for None. TypeError or ValueError if it cannot be encoded."""
        if value is None:
            return None
        write = self._write_result
        if write is None:
            codec = self.signature.codec
            write = codec.encode
            if type(codec) is JsonCodec:
                write = functools.partial(codec.encode_as, type=self.signature.return_type)
            self._write_result = write
        try:
            data = write(value)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{self.type}: the result: {error}") from None
        if self.results_to_check:
            self._check_annotation(data)
        return data

    def change_of(self, value: Any, data: bytes) -> tuple[str, str] | None:
        """Where and how a reader of the result gets something else than was returned; without any value, for the log.

        A codec of the user's own answers for itself.
        """
        signature = self.signature
        codec, trust = signature.codec, signature.layout.trust_in_result
        if type(codec) is not JsonCodec or type(value) in trust.types:
            return None
        try:
            back = codec.decode(data, signature.return_type)
            loss = None if trust.by_equality and value == back else codec.loss(value, back)
        except Exception:  # it does not fit the annotation, which is reported elsewhere, or is nested too deeply
            return None
        return None if loss is None else (loss.place("$", keys=False), loss.what)

    def _check_annotation(self, data: bytes) -> None:
        """Log that a result cannot be decoded as its annotation says: here, where the mistake is."""
        self.results_to_check -= 1
        returns = self.signature.return_type
        try:
            self.signature.codec.decode(data, returns)
        except Exception as error:
            self.results_to_check = 0
            logger.warning(
                "%s returns something else than its annotation %s says: %s; the job is done, but result() of its "
                "handle raises ValueError (logged once)",
                self.type,
                type_name(returns),
                describe(error, ()),
            )

    def prepare(self) -> None:
        """Resolve the annotations now, so that an error in them is raised at the start, not with the first job."""
        self.bind = binder(self.signature)
        self.takes_context = bool(self.signature.layout.contexts)
        if not self.is_resolved:
            self._find_injected()
            self.is_resolved = True
            self._choose_path()

    def may_check(self) -> bool:
        """Whether it takes the context, and may so check that it has to stop. True for annotations that say nothing."""
        try:
            return bool(self.signature.layout.contexts)
        except Exception:  # an annotation that cannot be resolved: its first job reports it
            return True

    def _find_injected(self) -> None:
        """Compile what injected parameters receive. An annotation that cannot be resolved yet may hold another one."""
        found = declared_parameters(self.function, self.type)
        self.injection = compile_injection(self.type, found, is_coroutine=self.is_coroutine)
        self.is_resolved = found.is_complete
        if self.injection is not None:
            self.assemble = self._assemble_first
        self._choose_path()

    def _choose_path(self) -> None:
        """`is_direct`: awaited where it is, without a thread, a child or anything around it. `is_special`: there is
        more to do than to call it."""
        self.is_special = self.process or self.injection is not None or not self.is_resolved
        self.is_direct = self.is_coroutine and not self.is_special

    def _assemble_first(self, values: tuple[Any, ...], context: JobContext, injected: Mapping[str, Any]) -> Bound:
        self.assemble = assembler(self.signature)
        return self.assemble(values, context, injected)

    def _bind_first(self, payload: bytes, context: JobContext) -> Bound:
        self.prepare()
        return self.bind(payload, context)


class HandlerRegistry:
    """Handlers by job type."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self.deaths = DeathWatches()
        self.schedules: dict[str, Declaration] = {}  # that this program declares, by name
        self.get: Callable[[str], Handler | None] = self._handlers.get

    def add(self, handler: Handler) -> None:
        """Add a handler. A second one of the same name is a ValueError, unless it is typed again at a prompt."""
        known = self._handlers.get(handler.type)
        if known is not None and not _is_typed_again(known.function, handler.function):
            raise ValueError(
                f"two handlers named {handler.type!r}: {_where(known.function)} and "
                f"{_where(handler.function)}; give one another name="
            )
        self._handlers[handler.type] = handler

    def remove(self, type: str) -> None:
        """Forget a handler, if there is one."""
        self._handlers.pop(type, None)

    def types(self) -> tuple[str, ...]:
        """The names of all job types known here, in order."""
        return tuple(sorted(self._handlers))

    def note_timeouts(self) -> str | None:
        """A note on plain functions that have a timeout and cannot stop at it; None if there are none."""
        found = [each for each in self if each.timeout is not None and not (each.is_coroutine or each.process)]
        names = sorted(each.type for each in found if not each.may_check())
        if not names:
            return None
        more = f" and {len(names) - MAX_NAMED} more" if names[MAX_NAMED:] else ""
        return (
            "a timeout does not stop a plain function, which goes on beside its next attempt: "
            f"{', '.join(names[:MAX_NAMED])}{more}; process=True kills it at its timeout, or it may take the context "
            "and check ctx.cancelled"
        )

    def __iter__(self) -> Iterator[Handler]:
        return iter(tuple(self._handlers.values()))

    def __contains__(self, type: object) -> bool:
        return type in self._handlers

    def __len__(self) -> int:
        return len(self._handlers)


def is_coroutine(function: Callable[..., Any]) -> bool:
    """Whether calling it returns an awaitable: also through partial, methods and `async def __call__`."""
    return any(map(inspect.iscoroutinefunction, (without_partials(function), called(function))))


def exception_types(
    value: type[BaseException] | Iterable[type[BaseException]], what: str
) -> tuple[type[BaseException], ...]:
    """One exception type or several as a tuple; TypeError for anything else."""
    kinds: tuple[Any, ...] = (value,)
    if isinstance(value, Iterable) and not isinstance(value, type):
        kinds = tuple(value)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"{what}: expected exception types, got {kind!r}")
    return kinds


def check_importable(function: Callable[..., Any], what: str) -> None:
    """TypeError unless a child process can find the function by its name."""
    name = getattr(function, "__qualname__", None)
    module = getattr(function, "__module__", None)
    if not inspect.isfunction(function) or name is None or module is None:
        raise TypeError(
            f"{what}: process=True: expected a function of a module, got {type(function).__name__}; wrap it in a def"
        )
    if "<" in name:
        kind = "a lambda" if name.endswith("<lambda>") else "a function inside another"
        raise TypeError(
            f"{what}: process=True: expected a function that a child process can import, got {kind} ({name}); "
            "move it to its module"
        )
    if module == "__main__" and not getattr(sys.modules.get("__main__"), "__file__", None):
        raise TypeError(
            f"{what}: process=True: the function was typed in, so a child process cannot import it; put it into a file"
        )


def load_reference(module: str, qualname: str) -> Callable[..., Any]:
    """The function behind `Handler.reference`: what a child process calls."""
    from taskharbor.tasks.task import Task

    found: Any = import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    # A declared object that is not callable, such as a task of Django's, carries its function as a Task does.
    is_declared = isinstance(found, Task) or (not callable(found) and hasattr(found, "function"))
    function: Callable[..., Any] = found.function if is_declared else found
    return function


def _refuse_generators(function: Callable[..., Any], name: str) -> None:
    target = called(function)
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise TypeError(
            f"{name}: expected a handler that returns, got one that yields; collect the values and return them"
        )


def _is_typed_again(known: Callable[..., Any], new: Callable[..., Any]) -> bool:
    """Whether this function was typed again at a prompt, as when a cell of a notebook is run twice.

    In a file, two functions with one name are a mistake.
    """
    if hasattr(sys.modules.get("__main__"), "__file__"):
        return False
    where = _where(new)
    return where.startswith("__main__.") and where == _where(known) and "<" not in where


def _where(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__name__)}"
