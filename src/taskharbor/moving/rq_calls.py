"""RQ's API in source files, each place with what to write instead. Nothing is imported.

A function is a task here, and its options are declared with it; in RQ every call names them. So there is a finding for
each function that is enqueued, if it stands in one of the files, and one for each call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from taskharbor.moving.findings import UNTYPED, Advice, Finding, Kind, Remarks, words
from taskharbor.moving.source import (
    CallArguments,
    Source,
    SourceWalk,
    dotted,
    first_argument,
    first_line,
    functions,
    is_untyped,
    named_arguments,
    python_files,
    read,
    short,
)

_ENQUEUE = {"enqueue": "", "enqueue_call": "", "enqueue_at": "run_at", "enqueue_in": "delay"}
"""The methods that enqueue → our option for the first argument."""


def rq_findings(places: Iterable[Path]) -> Iterator[Finding]:
    """What is found in the Python files among and below these places."""
    walks = [_RqWalk(read(path)) for path in python_files(places)]
    enqueued = {name for walk in walks for name in walk.enqueued_names}
    for walk in walks:
        yield from walk.found
        yield from walk.tasks(enqueued)
    if enqueued:
        text = "RQ pickles them; here they are JSON by the annotations: pass an id or a dataclass instead of an object"
        yield Finding(kind="other", subject="arguments", theirs="arguments", advice=(Advice("differs", text),))


class _RqWalk(SourceWalk):
    """Finds calls on queues, and the names that come from RQ."""

    def __init__(self, source: Source) -> None:
        super().__init__(source, "rq", "rq_scheduler")
        self.tree = source.tree
        self.queues = self._queues()
        self.enqueued_names: set[str] = set()
        self.visit(source.tree)

    def _queues(self) -> dict[str, str]:
        """Variables that hold a queue, and the name of each."""
        found = {}
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
                continue
            if self.names.get(dotted(node.value.func), "").rpartition(".")[2] != "Queue":
                continue
            given = named_arguments(node.value)
            name = node.value.args[0] if node.value.args else given.get("name", ast.Constant("default"))
            for target in node.targets:
                if dotted(target) and isinstance(name, ast.Constant):
                    found[dotted(target)] = str(name.value)
        return found

    def visit_Call(self, node: ast.Call) -> None:
        func = node.func
        if self.names and isinstance(func, ast.Attribute):
            if (func.attr in _ENQUEUE and node.args) or func.attr == "enqueue_call":
                return self._enqueue(node, func)
            if func.attr == "delay" and isinstance(func.value, ast.Name):
                ours = self.enqueued(func.value, CallArguments(node.args, node.keywords, []))
                return self.add("call", node, func.value.id, ours, ())
        meaning = self.meaning(func)
        word = words("rq")["names"].get(meaning)
        if word is None and self.names and isinstance(func, ast.Attribute) and func.attr in words("rq")["methods"]:
            meaning, word = f".{func.attr}()", words("rq")["methods"][func.attr]
        if word is None:
            self.generic_visit(node)
            return None
        kind: Kind = "call" if ".enqueue" in word.ours else "other"
        advice = word.advice()
        for name in named_arguments(node).keys() & words("rq")["queue"].keys() if meaning == "rq.Queue" else ():
            advice += words("rq")["queue"][name].advice()
        return self.add(kind, node, meaning, word.ours.replace("{}", first_argument(node)), advice)

    def _enqueue(self, node: ast.Call, func: ast.Attribute) -> None:
        advice = Remarks()
        given = named_arguments(node)
        arguments = list(node.args)
        options: list[ast.keyword] = []
        if _ENQUEUE[func.attr]:
            options.append(ast.keyword(_ENQUEUE[func.attr], _with_zone(arguments.pop(0), advice)))
        function = arguments.pop(0) if arguments else given.pop("func", ast.Constant("…"))
        queue = self.queues.get(dotted(func.value))
        if queue is not None and queue != "default":
            options.append(ast.keyword("queue", ast.Constant(queue)))
        if "args" in given or func.attr == "enqueue_call":
            explicit = given.pop("args", None)
            arguments = list(explicit.elts) if isinstance(explicit, ast.Tuple | ast.List) else []
        known = {name: given.pop(name) for name in list(given) if name == "retry" or name in words("rq")["options"]}
        options += _options(known, advice)
        name = dotted(function).rpartition(".")[2]
        if isinstance(function, ast.Constant):
            advice.differs("the function is named by text: import its task, or enqueue a JobRequest")
            name = str(function.value).rpartition(".")[2]
        elif isinstance(function, ast.Attribute) and not name:
            advice.missing(
                "a method of an object cannot be a task: declare a function that makes the object and calls it"
            )
        elif not name:
            advice.differs("the function is chosen when the line runs: let it choose among tasks")
        self.enqueued_names |= {name} - {""}
        mapping = given.pop("kwargs", None)
        keywords = [ast.keyword(key, value) for key, value in given.items()]
        keywords += [] if mapping is None else [ast.keyword(None, mapping)]
        target = ast.Name(name or "task") if isinstance(function, ast.Constant) else function
        self.add(
            "call",
            node,
            name or short(function),
            self.enqueued(target, CallArguments(arguments, keywords, options)),
            advice,
        )

    def tasks(self, enqueued: set[str]) -> Iterator[Finding]:
        """The functions of the file that some call enqueues, or that `@job` declares."""
        for node in functions(self.tree):
            declared = next((each for each in node.decorator_list if self._is_job(each)), None)
            if declared is None and node.name not in enqueued:
                continue
            advice = Remarks()
            options = _declared(declared, advice) if isinstance(declared, ast.Call) else {}
            options.setdefault("max_attempts", "1")
            advice.same("RQ retries only what a call says; without max_attempts=1 a failed job runs up to 5 times")
            if is_untyped(node):
                advice.differs(UNTYPED)
            yield Finding(
                kind="task",
                subject=node.name,
                file=self.path,
                line=first_line(node),
                theirs=f"@{short(declared)}" if declared is not None else f"def {node.name}({short(node.args)})",
                ours=f"@harbor.task({', '.join(f'{name}={value}' for name, value in options.items())})",
                advice=tuple(advice),
            )

    def _is_job(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self.meaning(node.func) == "rq.decorators.job"


def _declared(node: ast.Call, advice: Remarks) -> dict[str, str]:
    given = named_arguments(node)
    queue = node.args[0] if node.args else given.pop("queue", None)
    options = {} if queue is None else {"queue": short(queue)}
    if "timeout" in given:
        given["job_timeout"] = given.pop("timeout")
    return options | {str(each.arg): ast.unparse(each.value) for each in _options(given, advice)}


def _options(given: Mapping[str, ast.expr], advice: Remarks) -> Iterator[ast.keyword]:
    """Our options for RQ's, and what to know about the others."""
    for name, value in given.items():
        word = words("rq")["options"].get(name)
        if name == "retry":
            yield from _retry(value, advice)
        elif word is not None:
            advice += word.advice()
            if word.ours:
                ours = ast.Constant(1) if name == "at_front" else _as_text(value) if name == "meta" else value
                yield ast.keyword(word.ours, ours)


