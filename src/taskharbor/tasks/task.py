"""Tasks: functions whose calls become jobs.

A task turns a call into bytes and options; the client, which the harbor gives it, stores the job. Calling the task
itself just calls the function.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, Unpack

from taskharbor.model.error_class import script_module
from taskharbor.tasks.annotations import without_partials
from taskharbor.tasks.declared_queues import Queues
from taskharbor.tasks.handler import Handler, check_importable
from taskharbor.tasks.migration_hints import JOINED, OF_STEPS, OF_TASKS, missing
from taskharbor.tasks.options import CallOptions, change, lists_options
from taskharbor.tasks.prepare import Options, TaskCall
from taskharbor.tasks.signature import Signature

if TYPE_CHECKING:
    from taskharbor.client.handle import JobHandle

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])


class TaskClient(Protocol):
    """The part of the client that a task uses: it stores calls and finds jobs. `method` names the blocking method in
    errors."""

    _store: Any

    def _enqueue_calls(self, calls: Sequence[TaskCall], method: str) -> list[JobHandle[Any]]:
        """Store the calls, blocking."""

    async def _aenqueue_calls(self, calls: Sequence[TaskCall]) -> list[JobHandle[Any]]:
        """Store the calls."""

    def _task_handle(self, id: str, type: str, signature: Signature) -> JobHandle[Any]:
        """The handle of a job of a task."""


if TYPE_CHECKING:

    def own_method(function: F) -> F:
        """A method that the object's own dictionary cannot hide."""

else:

    class own_method:
        """A method that the object's own dictionary cannot hide: see `below_a_decorator`."""

        def __init__(self, function):
            self._function = function
            functools.update_wrapper(self, function)

        def __get__(self, instance, owner=None):
            return self._function if instance is None else MethodType(self._function, instance)

        def __set__(self, instance, value):
            raise AttributeError(f"{type(instance).__name__}.{self._function.__name__} cannot be replaced")


def below_a_decorator(name: str) -> Callable[..., Any]:
    """A function that refuses, for a decorator above `@harbor.task` to copy into its wrapper (functools.wraps does).

    The wrapper is a plain function, and a worker would run the task without the decorator. So the `enqueue` of the
    wrapper refuses, with the reason.
    """

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"{name}() of a function around a task: a decorator stands above @harbor.task, and workers would run the "
            "function without it; put @harbor.task on top"
        )

    return refuse


