"""Calls of Celery's API in a source file, each with the expression to write instead.

An expression is rewritten as a whole: `chain(a.s(1), b.s(2)).apply_async(countdown=3)` is one finding. Whether a name
is a task is known for the tasks of the application; `.delay(` and `.apply_async(` are reported on whatever they are
called.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from taskharbor.cli.moving.celery_tasks import CeleryTask
from taskharbor.cli.moving.celery_words import (
    APPLY_OPTIONS,
    CONTROL,
    DROPPED_OPTIONS,
    EXCEPTIONS,
    MISSING_OPTIONS,
    REQUEST,
    SIGNALS,
)
from taskharbor.cli.moving.findings import Advice, Finding, differs, missing, same
from taskharbor.cli.moving.source import Source, dotted, imported_names, short

_CANVAS = {"celery.chain": "chain", "celery.group": "group", "celery.chord": "chord"}
_STORING = ("delay", "apply_async", "delay_on_commit", "apply_async_on_commit")
_MANY = ("map", "starmap", "chunks")
_PlainStep: TypeAlias = tuple[ast.expr, list[ast.expr], list[ast.keyword], list[ast.keyword]]
_RESULTS = {"get": "result", "join": "result", "ready": "status", "revoke": "cancel", "forget": "delete"}


def calls(source: Source, tasks: Mapping[str, CeleryTask]) -> Iterator[Finding]:
    """What a file does with Celery. `tasks`: those of the application, by the name of their function."""
    names = imported_names(source.tree, "celery")
    known = {**tasks, **_aliases(source.tree, tasks)}
    walk = _Walk(source.path, names, known)
    walk.visit(source.tree)
    yield from walk.found
    yield from _imports(source)


def _aliases(tree: ast.Module, tasks: Mapping[str, CeleryTask]) -> dict[str, CeleryTask]:
    """Tasks that a file imports under another name."""
    return {
        each.asname: tasks[each.name]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for each in node.names
        if each.asname and each.name in tasks
    }


def _imports(source: Source) -> Iterator[Finding]:
    """Signals and exceptions that a file imports: both are found most surely there."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ImportFrom) or node.module not in ("celery.signals", "celery.exceptions"):
            continue
        known = SIGNALS if node.module == "celery.signals" else EXCEPTIONS
        for each in node.names:
            ours, advice = known.get(each.name, ("", missing(f"{each.name}: there is no counterpart")))
            yield Finding(
                kind="other",
                subject=each.name,
                file=source.path,
                line=each.lineno,
                theirs=f"from {node.module} import {each.name}",
                ours=ours,
                advice=(advice,),
            )


class _Walk(ast.NodeVisitor):
    """Finds the outermost expressions to rewrite, and knows whether they stand in a coroutine."""

    def __init__(self, path: str, names: Mapping[str, str], tasks: Mapping[str, CeleryTask]) -> None:
        self.path, self.names, self.tasks = path, names, tasks
        self.found: list[Finding] = []
        self._awaiting = [False]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node, False)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node, True)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, awaiting: bool) -> None:
        for each in node.decorator_list:
            if not isinstance(each, ast.Call):  # @app.task(…) belongs to the finding of its task
                self.visit(each)
        self._awaiting.append(awaiting)
        for part in (*node.args.defaults, *node.body):
            self.visit(part)
        self._awaiting.pop()

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Call | ast.BinOp | ast.Attribute):
            rewriting = Rewriting(self.names, self.tasks, awaiting=self._awaiting[-1])
            ours = rewriting.expression(node)
            if ours is not None:
                self.found.append(
                    Finding(
                        kind="call",
                        subject=rewriting.subject,
                        file=self.path,
                        line=node.lineno,
                        theirs=short(node),
                        ours=ours if isinstance(ours, str) else ast.unparse(ast.fix_missing_locations(ours)),
                        advice=tuple(dict.fromkeys(rewriting.advice)),
                    )
                )
                return
        super().generic_visit(node)


