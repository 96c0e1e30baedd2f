"""Reading a Celery application: its tasks, its schedule, its settings, and the files of its tasks.

The application's own module imports Celery; nothing here does. What is read is in Celery 5.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from taskharbor.cli.app import broken_import, named
from taskharbor.cli.errors import usage_error
from taskharbor.cli.moving.celery_beat import entry_finding
from taskharbor.cli.moving.celery_calls import calls
from taskharbor.cli.moving.celery_settings import setting_findings
from taskharbor.cli.moving.celery_tasks import DEFAULT_QUEUE, DEFAULTS, HOOKS, CeleryTask, translate
from taskharbor.cli.moving.findings import Finding, MovingReport, differs, missing, report, same
from taskharbor.cli.moving.source import Source, first_line, functions, line_of_entry, python_files, read


def celery_report(path: str, scan: Iterable[Path]) -> MovingReport:
    """The report about the application that `module:name` names, and about the Python files in `scan`."""
    app = _loaded(path)
    sources: dict[str, Source] = {}
    objects = [task for name, task in sorted(app.tasks.items()) if not name.startswith("celery.")]
    tasks = [_task(app, task, sources) for task in objects]
    for file in python_files(scan):
        sources.setdefault(str(file), read(file))
    own = getattr(inspect.getmodule(type(app)), "__file__", None)
    module = inspect.getsourcefile(_module(path)) or ""
    if module and module != own:
        sources.setdefault(module, read(module))
    return report(path, _findings(app, tasks, sources, module))


def _findings(app: Any, tasks: list[CeleryTask], sources: Mapping[str, Source], module: str) -> Iterator[Finding]:
    yield from map(translate, tasks)
    conf = app.conf
    by_name, by_function = {task.name: task for task in tasks}, {task.function: task for task in tasks}
    timezone = str(conf.get("timezone") or "UTC")
    for name, entry in (conf.beat_schedule or {}).items():
        yield entry_finding(name, _plain(entry), by_name, timezone, _place(name, sources, module))
    for source in sources.values():
        if source.broken:
            yield Finding(kind="other", subject="cannot be read", file=source.path, advice=(missing(source.broken),))
        yield from calls(source, by_function)
    yield from setting_findings(_changed(conf))
    yield from _general(tasks)


def _general(tasks: list[CeleryTask]) -> Iterator[Finding]:
    early = [task.name for task in tasks if not task.options.get("acks_late")]
    if early:
        yield Finding(
            kind="other",
            subject="acks_late=False",
            theirs=f"{len(early)} of {len(tasks)} tasks are acknowledged before they run",
            advice=(
                differs(
                    "Celery loses such a task when its worker dies; here it runs again. Make it safe to run twice, or "
                    "let it raise Cancel if ctx.job.deliveries > 1"
                ),
            ),
        )
    if tasks:
        yield Finding(
            kind="other",
            subject="results",
            theirs="result.get() and AsyncResult of variables are not found by this report",
            ours="handle.result(timeout=…)",
            advice=(same("a handler waits for no other job without a timeout; let a workflow hand the result on"),),
        )


# The application


def _loaded(path: str) -> Any:
    app: Any = named(path, "proj.celery:app")
    # Asked of the class: reading app.tasks would finalize an application whose tasks are not imported yet.
    if not all(hasattr(type(app), name) for name in ("tasks", "conf", "finalize")):
        raise usage_error(f"--app {path}: expected a Celery application, found a {type(app).__name__}")
    try:
        app.loader.import_default_modules()
        app.finalize()
    except Exception as error:
        raise broken_import(f"--app {path}", "its tasks", error) from error
    return app


def _module(path: str) -> Any:
    import importlib

    return importlib.import_module(path.partition(":")[0])


def _task(app: Any, task: Any, sources: dict[str, Source]) -> CeleryTask:
    """What a task object says. Celery makes a class for each task; options are attributes of it and of its bases."""
    own = [cls for cls in type(task).__mro__ if not _of_celery(cls)]
    merged: dict[str, Any] = {}
    for cls in reversed(own):
        merged |= vars(cls)
    run = merged.get("run")
    function = inspect.unwrap(getattr(run, "__func__", run)) if run is not None else None
    code = getattr(function, "__code__", None)
    file = code.co_filename if code is not None else ""
    source = sources.setdefault(file, read(file)) if file else None
    line = code.co_firstlineno if code is not None else 0
    node = next((each for each in functions(source.tree) if first_line(each) == line), None) if source else None
    decorated = bool(merged.get("_decorated"))
    return CeleryTask(
        name=task.name,
        function=getattr(function, "__name__", task.name.rpartition(".")[2]) if decorated else type(task).__name__,
        module=task.__module__,
        file=file,
        line=line,
        options={
            name: merged[name]
            for name, default in DEFAULTS.items()
            if name in merged and merged[name] != default and (merged[name] is not None or name == "max_retries")
        },
        bound=not isinstance(run, staticmethod),
        queue=_queue(app, task),
        base=own[1].__name__ if decorated and len(own) > 1 else "" if decorated else type(task).__name__,
        hooks=tuple(hook for hook in HOOKS if hook in merged),
        node=node,
    )


def _of_celery(cls: type) -> bool:
    # Celery also makes an empty base class for each application, in the name of that application's module.
    return (
        cls.__module__.partition(".")[0] in ("celery", "builtins")
        or "from_config" in vars(cls)
        or (cls.__name__ == "Task" and "run" not in vars(cls))
    )


def _queue(app: Any, task: Any) -> str:
    """The queue that Celery's router chooses for a task."""
    routed = app.amqp.router.route({**({"queue": task.queue} if getattr(task, "queue", None) else {})}, task.name)
    queue = routed.get("queue")
    name = str(getattr(queue, "name", queue) or "")
    default = str(app.conf.get("task_default_queue") or DEFAULT_QUEUE)
    return DEFAULT_QUEUE if name in ("", default) else name


def _changed(conf: Any) -> dict[str, Any]:
    """The settings that the application changes, with secrets removed by Celery."""
    table = conf.table(with_defaults=False, censored=True)
    return {key: value for key, value in table.items() if key != "deprecated_settings"}


def _plain(entry: Any) -> Mapping[str, Any]:
    """An entry of beat_schedule: a mapping, or an object with the same names."""
    if isinstance(entry, Mapping):
        return entry
    return {name: getattr(entry, name, None) for name in ("task", "schedule", "args", "kwargs", "options")}


def _place(name: str, sources: Mapping[str, Source], module: str) -> tuple[str, int]:
    """Where an entry of the schedule stands: the first file in which its name is a key or a `name=`."""
    for source in sources.values():
        line = line_of_entry(source.tree, name)
        if line:
            return source.path, line
    return module, 0