def _as_text(value: ast.expr) -> ast.expr:
    """A mapping whose values are text."""
    if not isinstance(value, ast.Dict):
        return value
    values: list[ast.expr] = [
        each
        if isinstance(each, ast.JoinedStr) or (isinstance(each, ast.Constant) and isinstance(each.value, str))
        else ast.Constant(str(each.value))
        if isinstance(each, ast.Constant)
        else ast.Call(ast.Name("str"), [each], [])
        for each in value.values
    ]
    return ast.Dict(value.keys, values)


def _with_zone(value: ast.expr, advice: Remarks) -> ast.expr:
    """A moment with a time zone: RQ takes one without for the clock of the machine."""
    is_moment = isinstance(value, ast.Call) and dotted(value.func).rpartition(".")[2] == "datetime"
    if not isinstance(value, ast.Call) or not is_moment or len(value.args) > 7 or "tzinfo" in named_arguments(value):
        return value
    advice.differs("run_at needs a time zone; .astimezone() takes that of this machine, as RQ does")
    return ast.Call(ast.Attribute(value, "astimezone"), [], [])


def _retry(value: ast.expr, advice: Remarks) -> Iterator[ast.keyword]:
    """`Retry(max=3, interval=[10, 30])`."""
    given: dict[str, ast.expr] = {}
    if isinstance(value, ast.Call):
        given = named_arguments(value) | dict(zip(("max", "interval"), value.args, strict=False))
    most, interval = given.get("max"), given.get("interval", ast.Constant(0))
    if not isinstance(most, ast.Constant) or not isinstance(most.value, int):
        advice.differs("retry: write max_attempts= (the number of retries and one) and retry=Fixed(seconds)")
        return
    yield ast.keyword("max_attempts", ast.Constant(most.value + 1))
    if isinstance(interval, ast.List | ast.Tuple):
        advice.differs(
            f"the delays {short(interval)}: declare retry= with the task, a function of (attempts, error) that "
            "returns seconds"
        )
    else:
        yield ast.keyword("retry", ast.Call(ast.Name("Fixed"), [interval], []))
