"""RQ's API in source files, each place with what to write instead. Nothing is imported.

A function is a task here, and its options are declared with it; in RQ every call names them. So there is a finding for
each function that is enqueued, if it stands in one of the files, and one for each call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from taskharbor.cli.moving.findings import Advice, Finding, MovingReport, differs, missing, report, same
from taskharbor.cli.moving.rq_words import DROPPED, JOB_OPTIONS, MISSING, NAMES
from taskharbor.cli.moving.source import (
    Source,
    dotted,
    first_line,
    functions,
    imported_names,
    python_files,
    read,
    short,
)

_ENQUEUE = ("enqueue", "enqueue_call", "enqueue_at", "enqueue_in")


def rq_report(places: Iterable[Path]) -> MovingReport:
    """The report about the Python files among and below these places."""
    sources = [read(path) for path in python_files(places)]
    findings: list[Finding] = []
    enqueued: set[str] = set()
    for source in sources:
        if source.broken:
            findings.append(
                Finding(kind="other", subject="cannot be read", file=source.path, advice=(missing(source.broken),))
            )
        walk = _Walk(source)
        walk.visit(source.tree)
        findings += walk.found
        enqueued |= walk.enqueued
    for source in sources:
        findings += _tasks(source, enqueued)
    return report(", ".join(map(str, places)), findings)


def _tasks(source: Source, enqueued: set[str]) -> Iterator[Finding]:
    """The functions of a file that some call enqueues, or that `@job` declares."""
    names = imported_names(source.tree, "rq")
    for node in functions(source.tree):
        declared = next((each for each in node.decorator_list if _is_job(each, names)), None)
        if declared is None and node.name not in enqueued:
            continue
        options, advice = ({}, []) if declared is None else _declared(declared)
        options.setdefault("max_attempts", "1")
        advice.append(same("RQ retries only what a call says; without max_attempts=1 a failed job runs up to 5 times"))
        yield Finding(
            kind="task",
            subject=node.name,
            file=source.path,
            line=first_line(node),
            theirs=f"@{short(declared)}" if declared is not None else f"def {node.name}({short(node.args)})",
            ours=f"@harbor.task({', '.join(f'{name}={value}' for name, value in options.items())})",
            advice=tuple(advice),
        )


def _is_job(node: ast.expr, names: Mapping[str, str]) -> bool:
    return isinstance(node, ast.Call) and names.get(dotted(node.func)) == "rq.decorators.job"


def _declared(node: ast.expr) -> tuple[dict[str, str], list[Advice]]:
    assert isinstance(node, ast.Call)
    advice: list[Advice] = []
    given = {each.arg: each.value for each in node.keywords if each.arg is not None}
    queue = node.args[0] if node.args else given.pop("queue", None)
    options = {} if queue is None else {"queue": short(queue)}
    timeout = given.pop("timeout", None)
    if timeout is not None:
        given["job_timeout"] = timeout
    options |= {name: ast.unparse(value) for name, value in _options(given, advice)}
    return options, advice


def _options(given: Mapping[str, ast.expr], advice: list[Advice]) -> Iterator[tuple[str, ast.expr]]:
    """Our options for RQ's, and what to know about the others."""
    for name, value in given.items():
        if name == "retry":
            yield from _retry(value, advice)
        elif name in JOB_OPTIONS:
            ours, note = JOB_OPTIONS[name]
            advice += [note] if note is not None else []
            yield ours, ast.Constant(1) if name == "at_front" else value
        elif name in DROPPED:
            advice.append(same(f"{name}: {DROPPED[name]}"))
        elif name in MISSING:
            advice.append(missing(f"{name}: {MISSING[name]}"))


def _retry(value: ast.expr, advice: list[Advice]) -> Iterator[tuple[str, ast.expr]]:
    """`Retry(max=3, interval=[10, 30])`."""
    given: dict[str, ast.expr] = {}
    if isinstance(value, ast.Call):
        given = {each.arg: each.value for each in value.keywords if each.arg is not None}
        given |= dict(zip(("max", "interval"), value.args, strict=False))
    most, interval = given.get("max"), given.get("interval", ast.Constant(0))
    if not isinstance(most, ast.Constant) or not isinstance(most.value, int):
        advice.append(differs("retry: write max_attempts= (the number of retries and one) and retry=Fixed(seconds)"))
        return
    yield "max_attempts", ast.Constant(most.value + 1)
    if isinstance(interval, ast.List | ast.Tuple):
        advice.append(
            differs(
                f"the delays {short(interval)}: declare retry= with the task, a function of (attempts, error) that "
                "returns seconds"
            )
        )
    else:
        yield "retry", ast.Call(ast.Name("Fixed"), [interval], [])