class Task(Generic[P, R]):
    """A declared task. Made by `@harbor.task`.

    Calling it calls the function, here and now. `enqueue` stores a job that calls it later, in a worker.

    >>> from taskharbor import Harbor
    >>> with Harbor("memory://") as harbor:
    ...     @harbor.task(name="double")
    ...     def double(n: int) -> int:
    ...         return 2 * n
    ...     job = double.options(delay=0, priority=5).enqueue(21)
    ...     harbor.worker().run(until_empty=True)
    ...     print(double(4), job.result())
    8 42
    """

    __wrapped__: Callable[..., Any]

    def __init__(self, handler: Handler, client: TaskClient, options: Options, queues: Queues) -> None:
        functools.update_wrapper(self, handler.function)  # first: what it copies must not hide the attributes below
        self.__dict__.update(_BELOW_A_DECORATOR)
        self.handler = handler
        self.function = handler.function
        self._client = client
        self._options = options
        self._queues = queues

    @property
    def name(self) -> str:
        """The job type."""
        return self._options.name or self.handler.type

    @property
    def queue(self) -> str | None:
        """The queue its jobs go to; None: the default queue."""
        return self._options.queue

    def __repr__(self) -> str:
        return f"Task({self.name!r})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, here and now. Injected parameters are given like all others."""
        if self.handler.injection is not None:
            self._refuse_markers(args, kwargs)
        return self.function(*args, **kwargs)

    if not TYPE_CHECKING:  # with it, a type checker would accept any attribute

        def __getattr__(self, name: str) -> Any:
            raise missing("a task", name, OF_TASKS, short_name(self) if "function" in self.__dict__ else "task")

    @own_method
    @lists_options
    def options(self, **options: Unpack[CallOptions]) -> Task[P, R]:
        """The same task with other options, for one call or many: `send.options(delay=60).enqueue(…)`.

        The task itself stays as it was declared. An unknown option is a TypeError that names the known ones.
        """
        changed = change(self._options, options, self.name, process=self.handler.process)
        if options.get("process"):
            check_importable(self.function, self.name)
        if "queue" in options:
            self._queues.check(changed.queue, self.name)
        return Task(self.handler, self._client, changed, self._queues)

    @own_method
    def s(self, *args: Any, **kwargs: Any) -> Step[R]:
        """A step: this task with these arguments, to be enqueued with others, or given to `chain`, `group` and `chord`.

        One argument may be missing: in a workflow that parameter receives the result of the step before.
        """
        return Step(self, self.handler.signature.bind(args, kwargs, partial=True))

    @own_method
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Store a job that calls the function with these arguments; blocks until it is stored, and returns its handle.

        The arguments are checked against the signature and its annotations: a wrong one is a TypeError, and nothing is
        stored. Injected parameters are left out. On a running event loop it raises BlockingCall: use `aenqueue`.
        """
        return self._client._enqueue_calls((self._call(args, kwargs),), f"{short_name(self)}.enqueue")[0]

    @own_method
    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """The same, awaited."""
        return (await self._client._aenqueue_calls((self._call(args, kwargs),)))[0]

    @own_method
    def job(self, id: str) -> JobHandle[R]:
        """The handle of a job of this task, enqueued earlier or elsewhere. Reads nothing yet."""
        return self._client._task_handle(id, self.name, self.handler.signature)

    def _refuse_markers(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """TypeError if a direct call leaves an injected parameter to a worker."""
        parameters = inspect.signature(self.function)
        given = parameters.bind_partial(*args, **kwargs).arguments
        for name in self.handler.signature.layout.injected:
            if name not in given and parameters.parameters[name].default is not inspect.Parameter.empty:
                raise TypeError(
                    f"{self.name}: parameter {name!r} is injected when a worker runs the job; in a direct call give it "
                    f"a value: {short_name(self)}(…, {name}=…)"
                )

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TaskCall:
        signature = self.handler.signature
        returns, payload = signature.return_type, signature.encode(signature.bind(args, kwargs))
        return TaskCall(self.name, payload, self._options, returns, None, signature)


_BELOW_A_DECORATOR = {name: below_a_decorator(name) for name in ("options", "s", "enqueue", "aenqueue", "job")}


class Step(Generic[R_co]):
    """A task with arguments, not yet enqueued: `send_email.s(to="ada")`. Its repr shows no values."""

    __slots__ = ("_arguments", "_signature", "_task")

    def __init__(self, task: Task[..., R_co], arguments: Mapping[str, Any], signature: Signature | None = None) -> None:
        self._task = task
        self._arguments = dict(arguments)
        self._signature = signature or task.handler.signature

    def __repr__(self) -> str:
        return f"Step({self._task.name!r}{''.join(f', {name}=…' for name in self._arguments)})"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing("a step", name, OF_STEPS, short_name(self._task) if name in OF_STEPS else "")

        def __or__(self, other: Any) -> Any:
            raise TypeError(JOINED)

        __ror__ = __or__

    @lists_options
    def options(self, **options: Unpack[CallOptions]) -> Step[R_co]:
        """The same step with other options. They are those of the task."""
        return Step(self._task.options(**options), self._arguments, self._signature)

    def _lacking(self) -> tuple[str, ...]:
        """The required parameters that have no argument yet."""
        return self._signature.lacking(self._arguments)

    def _call(self) -> TaskCall:
        """The call to enqueue; TypeError if an argument is missing or does not fit."""
        task, signature = self._task, self._signature
        signature.complete(self._arguments)
        payload = signature.encode(self._arguments)
        return TaskCall(task.name, payload, task._options, signature.return_type, None, signature)


def step_of_json(task: Task[..., R], data: bytes) -> Step[R]:
    """A step from arguments that a person typed as JSON: an object by name, or the only argument. A task with raw=True
    receives what was typed."""
    signature = task.handler.signature.of_json()
    value = data if signature.raw else signature.codec.decode(data)
    args, kwargs = ((), value) if isinstance(value, dict) else ((value,), {})
    return Step(task, signature.bind(args, kwargs, partial=True), signature)


def default_name(function: Callable[..., Any]) -> str:
    """`module.qualname`. A script's own tasks are named after its file, as a worker that imports it names them."""
    target = without_partials(function)
    if not inspect.isroutine(target) and not inspect.isclass(target):
        target = type(target)
    module = getattr(target, "__module__", None) or "__main__"
    return f"{script_module() if module == '__main__' else module}.{target.__qualname__}"


def short_name(task: Task[..., Any]) -> str:
    """The name of a task's function, as errors write it."""
    return getattr(task.function, "__name__", task.name)
