"""A Celery task's options, and the `@harbor.task(…)` that behaves like them."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from taskharbor.model.safe_repr import shows
from taskharbor.moving.findings import UNTYPED, Finding, Remarks, words
from taskharbor.moving.source import Function, is_untyped

RETRIES = 3  # Celery's default
RETRY_DELAY_S = 180
BACKOFF_MAX_S = 600
DEFAULT_QUEUE = "celery"

_OFF = ("acks_late", "ignore_result", "retry_backoff", "store_errors_even_if_ignored", "track_started")
_NONE = (
    *("compression", "exchange", "expires", "priority", "rate_limit", "reject_on_worker_lost", "routing_key"),
    *("soft_time_limit", "time_limit"),
)
DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(_OFF, False),
    **dict.fromkeys(_NONE),
    **dict.fromkeys(("autoretry_for", "dont_autoretry_for", "throws"), ()),
    **dict.fromkeys(("retry_jitter", "send_events", "trail"), True),
    "default_retry_delay": RETRY_DELAY_S,
    "max_retries": RETRIES,
    "resultrepr_maxsize": 1024,
    "retry_backoff_max": BACKOFF_MAX_S,
    "retry_kwargs": {},
    "serializer": "json",
}
"""The options that are read from a task, and what each is in a task that does not set it."""


@shows("name", "line")
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
    node: Function | None = None

    @property
    def parameters(self) -> list[ast.arg]:
        """Its positional parameters, without `self`."""
        if self.node is None:
            return []
        return [*self.node.args.posonlyargs, *self.node.args.args][1 if self.bound else 0 :]

    @property
    def retries_itself(self) -> bool:
        """Whether its code calls `self.retry(…)` or `task.retry(…)`."""
        return self.node is not None and any(
            isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "retry"
            for each in ast.walk(self.node)
        )


class _Translation:
    """The options to write, the lines before the decorator, and the advice."""

    def __init__(self, task: CeleryTask) -> None:
        self.task = task
        self.theirs = task.options
        self.before: list[str] = []
        self.options: dict[str, str] = {}
        self.advice = Remarks()
        if task.name != f"{task.module}.{task.function}":
            self.options["name"] = repr(task.name)
        if task.queue != DEFAULT_QUEUE:
            self.options["queue"] = repr(task.queue)
        self._retries()
        self._limits()
        self._rest()

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

    def _retries(self) -> None:
        kinds = tuple(self.theirs.get("autoretry_for", ()))
        if not kinds and not self.task.retries_itself:
            self.options["max_attempts"] = "1"
            self.advice.same(
                "Celery does not retry this task; without max_attempts=1 it would run up to 5 times when it fails"
            )
            return
        given = self.theirs.get("retry_kwargs", {})
        most = given.get("max_retries", self.theirs.get("max_retries", RETRIES))
        if most is None:
            self.advice.missing(
                "max_retries=None retries for ever; choose a max_attempts, after which the job is a dead letter"
            )
        else:
            self.options["max_attempts"] = str(most + 1)
        policy = self._policy(given)
        self.options["retry"] = policy
        if not kinds:
            self.advice.differs("every exception is retried here; name those that must not be in unrecoverable=(…)")
        elif not {Exception, BaseException}.intersection(kinds):
            names = ", ".join(map(_class_name, kinds))
            self.before += [
                f"def retry_{self.task.function}(attempts: int, error: BaseException) -> float | None:",
                f"    if isinstance(error, {names if len(kinds) == 1 else f'({names})'}):",
                f"        return {policy}(attempts, error)",
                "    return None",
                "",
            ]
            self.options["retry"] = f"retry_{self.task.function}"
            self.advice.same("the others are dead letters at once, as Celery fails them at once")
        never = [_class_name(kind) for kind in self.theirs.get("dont_autoretry_for", ())]
        if never:
            self.options["unrecoverable"] = f"({', '.join(never)},)"

    def _policy(self, given: dict[str, Any]) -> str:
        backoff = self.theirs.get("retry_backoff", False)
        if not backoff:
            return f"Fixed({given.get('countdown', self.theirs.get('default_retry_delay', RETRY_DELAY_S))})"
        maximum = self.theirs.get("retry_backoff_max", BACKOFF_MAX_S)
        jitter = self.theirs.get("retry_jitter", True)
        if jitter:
            self.advice.differs(
                "Celery's jitter takes any delay from 0 to the computed one; ours adds up to a tenth to it"
            )
        return f"Exponential(base={int(max(1.0, float(backoff)))}, maximum={maximum}{'' if jitter else ', jitter=0'})"

    def _limits(self) -> None:
        soft, hard = self.theirs.get("soft_time_limit"), self.theirs.get("time_limit")
        plain = not isinstance(self.task.node, ast.AsyncFunctionDef)
        if soft is not None or hard is not None:
            self.options["timeout"] = str(soft if soft is not None else hard)
        if hard is not None and plain:
            self.options["process"] = "True"
            self.advice.differs(
                "process=True runs it in a child process that is killed at the timeout, as time_limit does; each job "
                "that runs at once then has a process with the application in its memory"
            )
        elif soft is not None and plain:
            self.advice.differs(
                "nothing is raised in a thread: call ctx.cancelled.check() between the steps, or use process=True"
            )
        if soft is not None and hard is not None:
            self.advice.differs(f"there is one limit: time_limit={hard} after soft_time_limit={soft} is dropped")

    def _rest(self) -> None:
        task, known = self.task, words("celery")
        for name, word in known["task_options"].items():
            if name in self.theirs:
                self.advice += word.advice(repr(self.theirs[name]))
                if word.ours:
                    self.options[word.ours] = str(self.theirs[name])
        if task.base:
            self.advice.missing(
                f"base={task.base}: there are no task classes; what it keeps open belongs into Harbor(lifespan=…)"
            )
        for hook in task.hooks:
            self.advice += known["hooks"][hook].advice()
        if task.bound:
            self.advice.same("bind: the job comes as ctx: JobContext, first or anywhere among the parameters")
        if task.node is not None and is_untyped(task.node, 1 if task.bound else 0):
            self.advice.differs(UNTYPED)


def translate(task: CeleryTask) -> Finding:
    """The finding for a task."""
    made = _Translation(task)
    theirs = task.name
    if task.node is not None:
        lines = [f"@{ast.unparse(each)}" for each in task.node.decorator_list]
        theirs = "\n".join(lines or [f"class {task.function}, def run"])
    return Finding(
        kind="task",
        subject=task.name,
        file=task.file,
        line=task.line,
        theirs=theirs,
        ours=made.lines(),
        advice=tuple(made.advice),
    )


def _class_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
