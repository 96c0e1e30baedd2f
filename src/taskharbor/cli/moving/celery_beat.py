"""Entries of `beat_schedule`, and the `harbor.schedule(…)` of each."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from taskharbor.cli.moving.celery_tasks import CeleryTask
from taskharbor.cli.moving.findings import Advice, Finding, differs, missing, same

_FIELDS = ("_orig_minute", "_orig_hour", "_orig_day_of_month", "_orig_month_of_year", "_orig_day_of_week")
_OPTIONS = ("queue", "priority")


def translate_entry(
    name: str, entry: Mapping[str, Any], tasks: Mapping[str, CeleryTask], timezone: str
) -> tuple[str, str, tuple[Advice, ...]]:
    """What an entry says, what to write for it, and what to know. `tasks`: by their full names."""
    advice: list[Advice] = []
    when = _when(entry.get("schedule"), timezone, advice)
    path = str(entry.get("task", ""))
    task = tasks.get(path)
    if task is None:
        advice.append(missing(f"the application has no task {path!r}"))
    function = task.function if task is not None else path.rpartition(".")[2] or "task"
    arguments = [repr(each) for each in entry.get("args") or ()]
    arguments += [f"{key}={value!r}" for key, value in (entry.get("kwargs") or {}).items()]
    options = dict(entry.get("options") or {})
    kept = ", ".join(f"{key}={options.pop(key)!r}" for key in _OPTIONS if key in options)
    for key, value in options.items():
        text = "a slot that came late follows catch_up=" if key == "expires" else "there is no such option"
        advice.append((differs if key == "expires" else missing)(f"{key}={value!r}: {text}"))
    if entry.get("relative"):
        advice.append(same("relative: not needed: slots do not move when a job is late"))
    step = f"{function}.options({kept}).s" if kept else f"{function}.s"
    theirs = f"{name!r}: {path}, {entry.get('schedule')!r}"
    if when is None:
        return theirs, "", tuple(advice)
    return theirs, f"harbor.schedule({name!r}, {step}({', '.join(arguments)}), {when})", tuple(advice)


def entry_finding(
    name: str, entry: Mapping[str, Any], tasks: Mapping[str, CeleryTask], timezone: str, place: tuple[str, int]
) -> Finding:
    """The finding for an entry that stands at `place`."""
    theirs, ours, advice = translate_entry(name, entry, tasks, timezone)
    file, line = place
    return Finding(kind="schedule", subject=name, file=file, line=line, theirs=theirs, ours=ours, advice=advice)


def _when(schedule: Any, timezone: str, advice: list[Advice]) -> str | None:
    """The options that say when; None: they cannot be translated."""
    if hasattr(schedule, "_orig_minute"):
        return _cron(schedule, timezone, advice)
    every = getattr(schedule, "run_every", schedule)
    seconds = every.total_seconds() if isinstance(every, timedelta) else every
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        advice.append(missing(f"{type(schedule).__name__}: schedules are cron expressions and intervals"))
        return None
    if seconds < 1:
        advice.append(missing(f"every {seconds:g} s: an interval is at least one second"))
        return None
    advice.append(differs("the sequence begins when the schedule is stored; start_at= chooses its first moment"))
    return f"every={seconds:g}"


def _field(value: Any) -> str:
    """A field of a crontab, which may be a text, a number, or several numbers."""
    several = isinstance(value, list | tuple | set | frozenset)
    return ",".join(map(str, sorted(value))) if several else str(value).replace(" ", "")


def _cron(schedule: Any, timezone: str, advice: list[Advice]) -> str | None:
    from taskharbor.policy.cron import parse_cron

    fields = [_field(getattr(schedule, name)) for name in _FIELDS]
    expression = " ".join(fields)
    try:
        parse_cron(expression)
    except ValueError as error:
        advice.append(missing(f"crontab: {error}"))
        return None
    if not fields[2].startswith("*") and not fields[4].startswith("*"):
        advice.append(
            differs("Celery wants the day of the month and that of the week to match; here one of them is enough")
        )
    zone = "" if timezone in ("UTC", "") else f", tz={timezone!r}"
    return f"cron={expression!r}{zone}"