class _Walk(ast.NodeVisitor):
    """Finds calls on queues, and the names that come from RQ."""

    def __init__(self, source: Source) -> None:
        self.path = source.path
        self.names = imported_names(source.tree, "rq") | imported_names(source.tree, "rq_scheduler")
        self.queues = _queues(source.tree, self.names)
        self.found: list[Finding] = []
        self.enqueued: set[str] = set()
        self._awaiting = [False]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._nested(node, False)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._nested(node, True)

    def _nested(self, node: ast.FunctionDef | ast.AsyncFunctionDef, awaiting: bool) -> None:
        self._awaiting.append(awaiting)
        for each in node.body:
            self.visit(each)
        self._awaiting.pop()

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and self._method(node, node.func):
            return
        root, _, rest = dotted(node.func).partition(".")
        meaning = f"{self.names[root]}{f'.{rest}' if rest else ''}" if root in self.names else ""
        if meaning in NAMES:
            ours, advice = NAMES[meaning]
            self._add(node, meaning, ours.format(_first(node)), advice)
        else:
            self.generic_visit(node)

    def _method(self, node: ast.Call, func: ast.Attribute) -> bool:
        if not self.names:
            return False
        if (func.attr in _ENQUEUE and node.args) or func.attr == "enqueue_call":
            self._enqueue(node, func)
            return True
        if func.attr == "delay" and isinstance(func.value, ast.Name):
            self._add(node, func.value.id, self._call(short(func.value), [], node.args, node.keywords))
            return True
        return False

    def _enqueue(self, node: ast.Call, func: ast.Attribute) -> None:
        advice: list[Advice] = []
        given = {each.arg: each.value for each in node.keywords if each.arg is not None}
        arguments = list(node.args)
        options: list[ast.keyword] = []
        if func.attr in ("enqueue_at", "enqueue_in"):
            options.append(ast.keyword("run_at" if func.attr == "enqueue_at" else "delay", arguments.pop(0)))
        function = arguments.pop(0) if arguments else given.pop("func", ast.Constant("…"))
        queue = self.queues.get(dotted(func.value))
        if queue is not None and queue != "default":
            options.append(ast.keyword("queue", ast.Constant(queue)))
        if "args" in given or func.attr == "enqueue_call":
            explicit = given.pop("args", None)
            arguments = list(explicit.elts) if isinstance(explicit, ast.Tuple | ast.List) else []
        known = [name for name in given if name in {*JOB_OPTIONS, *DROPPED, *MISSING, "retry"}]
        options += [ast.keyword(name, value) for name, value in _options({k: given[k] for k in known}, advice)]
        if isinstance(function, ast.Constant):
            advice.append(differs("the function is named by text: import its task, or enqueue a JobRequest"))
        name = dotted(function).rpartition(".")[2] or str(getattr(function, "value", "")).rpartition(".")[2]
        self.enqueued.add(name)
        keywords = [ast.keyword(key, value) for key, value in given.items() if key not in known and key != "kwargs"]
        if isinstance(given.get("kwargs"), ast.expr):
            keywords.append(ast.keyword(None, given["kwargs"]))
        self._add(node, name, self._call(dotted(function) or name, options, arguments, keywords), *advice)

    def _call(
        self, task: str, options: list[ast.keyword], arguments: list[ast.expr], keywords: list[ast.keyword]
    ) -> str:
        target: ast.expr = ast.parse(task or "task", mode="eval").body
        if options:
            target = ast.Call(ast.Attribute(target, "options"), [], options)
        verb = "aenqueue" if self._awaiting[-1] else "enqueue"
        call = ast.Call(ast.Attribute(target, verb), arguments, keywords)
        return ast.unparse(ast.fix_missing_locations(ast.Await(call) if self._awaiting[-1] else call))

    def _add(self, node: ast.Call, subject: str, ours: str, *advice: Advice) -> None:
        told = tuple(each for each in advice if each.text)
        kind = "call" if ".enqueue" in ours or ".aenqueue" in ours else "other"
        self.found.append(
            Finding(
                kind="call" if kind == "call" else "other",
                subject=subject,
                file=self.path,
                line=node.lineno,
                theirs=short(node),
                ours=ours,
                advice=told,
            )
        )


def _queues(tree: ast.Module, names: Mapping[str, str]) -> dict[str, str]:
    """Variables that hold a queue, and the name of each."""
    found = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if names.get(dotted(node.value.func), "").rpartition(".")[2] != "Queue":
            continue
        given = {each.arg: each.value for each in node.value.keywords}
        name = node.value.args[0] if node.value.args else given.get("name", ast.Constant("default"))
        for target in node.targets:
            if dotted(target) and isinstance(name, ast.Constant):
                found[dotted(target)] = str(name.value)
    return found


def _first(node: ast.Call) -> str:
    return short(node.args[0]) if node.args else "…"
