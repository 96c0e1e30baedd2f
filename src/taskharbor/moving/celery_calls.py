"""Calls of Celery's API in a source file, each with the expression to write instead.

An expression is rewritten as a whole: `chain(a.s(1), b.s(2)).apply_async(countdown=3)` is one finding. Whether a name
is a task is known for the tasks of the application; `.delay(` and `.apply_async(` are reported on whatever they are
called.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping
from typing import TypeGuard

from taskharbor.moving.celery_tasks import DEFAULT_QUEUE, CeleryTask
from taskharbor.moving.findings import Finding, Remarks, Word, words
from taskharbor.moving.source import (
    CallArguments,
    Source,
    SourceWalk,
    dotted,
    first_argument,
    named_arguments,
    short,
    with_options,
)

_CANVAS = ("celery.chain", "celery.group", "celery.chord")
_STORING = ("delay", "apply_async", "delay_on_commit", "apply_async_on_commit")
_RESULTS = {"get": "result", "join": "result", "ready": "status", "revoke": "cancel", "forget": "delete"}
_IMPORTED = {"celery.signals": "signals", "celery.exceptions": "exceptions"}
_NO_OPTION = "there is no such option"


def calls(source: Source, tasks: Mapping[str, CeleryTask]) -> Iterator[Finding]:
    """What a file does with Celery. `tasks`: those of the application, by the name of their function."""
    imports = [node for node in ast.walk(source.tree) if isinstance(node, ast.ImportFrom)]
    renamed = {each.asname: each.name for node in imports for each in node.names if each.asname}
    known = {**tasks, **{alias: tasks[name] for alias, name in renamed.items() if name in tasks}}
    walk = _CeleryWalk(source, known)
    walk.visit(source.tree)
    yield from walk.found
    for node in imports:  # signals and exceptions are found most surely where a file imports them
        if node.module in _IMPORTED:
            yield from _imported(source, node, node.module)


def _imported(source: Source, node: ast.ImportFrom, module: str) -> Iterator[Finding]:
    for each in node.names:
        word = words("celery")[_IMPORTED[module]].get(each.name, Word(missing=f"{each.name}: there is no counterpart"))
        yield Finding(
            kind="other",
            subject=each.name,
            file=source.path,
            line=each.lineno,
            theirs=f"from {module} import {each.name}",
            ours=word.ours,
            advice=tuple(word.advice()),
        )


class _CeleryWalk(SourceWalk):
    """Finds the outermost expressions to rewrite. `subject` and `advice` are about the expression at hand."""

    def __init__(self, source: Source, tasks: Mapping[str, CeleryTask]) -> None:
        super().__init__(source, "celery")
        self.tasks = tasks
        self.words = words("celery")
        self.subject, self.advice = "", Remarks()

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Call | ast.BinOp | ast.Attribute):
            self.subject, self.advice = "", Remarks()
            ours = self._expression(node)
            if ours is not None:
                self.add("call", node, self.subject, ours, self.advice)
                return
        super().generic_visit(node)

    def _expression(self, node: ast.expr) -> ast.expr | str | None:
        """What to write instead: an expression, or text where no expression says it; None: it is not Celery's."""
        if isinstance(node, ast.Attribute):
            return self._request(node)
        step = self._step(node, receives=False)
        if step is not None or not isinstance(node, ast.Call):
            return step
        if isinstance(node.func, ast.Call | ast.BinOp):
            return self._called(node, node.func)
        if isinstance(node.func, ast.Name):
            return self._by_name(node, self.meaning(node.func))
        return self._method(node, node.func) if isinstance(node.func, ast.Attribute) else None

    # Workflows

    def _step(self, node: ast.expr, *, receives: bool) -> ast.expr | None:
        """A signature or canvas. `receives`: whether a result comes from the step before it."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._piped(node, receives)
        if not isinstance(node, ast.Call):
            return None
        meaning = self.meaning(node.func)
        if meaning in _CANVAS:
            return self._canvas(node, meaning.removeprefix("celery."), receives)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("s", "si", "signature", "subtask"):
            return self._signature(node, node.func, receives)
        return None

    def _piped(self, node: ast.BinOp, receives: bool) -> ast.expr | None:
        parts: list[ast.expr] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp) and isinstance(left.op, ast.BitOr):
            parts.insert(0, left.right)
            left = left.left
        parts.insert(0, left)
        steps = [self._step(part, receives=receives or number > 0) for number, part in enumerate(parts)]
        if not any(steps):
            return None
        self.subject = "chain"
        self.advice.same("from taskharbor.flow import chain; steps are not joined by |")
        return ast.Call(ast.Name("chain"), [step or part for step, part in zip(steps, parts, strict=True)], [])

    def _canvas(self, node: ast.Call, canvas: str, receives: bool) -> ast.expr:
        self.advice.same("chain, group and chord come from taskharbor.flow")
        if canvas == "chord" and len(node.args) == 1:
            self.advice.same("the last step is the second argument: chord(members, last)")
        members = [
            self._member(each, receives=receives or (number > 0 and canvas != "group"))
            for number, each in enumerate(node.args)
        ]
        self.subject = canvas
        return ast.Call(ast.Name(canvas), members, node.keywords)

    def _member(self, node: ast.expr, *, receives: bool) -> ast.expr:
        if isinstance(node, ast.List | ast.Tuple):
            return ast.List([self._member(each, receives=receives) for each in node.elts], ast.Load())
        if isinstance(node, ast.GeneratorExp | ast.ListComp):
            return ast.GeneratorExp(self._member(node.elt, receives=receives), node.generators)
        if isinstance(node, ast.Starred):
            return ast.Starred(self._member(node.value, receives=receives))
        return self._step(node, receives=receives) or node

    def _signature(self, node: ast.Call, func: ast.Attribute, receives: bool) -> ast.expr | None:
        task = self._task(func.value)
        if task is None:
            return None
        self.subject = task.name
        positional, keywords, options = self._arguments(node, applied=func.attr in ("signature", "subtask"))
        immutable = func.attr == "si"
        if receives and not immutable and positional:
            positional, keywords = self._by_keyword(task, positional, keywords)
        if immutable:
            self.advice.same("a step that has all its arguments receives nothing, so there is no .si()")
        return with_options(ast.Call(ast.Attribute(func.value, "s"), positional, keywords), options)

    def _by_keyword(
        self, task: CeleryTask, positional: list[ast.expr], keywords: list[ast.keyword]
    ) -> tuple[list[ast.expr], list[ast.keyword]]:
        """In Celery the result of the step before comes first, and the given arguments follow it. Names say that."""
        parameters = task.parameters[1:]
        if len(parameters) < len(positional) or any(isinstance(each, ast.Starred) for each in positional):
            self.advice.differs(
                "give arguments by keyword: the result of the step before fills the parameter that is left"
            )
            return positional, keywords
        self.advice.same("by keyword, because the result of the step before fills the parameter that is left")
        named = [ast.keyword(each.arg, value) for each, value in zip(parameters, positional, strict=False)]
        return [], [*named, *keywords]

    # Calls

    def _called(self, node: ast.Call, func: ast.expr) -> ast.expr | None:
        """`group(…)()` and `chord(members)(last)`: a canvas that is called is enqueued."""
        step = self._step(func, receives=False)
        if step is None:
            return None
        plain = _plain_step(step)
        if plain is not None:
            self.advice.same("a signature that is called runs here, and so does the function of a task")
            return ast.Call(plain[0], plain[1].positional, plain[1].keywords)
        if isinstance(step, ast.Call) and dotted(step.func) == "chord" and len(step.args) == 1 and node.args:
            step = ast.Call(step.func, [*step.args, self._member(node.args[0], receives=True)], [])
            self.subject = "chord"
        return self.enqueued(step, CallArguments([], [], []))

    def _method(self, node: ast.Call, func: ast.Attribute) -> ast.expr | str | None:
        base, attr = func.value, func.attr
        where, first = dotted(base), first_argument(node)
        is_task = self._task(base) is not None
        if attr in _STORING:
            return self._store(node, base, attr)
        if attr == "send_task" and node.args:
            return self._request_by_name(node)
        if attr == "apply" and is_task:
            self.subject = ast.unparse(base)
            self.advice.same(
                "calling a task runs its function here: what it returns is the result, what it raises is raised"
            )
            return ast.Call(base, *self._arguments(node, applied=True)[:2])
        if attr == "retry" and (where == "self" or is_task):
            return self._retry(node)
        if attr in self.words["task"] and is_task:
            return self._word(self.words["task"][attr], f".{attr}()", first).replace("task", ast.unparse(base), 1)
        for table, subject, fits in (
            ("self", attr, where == "self"),
            ("control", f"control.{attr}", where.endswith("control")),
        ):
            if fits and attr in self.words[table]:
                return self._word(self.words[table][attr], subject, first)
        return self._result(node, base, attr)

    def _word(self, word: Word, subject: str, value: str = "") -> str:
        """What to write for a word."""
        self.subject = subject
        self.advice += word.advice(value)
        return word.ours.replace("{}", value)

    def _result(self, node: ast.Call, base: ast.expr, attr: str) -> ast.expr | None:
        """`task.delay(…).get()` and `AsyncResult(id).get()`."""
        if attr not in _RESULTS or not isinstance(base, ast.Call):
            return None
        handle = self._expression(base)
        if handle is None or isinstance(handle, str):
            return None
        if isinstance(base.func, ast.Attribute) and base.func.attr == "apply":
            return handle  # the function was called: this is its result
        keywords = [each for each in node.keywords if each.arg == "timeout"]
        if _RESULTS[attr] == "result" and not keywords and not node.args:
            self.advice.differs(
                "it waits until a worker has run the job: give it a timeout; in tests run it after "
                "taskharbor.testing.drain(harbor)"
            )
        return ast.Call(ast.Attribute(handle, _RESULTS[attr]), node.args, keywords)

    def _by_name(self, node: ast.Call, meaning: str) -> ast.expr | str | None:
        name = meaning.rpartition(".")[2]
        if meaning in ("celery.result.AsyncResult", "celery.result.GroupResult"):
            self.subject = name
            what = "job" if name == "AsyncResult" else "flow"
            return ast.Call(ast.Attribute(ast.Name("harbor"), what), node.args[:1], [])
        word = self.words["names"].get(meaning)
        return None if word is None else self._word(word, name, first_argument(node))

    def _store(self, node: ast.Call, base: ast.expr, attr: str) -> ast.expr:
        applied = attr.startswith("apply_async")
        step = self._step(base, receives=False)
        plain = None if step is None else _plain_step(step)
        if plain is not None:  # `task.s(1).apply_async(…)` is a job, no workflow
            task, of_step = plain
            given = self._arguments(node, applied=applied)
            # Arguments of the call come before those of the signature.
            positional = [*given.positional, *of_step.positional]
            keywords, options = [*of_step.keywords, *given.keywords], [*of_step.options, *given.options]
            return self.enqueued(task, CallArguments(positional, keywords, options))
        if not isinstance(base, ast.Call | ast.BinOp):
            named = self._task(base)
            self.subject = named.name if named is not None else ast.unparse(base)
        positional, keywords, options = self._arguments(node, applied=applied)
        if attr.endswith("on_commit"):
            self.advice.same(
                "with taskharbor.django a job enqueued inside atomic() is there if and only if that commits"
            )
        if step is None:
            return self.enqueued(base, CallArguments(positional, keywords, options))
        if positional or keywords:
            self.advice.differs("a workflow takes no arguments at its enqueue; give them to its first step")
        return self.enqueued(self._to_the_first_step(step, options), CallArguments([], [], []))

    def _to_the_first_step(self, flow: ast.expr, options: list[ast.keyword]) -> ast.expr:
        """The options of a workflow's call belong to its first step."""
        if not options:
            return flow
        if isinstance(flow, ast.Call) and dotted(flow.func) == "chain" and isinstance(flow.args[0], ast.Call):
            return ast.Call(flow.func, [with_options(flow.args[0], options), *flow.args[1:]], flow.keywords)
        names = ", ".join(f"{each.arg}={short(each.value, 40)}" for each in options)
        self.advice.differs(f"give the options to the first steps: step.options({names})")
        return flow

    def _request_by_name(self, node: ast.Call) -> ast.expr:
        """`app.send_task(name, …)`: a job by the name of its type, in the queue that Celery would choose."""
        rest = ast.Call(node.func, node.args[1:], node.keywords)
        positional, keywords, options = self._arguments(rest, applied=True)
        name = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
        task = next((each for each in self.tasks.values() if each.name == name), None)
        self.subject = "send_task"
        self.advice.same("from taskharbor.client import JobRequest; the payload has the arguments by name")
        parameters = [each.arg for each in task.parameters] if task is not None else []
        if len(parameters) < len(positional) or any(isinstance(each, ast.Starred) for each in positional):
            self.advice.differs("name the arguments: put the names of the parameters in the place of argument_1 …")
            parameters = [f"argument_{number}" for number in range(1, len(positional) + 1)]
        given = [ast.keyword(name, value) for name, value in zip(parameters, positional, strict=False)]
        keys: list[ast.expr | None] = [
            None if each.arg is None else ast.Constant(each.arg) for each in given + keywords
        ]
        payload = ast.Dict(keys, [each.value for each in given + keywords])
        if task is not None and task.queue != DEFAULT_QUEUE and all(each.arg != "queue" for each in options):
            options = [*options, ast.keyword("queue", ast.Constant(task.queue))]
        request = [ast.keyword("type", node.args[0]), ast.keyword("payload", payload), *options]
        made = ast.Call(ast.Name("JobRequest"), [], request)
        return self.enqueued(ast.Attribute(ast.Name("harbor"), "client"), CallArguments([made], [], []))

    def _arguments(self, node: ast.Call, *, applied: bool) -> CallArguments:
        """What a call gives. `applied`: as `apply_async(args, kwargs, **options)` and `signature(…)` do."""
        if not applied:
            return CallArguments(node.args, node.keywords, [])
        given = named_arguments(node)
        args = node.args[0] if node.args else given.pop("args", None)
        kwargs = node.args[1] if len(node.args) > 1 else given.pop("kwargs", None)
        if any(each.arg is None for each in node.keywords):
            self.advice.differs("options come from a mapping here: translate its keys where they are set")
        options = []
        for name, value in given.items():
            word = self.words["call_options"].get(name, Word(missing=f"{name}={{}}: {_NO_OPTION}"))
            self.advice += word.advice(short(value, 40))
            if word.ours:
                options.append(ast.keyword(word.ours, value))
        return CallArguments(_positional(args), _keywords(kwargs), options)

    def _retry(self, node: ast.Call) -> str:
        given = named_arguments(node)
        self.subject = "retry"
        for name in given.keys() - {"exc", "countdown", "throw"}:
            self.advice.differs(f"{name}: RetryLater takes a delay only; the task's options say the rest")
        delay = short(_InContext().visit(copy.deepcopy(given["countdown"]))) if "countdown" in given else ""
        cause = f" from {short(given['exc'])}" if "exc" in given else ""
        self.advice.same("it counts against max_attempts; Snooze(delay) comes again without counting")
        return f"raise RetryLater({delay}){cause}"

    def _request(self, node: ast.Attribute) -> str | None:
        if dotted(node.value) not in ("self.request", "current_task.request"):
            return None
        subject = f"request.{node.attr}"
        unknown = Word(missing=f"{subject}: the context of a job does not have it")
        return self._word(self.words["request"].get(node.attr, unknown), subject)

    def _task(self, node: ast.expr) -> CeleryTask | None:
        return self.tasks.get(dotted(node).rpartition(".")[2])


