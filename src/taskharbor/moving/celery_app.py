"""Reading a Celery application: its tasks, its schedule, its settings, and the files of its tasks.

The application's own module imports Celery; nothing here does. What is read is in Celery 5.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from taskharbor.moving.celery_calls import calls
from taskharbor.moving.celery_tasks import DEFAULT_QUEUE, DEFAULTS, CeleryTask, translate
from taskharbor.moving.findings import Advice, Finding, Remarks, Word, words
from taskharbor.moving.source import Source, first_line, functions, line_of_entry, python_files, read

_CRON_FIELDS = ("_orig_minute", "_orig_hour", "_orig_day_of_month", "_orig_month_of_year", "_orig_day_of_week")
_ENTRY_OPTIONS = ("queue", "priority")
_UNKNOWN = Word(missing="this report knows nothing about it")


def celery_findings(app: Any, module_name: str, scan: Iterable[Path]) -> Iterator[Finding]:
    """What is found in an application whose tasks are imported, and in the Python files of `scan`.

    `module_name`: where the application is.
    """
    sources: dict[str, Source] = {}
    objects = [task for name, task in sorted(app.tasks.items()) if not name.startswith("celery.")]
    tasks = [_task(app, task, sources) for task in objects]
    for file in python_files(scan):
        sources.setdefault(str(file), read(file))
    own = getattr(inspect.getmodule(type(app)), "__file__", None)
    module = inspect.getsourcefile(import_module(module_name)) or ""
    if module and module != own:
        sources.setdefault(module, read(module))

    yield from map(translate, tasks)
    by_name, by_function = {task.name: task for task in tasks}, {task.function: task for task in tasks}
    timezone = str(app.conf.get("timezone") or "UTC")
    for name, entry in (app.conf.beat_schedule or {}).items():
        yield _entry(name, entry, by_name, timezone, _place(name, sources, module))
    for source in sources.values():
        yield from calls(source, by_function)
    yield from _settings(app.conf.table(with_defaults=False, censored=True))  # without secrets: Celery removes them
    yield from _general(tasks)


def _general(tasks: list[CeleryTask]) -> Iterator[Finding]:
    early = [task.name for task in tasks if not task.options.get("acks_late")]
    if early:
        text = (
            "Celery loses such a task when its worker dies; here it runs again. Make it safe to run twice, or let it "
            "raise Cancel if ctx.job.deliveries > 1"
        )
        theirs = f"{len(early)} of {len(tasks)} tasks are acknowledged before they run"
        yield Finding(kind="other", subject="acks_late=False", theirs=theirs, advice=(Advice("differs", text),))
    if tasks:
        yield Finding(
            kind="other",
            subject="results",
            theirs="result.get() and AsyncResult of variables are not found by this report",
            ours="handle.result(timeout=…)",
            advice=(
                Advice("same", "a handler waits for no other job without a timeout; let a workflow hand the result on"),
            ),
        )


# The application


def _task(app: Any, task: Any, sources: dict[str, Source]) -> CeleryTask:
    """What a task object says. Celery makes a class for each task; options are attributes of it and of its bases."""
    own = [cls for cls in type(task).__mro__ if not _of_celery(cls)]
    merged: dict[str, Any] = {}
    for cls in reversed(own):
        merged |= vars(cls)
    run = merged.get("run")
    function = inspect.unwrap(getattr(run, "__func__", run)) if run is not None else None
    code = getattr(function, "__code__", None)
    file, line = (code.co_filename, code.co_firstlineno) if code is not None else ("", 0)
    source = sources.setdefault(file, read(file)) if file else None
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
        hooks=tuple(hook for hook in words("celery")["hooks"] if hook in merged),
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
    queue = getattr(task, "queue", None)
    routed = app.amqp.router.route({"queue": queue} if queue else {}, task.name).get("queue")
    name = str(getattr(routed, "name", routed) or "")
    default = str(app.conf.get("task_default_queue") or DEFAULT_QUEUE)
    return DEFAULT_QUEUE if name in ("", default) else name


# The schedule


def _place(name: str, sources: Mapping[str, Source], module: str) -> tuple[str, int]:
    """Where an entry of the schedule stands: the first file in which its name is a key or a `name=`."""
    for source in sources.values():
        line = line_of_entry(source.tree, name)
        if line:
            return source.path, line
    return module, 0


def _entry(name: str, entry: Any, tasks: Mapping[str, CeleryTask], timezone: str, place: tuple[str, int]) -> Finding:
    """The `harbor.schedule(…)` for an entry of `beat_schedule`. `tasks`: by their full names."""
    if not isinstance(entry, Mapping):  # an object with the same names
        entry = {key: getattr(entry, key, None) for key in ("task", "schedule", "args", "kwargs", "options")}
    advice = Remarks()
    when = _when(entry.get("schedule"), timezone, advice)
    path = str(entry.get("task", ""))
    task = tasks.get(path)
    if task is None:
        advice.missing(f"the application has no task {path!r}")
    function = task.function if task is not None else path.rpartition(".")[2] or "task"
    arguments = [repr(each) for each in entry.get("args") or ()]
    arguments += [f"{key}={value!r}" for key, value in (entry.get("kwargs") or {}).items()]
    options = dict(entry.get("options") or {})
    kept = ", ".join(f"{key}={options.pop(key)!r}" for key in _ENTRY_OPTIONS if key in options)
    for key, value in options.items():
        if key == "expires":
            advice.differs(f"{key}={value!r}: a slot that came late follows catch_up=")
        else:
            advice.missing(f"{key}={value!r}: there is no such option")
    if entry.get("relative"):
        advice.same("relative: not needed: slots do not move when a job is late")
    step = f"{function}.options({kept}).s" if kept else f"{function}.s"
    return Finding(
        kind="schedule",
        subject=name,
        file=place[0],
        line=place[1],
        theirs=f"{name!r}: {path}, {entry.get('schedule')!r}",
        ours=f"harbor.schedule({name!r}, {step}({', '.join(arguments)}), {when})" if when is not None else "",
        advice=tuple(advice),
    )


def _when(schedule: Any, timezone: str, advice: Remarks) -> str | None:
    """The options that say when; None: they cannot be translated."""
    if hasattr(schedule, "_orig_minute"):
        return _cron(schedule, timezone, advice)
    every = getattr(schedule, "run_every", schedule)
    seconds = every.total_seconds() if isinstance(every, timedelta) else every
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        advice.missing(f"{type(schedule).__name__}: schedules are cron expressions and intervals")
        return None
    if seconds < 1:
        advice.missing(f"every {seconds:g} s: an interval is at least one second")
        return None
    advice.differs("the sequence begins when the schedule is stored; start_at= chooses its first moment")
    return f"every={seconds:g}"


def _cron(schedule: Any, timezone: str, advice: Remarks) -> str | None:
    from taskharbor.policy.cron import parse_cron

    values = [getattr(schedule, name) for name in _CRON_FIELDS]  # each a text, a number, or several numbers
    fields = [
        ",".join(map(str, sorted(value)))
        if isinstance(value, list | tuple | set | frozenset)
        else str(value).replace(" ", "")
        for value in values
    ]
    expression = " ".join(fields)
    try:
        parse_cron(expression)
    except ValueError as error:
        advice.missing(f"crontab: {error}")
        return None
    if not fields[2].startswith("*") and not fields[4].startswith("*"):
        advice.differs("Celery wants the day of the month and that of the week to match; here one of them is enough")
    zone = "" if timezone in ("UTC", "") else f", tz={timezone!r}"
    return f"cron={expression!r}{zone}"


# The settings


def _settings(changed: Mapping[str, Any]) -> Iterator[Finding]:
    """A finding for each setting that the application changes. Only plain numbers are shown."""
    known = words("celery")["settings"]
    for key in sorted(changed.keys() - {"deprecated_settings"}):
        value = changed[key]
        word = _broker(value) if key == "broker_url" else known.get(key, _UNKNOWN)
        theirs = f"{key} = {value!r}" if isinstance(value, bool | int | float) else key
        yield Finding(kind="setting", subject=key, theirs=theirs, ours=word.ours, advice=tuple(word.advice()))


def _broker(value: Any) -> Word:
    scheme = str(value).partition("://")[0] if isinstance(value, str) and "://" in value else ""
    if scheme in ("redis", "rediss"):
        return Word(f"Harbor('{scheme}://…')", same="another database number or server than Celery's, while both run")
    return Word(
        "Harbor('postgresql://…')",
        differs=f"{scheme or 'this broker'} is not a store: jobs are kept in PostgreSQL, Redis or a SQLite file",
    )