class Rewriting:
    """Rewrites one expression, and collects what there is to know about it."""

    def __init__(self, names: Mapping[str, str], tasks: Mapping[str, CeleryTask], *, awaiting: bool) -> None:
        self.names, self.tasks, self.awaiting = names, tasks, awaiting
        self.advice: list[Advice] = []
        self.subject = ""

    def expression(self, node: ast.expr) -> ast.expr | str | None:
        """What to write instead: an expression, or text where no expression says it; None: it is not Celery's."""
        if isinstance(node, ast.Attribute):
            return self._request(node)
        step = self.step(node, receives=False)
        if step is not None:
            return step
        if not isinstance(node, ast.Call):
            return None
        if isinstance(node.func, ast.Call | ast.BinOp):
            return self._called(node, node.func)
        if isinstance(node.func, ast.Name):
            return self._by_name(node, self.names.get(node.func.id, ""))
        return self._method(node, node.func) if isinstance(node.func, ast.Attribute) else None

    # Workflows

    def step(self, node: ast.expr, *, receives: bool) -> ast.expr | None:
        """A signature or canvas. `receives`: whether a result comes from the step before it."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._piped(node, receives)
        if not isinstance(node, ast.Call):
            return None
        canvas = _CANVAS.get(self._meaning(node.func))
        if canvas is not None:
            return self._canvas(node, canvas, receives)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("s", "si", "signature", "subtask"):
            return self._signature(node, node.func, receives)
        return None

    def _meaning(self, func: ast.expr) -> str:
        if isinstance(func, ast.Name):
            return self.names.get(func.id, "")
        root, _, rest = dotted(func).partition(".")
        return f"{self.names[root]}.{rest}" if root in self.names else ""

    def _piped(self, node: ast.BinOp, receives: bool) -> ast.expr | None:
        parts: list[ast.expr] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp) and isinstance(left.op, ast.BitOr):
            parts.insert(0, left.right)
            left = left.left
        parts.insert(0, left)
        steps = [self.step(part, receives=receives or number > 0) for number, part in enumerate(parts)]
        if not any(step is not None for step in steps):
            return None
        self.subject = "chain"
        self.advice.append(same("from taskharbor.flow import chain; steps are not joined by |"))
        whole = [step if step is not None else part for step, part in zip(steps, parts, strict=True)]
        return ast.Call(ast.Name("chain"), whole, [])

    def _canvas(self, node: ast.Call, canvas: str, receives: bool) -> ast.expr:
        self.advice.append(same("chain, group and chord come from taskharbor.flow"))
        if canvas == "chord" and len(node.args) == 1:
            self.advice.append(same("the last step is the second argument: chord(members, last)"))
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
        return self.step(node, receives=receives) or node

    def _signature(self, node: ast.Call, func: ast.Attribute, receives: bool) -> ast.expr | None:
        task = self._task(func.value)
        if task is None:
            return None
        self.subject = task.name
        positional, keywords = node.args, node.keywords
        options: list[ast.keyword] = []
        if func.attr in ("signature", "subtask"):
            positional, keywords, options = self._arguments(node)
        immutable = func.attr == "si"
        if receives and not immutable and positional:
            positional, keywords = self._by_keyword(task, positional, keywords)
        if immutable:
            self.advice.append(same("a step that has all its arguments receives nothing, so there is no .si()"))
        step: ast.expr = ast.Call(ast.Attribute(func.value, "s"), positional, keywords)
        return ast.Call(ast.Attribute(step, "options"), [], options) if options else step

    def _by_keyword(
        self, task: CeleryTask, positional: list[ast.expr], keywords: list[ast.keyword]
    ) -> tuple[list[ast.expr], list[ast.keyword]]:
        """In Celery the result of the step before comes first, and the given arguments follow it. Names say that."""
        names = task.parameters[1:]
        if len(names) < len(positional) or any(isinstance(each, ast.Starred) for each in positional):
            self.advice.append(
                differs("give arguments by keyword: the result of the step before fills the parameter that is left")
            )
            return positional, keywords
        self.advice.append(same("by keyword, because the result of the step before fills the parameter that is left"))
        named = [ast.keyword(name, value) for name, value in zip(names, positional, strict=False)]
        return [], [*named, *keywords]

    # Calls

    def _called(self, node: ast.Call, func: ast.expr) -> ast.expr | None:
        """`group(…)()` and `chord(members)(last)`: a canvas that is called is enqueued."""
        step = self.step(func, receives=False)
        if step is None:
            return None
        plain = _plain_step(step)
        if plain is not None:
            self.advice.append(same("a signature that is called runs here, and so does the function of a task"))
            return ast.Call(plain[0], *plain[1:3])
        if isinstance(step, ast.Call) and dotted(step.func) == "chord" and len(step.args) == 1 and node.args:
            step = ast.Call(step.func, [*step.args, self._member(node.args[0], receives=True)], [])
            self.subject = "chord"
        return self._enqueued(step, [], [])

    def _method(self, node: ast.Call, func: ast.Attribute) -> ast.expr | str | None:
        base, attr = func.value, func.attr
        if attr in _STORING:
            return self._store(node, base, attr)
        if attr in _MANY and self._task(base) is not None:
            self.subject = f".{attr}()"
            self.advice.append(differs("one job for each item, stored in one call"))
            return f"harbor.enqueue_many({ast.unparse(base)}.s(…) for … in {_first(node)})"
        if attr == "retry" and (dotted(base) == "self" or self._task(base) is not None):
            return self._retry(node)
        if attr == "send_task":
            self.subject = "send_task"
            self.advice.append(same("from taskharbor.client import JobRequest; the payload has the arguments by name"))
            return f"harbor.client.enqueue(JobRequest(type={_first(node)}, payload={{…}}))"
        if attr == "update_state" and dotted(base) == "self":
            self.subject = attr
            self.advice.append(differs("progress is done, total and a note; there are no states of your own"))
            return "ctx.progress(done, total, note)"
        if attr == "replace" and dotted(base) == "self":
            self.subject = attr
            self.advice.append(same("a handler that returns a workflow is replaced by it"))
            return f"return {_first(node)}"
        if dotted(base).endswith("control") and attr in CONTROL:
            ours, advice = CONTROL[attr]
            self.subject, self.advice = f"control.{attr}", [advice]
            return ours.format(_first(node))
        return self._result(node, base, attr)

    def _result(self, node: ast.Call, base: ast.expr, attr: str) -> ast.expr | str | None:
        """`task.delay(…).get()` and `AsyncResult(id).get()`."""
        if attr not in _RESULTS or not isinstance(base, ast.Call):
            return None
        handle = self.expression(base)
        if handle is None or isinstance(handle, str):
            return None
        keywords = [each for each in node.keywords if each.arg == "timeout"]
        return ast.Call(ast.Attribute(handle, _RESULTS[attr]), node.args, keywords)

    def _by_name(self, node: ast.Call, meaning: str) -> ast.expr | str | None:
        if meaning in ("celery.result.AsyncResult", "celery.result.GroupResult"):
            self.subject = meaning.rpartition(".")[2]
            what = "job" if self.subject == "AsyncResult" else "flow"
            return ast.Call(ast.Attribute(ast.Name("harbor"), what), node.args[:1], [])
        if meaning in ("celery.signature", "celery.chunks", "celery.xmap", "celery.xstarmap"):
            self.subject = meaning.rpartition(".")[2]
            self.advice.append(differs("a step is made by its task: task.s(…); harbor.enqueue_many stores many"))
            return "task.s(…)"
        return None

    def _store(self, node: ast.Call, base: ast.expr, attr: str) -> ast.expr | None:
        if isinstance(base, ast.Call | ast.BinOp):
            step = self.step(base, receives=False)
            plain = None if step is None else _plain_step(step)
            if plain is not None:
                return self._plain(node, attr, plain)
            base = step if step is not None else base
            flow = step is not None
        else:
            task = self._task(base)
            self.subject = task.name if task is not None else ast.unparse(base)
            flow = False
        options: list[ast.keyword] = []
        positional, keywords = node.args, node.keywords
        if attr.startswith("apply_async"):
            positional, keywords, options = self._arguments(node)
        if attr.endswith("on_commit"):
            options = [*options, ast.keyword("connection", ast.Name("connection"))]
            self.advice.append(same("stored in your own transaction, on SQL stores: no job without its commit"))
        if flow and (positional or keywords):
            self.advice.append(differs("a workflow takes no arguments at its enqueue; give them to its first step"))
            positional, keywords = [], []
        if flow and options:
            base, options = self._to_the_first_step(base, options)
        target = ast.Call(ast.Attribute(base, "options"), [], options) if options else base
        return self._enqueued(target, positional, keywords)

    def _plain(self, node: ast.Call, attr: str, step: _PlainStep) -> ast.expr:
        """`task.s(1).apply_async(…)` is a job, no workflow."""
        task, positional, keywords, options = step
        if attr.startswith("apply_async"):
            more = self._arguments(node)
            positional, keywords, options = [*more[0], *positional], [*keywords, *more[1]], [*options, *more[2]]
        else:  # arguments of the call come before those of the signature
            positional, keywords = [*node.args, *positional], [*keywords, *node.keywords]
        target = ast.Call(ast.Attribute(task, "options"), [], options) if options else task
        return self._enqueued(target, positional, keywords)

    def _enqueued(self, target: ast.expr, positional: list[ast.expr], keywords: list[ast.keyword]) -> ast.expr:
        if self.awaiting:
            return ast.Await(ast.Call(ast.Attribute(target, "aenqueue"), positional, keywords))
        return ast.Call(ast.Attribute(target, "enqueue"), positional, keywords)

    def _to_the_first_step(self, flow: ast.expr, options: list[ast.keyword]) -> tuple[ast.expr, list[ast.keyword]]:
        """A workflow has one option, `connection`; the others belong to its first step."""
        whole = [each for each in options if each.arg == "connection"]
        others = [each for each in options if each.arg != "connection"]
        if not others:
            return flow, whole
        if isinstance(flow, ast.Call) and dotted(flow.func) == "chain" and isinstance(flow.args[0], ast.Call):
            first = ast.Call(ast.Attribute(flow.args[0], "options"), [], others)
            return ast.Call(flow.func, [first, *flow.args[1:]], flow.keywords), whole
        names = ", ".join(f"{each.arg}={short(each.value, 40)}" for each in others)
        self.advice.append(differs(f"give the options to the first steps: step.options({names})"))
        return flow, whole

    def _arguments(self, node: ast.Call) -> tuple[list[ast.expr], list[ast.keyword], list[ast.keyword]]:
        """The arguments and options of `apply_async(args, kwargs, **options)` and of `signature(…)`."""
        given = {each.arg: each.value for each in node.keywords if each.arg is not None}
        args = node.args[0] if node.args else given.pop("args", None)
        kwargs = node.args[1] if len(node.args) > 1 else given.pop("kwargs", None)
        if any(each.arg is None for each in node.keywords):
            self.advice.append(differs("options come from a mapping here: translate its keys where they are set"))
        options = []
        for name, value in given.items():
            if name in APPLY_OPTIONS:
                ours, advice = APPLY_OPTIONS[name]
                options.append(ast.keyword(ours, value))
                self.advice += [advice] if advice is not None else []
            elif name in DROPPED_OPTIONS:
                self.advice.append(same(f"{name}: {DROPPED_OPTIONS[name]}"))
            else:
                text = MISSING_OPTIONS.get(name, "there is no such option")
                self.advice.append(missing(f"{name}={short(value, 40)}: {text}"))
        return _positional(args), _keywords(kwargs), options

    def _retry(self, node: ast.Call) -> str:
        given = {each.arg: each.value for each in node.keywords if each.arg is not None}
        self.subject = "retry"
        for name in given.keys() - {"exc", "countdown", "throw"}:
            self.advice.append(differs(f"{name}: RetryLater takes a delay only; the task's options say the rest"))
        delay = short(_InContext().visit(copy.deepcopy(given["countdown"]))) if "countdown" in given else ""
        cause = f" from {short(given['exc'])}" if "exc" in given else ""
        self.advice.append(same("it counts against max_attempts; Snooze(delay) comes again without counting"))
        return f"raise RetryLater({delay}){cause}"

    def _request(self, node: ast.Attribute) -> str | None:
        if dotted(node.value) not in ("self.request", "current_task.request"):
            return None
        self.subject = f"request.{node.attr}"
        ours = REQUEST.get(node.attr)
        if ours is None:
            self.advice.append(missing(f"request.{node.attr}: the context of a job does not have it"))
            return ""
        return ours

    def _task(self, node: ast.expr) -> CeleryTask | None:
        return self.tasks.get(dotted(node).rpartition(".")[2])


def _plain_step(node: ast.expr) -> _PlainStep | None:
    """The task, arguments and options of `task.s(…)` or `task.s(…).options(…)`."""
    options: list[ast.keyword] = []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "options":
        options, node = node.keywords, node.func.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "s":
        return node.func.value, node.args, node.keywords, options
    return None


class _InContext(ast.NodeTransformer):
    """Reads from the context of a job what Celery has in `self.request`. It changes the tree."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        known = REQUEST.get(node.attr, "") if dotted(node.value) == "self.request" else ""
        return ast.parse(known, mode="eval").body if known.startswith("ctx.") else node


def _positional(node: ast.expr | None) -> list[ast.expr]:
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return []
    return list(node.elts) if isinstance(node, ast.Tuple | ast.List) else [ast.Starred(node)]


def _keywords(node: ast.expr | None) -> list[ast.keyword]:
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return []
    if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
        keys = [str(key.value) for key in node.keys if isinstance(key, ast.Constant)]
        if all(map(str.isidentifier, keys)):
            return [ast.keyword(key, value) for key, value in zip(keys, node.values, strict=True)]
    return [ast.keyword(None, node)]


def _first(node: ast.Call) -> str:
    return short(node.args[0]) if node.args else "…"
