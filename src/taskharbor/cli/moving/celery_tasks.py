"""A Celery task's options, and the `@harbor.task(…)` that behaves like them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from taskharbor.cli.moving.findings import Advice, Finding, differs, missing, same
from taskharbor.model.safe_repr import shown

RETRIES = 3  # Celery's default
RETRY_DELAY_S = 180
BACKOFF_MAX_S = 600
DEFAULT_QUEUE = "celery"

DEFAULTS: dict[str, Any] = {
    "acks_late": False,
    "acks_on_failure": True,
    "acks_on_failure_or_timeout": True,
    "acks_on_timeout": True,
    "autoretry_for": (),
    "compression": None,
    "default_retry_delay": RETRY_DELAY_S,
    "dont_autoretry_for": (),
    "exchange": None,
    "expires": None,
    "ignore_result": False,
    "max_retries": RETRIES,
    "priority": None,
    "queue": None,
    "rate_limit": None,
    "reject_on_worker_lost": None,
    "resultrepr_maxsize": 1024,
    "retry_backoff": False,
    "retry_backoff_max": BACKOFF_MAX_S,
    "retry_jitter": True,
    "retry_kwargs": {},
    "routing_key": None,
    "send_events": True,
    "serializer": "json",
    "soft_time_limit": None,
    "store_errors_even_if_ignored": False,
    "throws": (),
    "time_limit": None,
    "track_started": False,
    "trail": True,
}
"""The options that are read from a task, and what each is in a task that does not set it."""

_NOT_NEEDED = {
    "acks_late": "not needed: a job is always acknowledged after it ran",
    "reject_on_worker_lost": "not needed: a job whose worker died runs again; after three such deaths it is dead",
    "ignore_result": "not needed: a function that returns None stores no result. Let it return None",
    "store_errors_even_if_ignored": "not needed: errors are kept with the job",
    "track_started": "not needed: when a job began, and where, is kept with it",
    "send_events": "not needed: workers always report events to observers",
    "trail": "not needed: a workflow's jobs and edges are in the store",
    "resultrepr_maxsize": "not needed: results are not in the log",
}
_HOOKS = {
    "on_success": "an observer of JobSucceeded, or the next step of a chain",
    "on_failure": "@harbor.on_dead, an observer of JobDeadLettered, or on_failure= of a workflow",
    "on_retry": "an observer of JobRetried",
    "after_return": "middleware, or an observer",
    "before_start": "middleware, or a dependency (Depends)",
    "__call__": "middleware",
}


@dataclass(frozen=True)
class CeleryTask:
    """What was read from a task of the application. `options`: only those that differ from `DEFAULTS`."""

    name: str
    function: str
    module: str
    file: str = ""
    line: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    bound: bool = False
    queue: str = DEFAULT_QUEUE
    base: str = ""
    hooks: tuple[str, ...] = ()
    node: ast.FunctionDef | ast.AsyncFunctionDef | None = None

    def __repr__(self) -> str:
        return shown(self, "name", "line")

    @property
    def parameters(self) -> list[str]:
        """The names of its positional parameters, without `self`."""
        if self.node is None:
            return []
        names = [each.arg for each in (*self.node.args.posonlyargs, *self.node.args.args)]
        return names[1:] if self.bound else names

    @property
    def retries_itself(self) -> bool:
        """Whether its code calls `self.retry(…)` or `task.retry(…)`."""
        if self.node is None:
            return False
        return any(
            isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "retry"
            for each in ast.walk(self.node)
        )


class _Translation:
    """The options to write, the lines before the decorator, and the advice."""

    def __init__(self, task: CeleryTask) -> None:
        self.task = task
        self.before: list[str] = []
        self.options: dict[str, str] = {}
        self.advice: list[Advice] = []

    def lines(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        lines = [*self.before, f"@harbor.task({options})" if options else "@harbor.task"]
        node = self.task.node
        if self.task.bound and node is not None:
            words = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
            arguments = ast.unparse(node.args).partition(", ")[2]
            returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            rest = f", {arguments}" if arguments else ""
            name = node.name if node.decorator_list else self.task.function.lower()  # a class has a method `run`
            lines.append(f"{words} {name}(ctx: JobContext{rest}){returns}:")
        return "\n".join(lines)


def translate(task: CeleryTask) -> Finding:
    """The finding for a task."""
    made = _Translation(task)
    if task.name != f"{task.module}.{task.function}":
        made.options["name"] = repr(task.name)
    if task.queue != DEFAULT_QUEUE:
        made.options["queue"] = repr(task.queue)
    _retries(made)
    _limits(made)
    _rest(made)
    return Finding(
        kind="task",
        subject=task.name,
        file=task.file,
        line=task.line,
        theirs=_decorators(task),
        ours=made.lines(),
        advice=tuple(made.advice),
    )


def _decorators(task: CeleryTask) -> str:
    if task.node is None:
        return task.name
    lines = [f"@{ast.unparse(each)}" for each in task.node.decorator_list] or [f"class {task.function}, def run"]
    return "\n".join(lines)


def _retries(made: _Translation) -> None:
    task, options = made.task, made.task.options
    kinds = tuple(options.get("autoretry_for", ()))
    given = dict(options.get("retry_kwargs", {}))
    if not kinds and not task.retries_itself:
        made.options["max_attempts"] = "1"
        made.advice.append(
            same("Celery does not retry this task; without max_attempts=1 it would run up to 5 times when it fails")
        )
        return
    most = given.get("max_retries", options.get("max_retries", RETRIES))
    if most is None:
        made.advice.append(
            missing("max_retries=None retries for ever; choose a max_attempts, after which the job is a dead letter")
        )
    else:
        made.options["max_attempts"] = str(most + 1)
    policy = _policy(made, given)
    if not kinds:
        made.options["retry"] = policy
        made.advice.append(differs("every exception is retried here; name those that must not be in unrecoverable=(…)"))
    elif any(kind in (Exception, BaseException) for kind in kinds):
        made.options["retry"] = policy
    else:
        names = ", ".join(map(_class_name, kinds))
        made.before += [
            f"def retry_{task.function}(attempts: int, error: BaseException) -> float | None:",
            f"    if isinstance(error, {names if len(kinds) == 1 else f'({names})'}):",
            f"        return {policy}(attempts, error)",
            "    return None",
            "",
        ]
        made.options["retry"] = f"retry_{task.function}"
        made.advice.append(same("the others are dead letters at once, as Celery fails them at once"))
    never = [_class_name(kind) for kind in options.get("dont_autoretry_for", ())]
    if never:
        made.options["unrecoverable"] = f"({', '.join(never)},)"


def _class_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _policy(made: _Translation, given: dict[str, Any]) -> str:
    options = made.task.options
    backoff = options.get("retry_backoff", False)
    if not backoff:
        return f"Fixed({given.get('countdown', options.get('default_retry_delay', RETRY_DELAY_S))})"
    maximum = options.get("retry_backoff_max", BACKOFF_MAX_S)
    jitter = options.get("retry_jitter", True)
    if jitter:
        made.advice.append(
            differs("Celery's jitter takes any delay from 0 to the computed one; ours adds up to a tenth to it")
        )
    return f"Exponential(base={int(max(1.0, float(backoff)))}, maximum={maximum}{'' if jitter else ', jitter=0'})"


def _limits(made: _Translation) -> None:
    options = made.task.options
    soft, hard = options.get("soft_time_limit"), options.get("time_limit")
    plain = not isinstance(made.task.node, ast.AsyncFunctionDef)
    if soft is not None or hard is not None:
        made.options["timeout"] = str(soft if soft is not None else hard)
    if hard is not None and plain:
        made.options["process"] = "True"
        made.advice.append(
            differs("process=True runs it in a child process that is killed at the timeout, as time_limit does")
        )
    elif soft is not None and plain:
        made.advice.append(
            differs("nothing is raised in a thread: call ctx.cancelled.check() between the steps, or use process=True")
        )
    if soft is not None and hard is not None:
        made.advice.append(differs(f"there is one limit: time_limit={hard} after soft_time_limit={soft} is dropped"))
    if options.get("rate_limit") is not None:
        made.advice.append(
            missing(
                f"rate_limit={options['rate_limit']!r}: there are no rate limits; group= with group_limit= bounds how "
                "many jobs run at once, over all workers"
            )
        )


def _rest(made: _Translation) -> None:
    options = made.task.options
    made.advice += [same(f"{name}: {text}") for name, text in _NOT_NEEDED.items() if name in options]
    if options.get("priority") is not None:
        made.options["priority"] = str(options["priority"])
        made.advice.append(differs("a higher number is served first, on every store; Celery on Redis has it reversed"))
    if options.get("expires") is not None:
        made.advice.append(
            missing(f"expires={options['expires']!r}: jobs do not expire; compare ctx.job.created_at and raise Cancel")
        )
    made.advice += [
        missing(f"{name}={options[name]!r}: payloads are JSON, by the annotations of the parameters; give them types")
        for name in ("serializer",)
        if name in options
    ]
    if "compression" in options:
        made.advice.append(missing("compression: payloads are stored as they are; a codec of your own may compress"))
    for name in ("exchange", "routing_key"):
        if name in options:
            made.advice.append(missing(f"{name}: there are queues, no exchanges; name the queue"))
    if "throws" in options:
        made.advice.append(differs("throws: expected errors are logged like others; return a value instead"))
    made.advice += list(_classes(made.task))
    if made.task.bound:
        made.advice.append(same("bind: the job comes as ctx: JobContext, first or anywhere among the parameters"))
    if _untyped(made.task):
        made.advice.append(
            differs("parameters without annotations take only what JSON returns unchanged; annotate the others")
        )


def _classes(task: CeleryTask) -> Iterator[Advice]:
    if task.base:
        yield missing(
            f"base={task.base}: there are no task classes; what it keeps open belongs into Harbor(lifespan=…)"
        )
    for hook in task.hooks:
        yield missing(f"{hook}() of the class: use {_HOOKS[hook]}")


def _untyped(task: CeleryTask) -> bool:
    if task.node is None:
        return False
    every = [*task.node.args.posonlyargs, *task.node.args.args, *task.node.args.kwonlyargs]
    return any(each.annotation is None for each in every[1 if task.bound else 0 :])


HOOKS = tuple(_HOOKS)