def _plain_step(node: ast.expr) -> tuple[ast.expr, CallArguments] | None:
    """The task, arguments and options of `task.s(…)` or `task.s(…).options(…)`."""
    options: list[ast.keyword] = []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "options":
        options, node = node.keywords, node.func.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "s":
        return node.func.value, CallArguments(node.args, node.keywords, options)
    return None


class _InContext(ast.NodeTransformer):
    """Reads from the context of a job what Celery has in `self.request`. It changes the tree."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        known = words("celery")["request"].get(node.attr, Word())
        inside = dotted(node.value) == "self.request" and known.ours.startswith("ctx.")
        return ast.parse(known.ours, mode="eval").body if inside else node


def _is_given(node: ast.expr | None) -> TypeGuard[ast.expr]:
    return node is not None and not (isinstance(node, ast.Constant) and node.value is None)


def _positional(node: ast.expr | None) -> list[ast.expr]:
    if not _is_given(node):
        return []
    return list(node.elts) if isinstance(node, ast.Tuple | ast.List) else [ast.Starred(node)]


def _keywords(node: ast.expr | None) -> list[ast.keyword]:
    if not _is_given(node):
        return []
    if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
        keys = [str(key.value) for key in node.keys if isinstance(key, ast.Constant)]
        if all(map(str.isidentifier, keys)):
            return [ast.keyword(key, value) for key, value in zip(keys, node.values, strict=True)]
    return [ast.keyword(None, node)]
