"""The repr of everything that can hold a secret: made with a canary in every field, and searched for it.

A repr ends up in logs, tracebacks and test reports without a decision. So each class of the package
that has fields is found, an instance is made whose texts all tell the field they stand in, and only fields that are
listed here may show. A new field that shows is a failure until it is listed.
"""

import dataclasses
import enum
import importlib
import inspect
import pkgutil
import re
import sqlite3
import types
import typing
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import msgspec

import taskharbor
from tests.in_django.environment import OF_A_PROJECT

CANARY = "canary"


def classes() -> Iterator[type]:
    """Every class of the package that has fields."""
    for name in modules():
        for value in vars(importlib.import_module(name)).values():
            if inspect.isclass(value) and value.__module__ == name and fields_of(value):
                yield value


def modules() -> list[str]:
    found = (module.name for module in pkgutil.walk_packages(taskharbor.__path__, "taskharbor."))
    return [name for name in found if not name.endswith("__main__") and name not in OF_A_PROJECT]


def fields_of(kind: type) -> tuple[str, ...]:
    """The names of its fields, in the order of its constructor."""
    if issubclass(kind, msgspec.Struct):
        return tuple(kind.__struct_fields__)
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return tuple(kind._fields)
    return ()


def made(kind: type, depth: int = 0) -> Any:
    """An instance, whatever its constructor would say to it."""
    try:
        hints = typing.get_type_hints(kind)
    except NameError:  # names that only a type checker imports
        hints = {}
    values = {}
    for name in fields_of(kind):
        values[name] = value_for(hints.get(name, str), f"{CANARY}-{kind.__name__}.{name}", depth)
    if issubclass(kind, msgspec.Struct | tuple):
        return kind(**values)
    bare = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(bare, name, value)
    return bare


def value_for(hint: Any, canary: str, depth: int) -> Any:
    """A value of about that type; every text in it is the canary."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kept = [each for each in arguments if each is not type(None)]
        return value_for(kept[0], canary, depth)
    if origin is typing.Literal:
        return arguments[0]
    if origin is not None and inspect.isclass(origin):
        if issubclass(origin, Mapping):
            return {"key": value_for(arguments[1] if arguments else str, canary, depth)}
        if issubclass(origin, tuple | Sequence | Set):
            items = [each for each in arguments if each is not ...] or [str]
            return tuple(value_for(each, canary, depth) for each in items)
    if inspect.isclass(hint):
        simple: dict[type, Any] = {int: 7, float: 7.0, bool: True, bytes: canary.encode(), type(None): None}
        simple |= {datetime: datetime(2030, 1, 1, tzinfo=UTC), timedelta: timedelta(seconds=7)}
        if hint in simple:
            return simple[hint]
        if issubclass(hint, enum.Enum):
            return next(iter(hint))
        if issubclass(hint, BaseException):
            return ValueError(canary)
        if hint.__module__.startswith("taskharbor.") and fields_of(hint) and depth < 4:
            return made(hint, depth + 1)
    return canary


def shown(value: object) -> set[str]:
    """Which fields, its own and those of what is in it, the repr of a value shows the text of."""
    return set(re.findall(rf"{CANARY}-(\w+\.\w+)", repr(value)))


NAMES = {
    "app", "base", "cause", "code", "doing", "edges", "end", "error_class", "expected", "fingerprint", "flow",
    "flow_id", "format", "gid", "handover", "heart", "heir", "heir_queue", "host", "hosts", "id", "job_id", "job_type",
    "jobs", "kind", "migrate", "name", "known", "path", "queue", "queues", "schedule", "schema", "script", "state",
    "status",
    "synchronous", "theme", "title", "type", "tasks", "used", "waiting_for", "waits", "where", "worker", "workers",
}  # fmt: skip
"""Fields that name things, in whatever class: nobody's data."""

MAY_SHOW = {
    "BackendOptions.alias": "a name in the settings of Django",
    "BackendOptions.database": "as above",
    "Caller.database": "postgresql or sqlite",
    "CrashFault.differences": "what a test of the user's observed, for its report",
    "CrashPoint.file": "a place in the user's program, as in a traceback",
    "CrashPoint.function": "as above",
    "CrashPoint.how": "as above",
    "CrashReport.task": "the name of a task",
    "EditPreview.problem": "what is wrong with a rule of a schedule",
    "JobContext.deadline": "a moment",
    "JobContext.job": "the record, which hides what is the user's",
    "HarborTask.backend": "a name in the settings of Django",
    "HarborTask.func": "the name of a function",
    "HarborTask.group": "the name of a group",
    "HarborTask.queue_name": "the name of a queue",
    "HarborTask.retry": "a policy: numbers",
    "HarborTask.unrecoverable": "names of classes",
    "Mounting.home": "an address of the application's own",
    "Mounting.home_name": "its title",
    "FlowShape.first": "the type of a job",
    "GraphBox.last": "the name of a step",
    "GraphBox.prefix": "the beginning of such names",
    "KeptPage.late": "names of the parts of a page",
    "Abilities.notes": "sentences about stores, their addresses without what may be secret",
    "QueueRows.capped_states": "names of states",
    "QueueRows.cursor": "the name of a queue",
    "QueueRows.names": "names of queues",
    "AllQueues.names": "names of queues",
    "ItemsPage.cursor": "an id",
    "ItemsPage.items": "values with reprs of their own",
    "Case.needs": "names of parts of the contract",
    "FlowPage.cursor": "an id",
    "FlowQuery.after": "an id",
    "Flows.newest": "True or False",
    "Flows.since": "a time",
    "Flows.until": "a time",
    "WorkerInfo.cut_off": "ids of jobs, and the numbers of their deliveries",
    "DueJob.group": "the name of a group",
    "QueueHead.next": "ids",
    "_Following.groups": "names of groups, ids and moments",
    "_Following.ungrouped": "ids and moments",
    "JobQuery.after": "an id",
    "JobQuery.error_name": "the name of a class",
    "JobQuery.group": "the name of a group",
    "Jobs.error": "the name of a class",
    "Jobs.group": "the name of a group",
    "Jobs.newest": "True or False",
    "Jobs.since": "a time",
    "Jobs.until": "a time",
    "Lookup.ids": "ids and names of queues",
    "Scanned.fits": "0 or 1",
    "Scanned.kept": "a number, or a flow without its jobs",
    "Access.actions": "names of permissions",
    "Access.login": "an address of the application's own",
    "Audit.by": "the name of a person, as the audit shows it",
    "Audit.since": "a time",
    "Audit.until": "a time",
    "AuditEntry.action": "the name of an action",
    "AuditEntry.by": "as Audit.by",
    "AuditEntry.filter": "names, ids and times",
    "AuditEntry.ids": "ids",
    "AuditEntry.options": "numbers",
    "AuditEntry.target": "the name of a queue, or an id",
    "AuditPage.cursor": "a time and an id",
    "AuditQuery.after": "a time and an id",
    "AuditQuery.by": "as Audit.by",
    "DeadKind.row": "as RunOperation.operation",
    "DeadKind.sample": "as RunOperation.operation",
    "Preview.found": "as RunOperation.operation",
    "Preview.notes": "our own words, with names",
    "Preview.sample": "as RunOperation.operation",
    "DeathWatch.make": "a function",
    "DeathWatch.pattern": "of names of tasks",
    "DryRun.action": "the name of an action",
    "FrozenFilter.error": "the name of a class",
    "FrozenFilter.group": "the name of a group",
    "OperationPlan.by": "as Audit.by",
    "OperationProgress.phase": "the name of a phase",
    "OperationProgress.reason": "our own words: no handler runs in a slice",
    "OperationState.canaries": "ids",
    "OperationState.counted_to": "an id",
    "OperationState.cursor": "an id",
    "OperationState.last": "an id",
    "Operator.actions": "has no repr that shows anything",
    "Operator.store": "has a repr of its own",
    "Operator.driver": "as RunOperation.operation",
    "Operator.now": "a time",
    "Selection.command": "the name of a command",
    "Selection.given": "names, ids and times that a person typed",
    "Selection.ids": "ids",
    "Summary.by": "the name of a choice",
    "DueQuery.after": "a time and the name of a schedule",
    "FoundSchedule.problem": "our own words",
    "Rule.cron": "times of the day",
    "Rule.tz": "the name of a time zone",
    "ScheduleInfo.catch_up": "the name of a choice",
    "ScheduleInfo.cron": "times of the day",
    "ScheduleInfo.last_id": "an id",
    "ScheduleInfo.overlap": "the name of a choice",
    "ScheduleInfo.problem": "our own words",
    "ScheduleInfo.tz": "the name of a time zone",
    "SchedulePage.cursor": "the name of a schedule",
    "ScheduleQuery.after": "the name of a schedule",
    "ScheduleQuery.names": "names of schedules",
    "ScheduleRefused.reason": "our own words",
    "Delivery.changed": "fields and types, no keys and no values",
    "ResultChanged.place": "names of fields, no keys",
    "ResultChanged.what": "names of types and fields",
    "Trust.types": "types",
    "StoredSchedule.revision": "a random number",
    "Timing.cron": "times of the day",
    "Timing.tz": "the name of a time zone",
    "BatchItem.error": "a code of the server's",
    "Bind.into": "the name of a parameter",
    "Bind.shape": "numbers and lists",
    "Case.function": "a test",
    "Configuration.errors": "the name of a choice",
    "Case.sentences": "of the contract",
    "CaseResult.text": "of a test on invented jobs",
    "Check.text": "doctor's, which everyone may read",
    "Compiled.returns": "an annotation",
    "RunOperation.operation": "has a repr of its own; only a type checker can name its type",
    "FlowEntry.generation": "a random number",
    "FlowRow.after": "types of jobs",
    "StartFailed.text": "one line for a person, in which addresses were shortened",
    "Field.make": "how a default is made",
    "Greeting.observers": "has no repr that shows anything",
    "FlowRun.handle": "has a repr of its own",
    "HandlerStuck.reason": "our own words",
    "Health.store_error": "what a driver says of a store that is away holds no secret",
    "JobGivenBack.reason": "our own words",
    "JobProgress.note": "what a handler reports about its progress, for every reader",
    "DemoResult.dead": "an id of the demonstration",
    "DemoResult.dsn": "the file of the demonstration",
    "DemoResult.scheduled": "an id of the demonstration",
    "DemoJobs.dead": "a handle, which has a repr of its own",
    "DemoJobs.importing": "as DemoJobs.dead",
    "DemoJobs.later": "as DemoJobs.dead",
    "DemoJobs.killed": "the name of a worker",
    "BulkResult.done": "ids",
    "BulkResult.refused": "ids, and why they were refused",
    "Abilities.store": "an address without what may be secret",
    "RedisOptions.service": "what the sentinels call it",
    "RedisOptions.socket": "a path",
    "Page.cursor": "an id",
    "SupervisorSettings.health_file": "a path",
    "SupervisorSettings.health_host": "a host",
    "SupervisorSettings.reload": "a path",
    "PlannedSpawn.flows": "ids of flows",
    "ProcessKilled.why": "our own words",
    "ProcessReplaced.why": "our own words",
    "ProcessReport.store_error": "as Health's",
    "Diagnosis.hint": "a command to type",
    "Diagnosis.text": "explain's, from which values were taken out",
    "Request.reference": "the name of a function",
    "Redaction.fields": "names that a person typed",
    "Delivery.handler": "has a repr of its own",
    "Delivery.kill": "a function",
    "Delivery.stop_reason": "our own words",
    "Delivery.task": "asyncio's, whose repr shows no arguments",
    "Delivery.transaction": "has no repr that shows anything",
    "Delivery.why": "our own words",
    "RelayRefused.reason": "what is wrong with a row, without what is in it",
    "Situation.declared": "names of tasks",
    "Situation.gone": "ids",
    "Situation.place": "as that of Abilities",
    "Start.context": "has no repr that shows anything",
    "Statement.sql": "without its parameters",
    "SuspectJob.runner": "a process, which has no repr that shows anything",
    "SuspectJob.taker": "the same",
    "SupervisorServing.store": "as that of Abilities",
    "Terms.retry": "a policy",
    "Terms.unrecoverable": "types",
    "ActionRoute.do": "a function",
    "DeadKind.errors": "masked",
    "FigureSeries.span": "a word such as 24h",
    "GivenSource.wanted": "a type",
    "InjectedParameters.parameters": "names of parameters",
    "PageRoute.nav": "an entry of the menu",
    "PageRoute.read": "a function",
    "ListedName.at": "the name of a sorted set",
    "ListedName.member": "a time and the name of a schedule",
    "ListSituation.declared": "names of tasks",
    "ListSituation.paused": "names of queues",
    "WaitWord.word": "one of a few words",
    "Value.tree": "ids in lists",
}


def test_a_repr_shows_only_allowed_fields():
    every = set().union(*(shown(made(kind)) for kind in classes()))
    showing = {name for name in every if name.partition(".")[2] not in NAMES}
    new = sorted(showing - set(MAY_SHOW))
    assert not new, "hide them with taskharbor.model.safe_repr, or say above why every reader may see them"


def test_every_allowance_is_needed():
    """A reason for a field that is gone, or hidden by now, would cover the next one of that name."""
    every = set().union(*(shown(made(kind)) for kind in classes()))
    assert set(MAY_SHOW) <= every
    assert {name.partition(".")[2] for name in every} >= NAMES


# Classes that write their repr themselves

ADDRESS = "postgresql://canary-user:canary-password@127.0.0.1:1/jobs?sslpassword=canary-option"


def speakers() -> Iterator[type]:
    """Every class of the package without fields that has a repr of its own."""
    for name in modules():
        for value in vars(importlib.import_module(name)).values():
            own = inspect.isclass(value) and value.__module__ == name
            if own and "__repr__" in vars(value) and not fields_of(value):
                yield value


def instances() -> Iterator[object]:
    """One of each, holding as many canaries as it can."""
    from prometheus_client import CollectorRegistry

    from taskharbor import Client, Depends, Given, Harbor, JsonCodec
    from taskharbor.cli.target import Target
    from taskharbor.dashboard.sessions import Sessions
    from taskharbor.drivers import JobRecord, open_driver
    from taskharbor.drivers.redis.scripts import Script, ScriptCall
    from taskharbor.events import JobFailed
    from taskharbor.flow import chain
    from taskharbor.flow.handle import FlowHandle
    from taskharbor.observe.log import LogObserver
    from taskharbor.observe.prometheus import PrometheusObserver
    from taskharbor.omniq import PAUSED
    from taskharbor.omniq.values import Job, JobContext
    from taskharbor.ops.access import Access
    from taskharbor.outbox.source import RowSource

    harbor = Harbor(ADDRESS, default_queue="default")

    @harbor.task(name="mail")
    def mail(to: str, secret: object = None) -> None: ...

    changed = mail.options(idempotency_key="canary-key", metadata={"note": "canary-note"})
    yield from (harbor, harbor.client, harbor._store, harbor._store.drivers, harbor.driver, harbor.driver._options)  # type: ignore[attr-defined]  # not in the Protocol
    yield from (Client(ADDRESS), harbor.worker(), mail, changed, mail.handler, JsonCodec(), LogObserver(), PAUSED)
    yield from (changed.s("canary-to", secret={"deep": "canary-deep"}), changed.s("canary-to")._call())
    yield chain(mail.s("canary-to"), mail.s("canary-to"), on_failure=mail.s("canary-to"))
    yield from (harbor.client.handle("j1"), FlowHandle(harbor._store, "f1"), harbor.operation("o1"))
    yield from (harbor.schedules, harbor.flows(newest=True))
    yield from (Depends(dict), Given(), harbor.once(sqlite3.connect(":memory:"), "canary-key"))
    yield RowSource("postgresql://canary-user:canary-password@127.0.0.1:1/shop")
    yield Sessions(monotonic, Access.admin("ada"), token="canary-token-of-a-dashboard-4711")
    yield PrometheusObserver(registry=CollectorRegistry())
    yield JobFailed(JobRecord(id="j1", type="x", payload=b"canary"), "w1", ValueError("canary"), 1.0)
    yield Target(dsn=ADDRESS, driver=None, app="tasks:harbor", output=None)
    yield open_driver("redis://canary-user:canary-password@127.0.0.1:1/0")
    yield Script("name", "return 1")
    yield ScriptCall("settle", outcomes=["canary-payload"])
    job = Job(job_id="j1", payload='"canary-payload"', lock_until_ms=1, attempt=1, gid="", lease_token="canary-token")
    yield JobContext("q", job, "canary-payload")


def test_a_repr_written_by_hand_shows_no_secret():
    met = set()
    for instance in instances():
        met |= set(type(instance).__mro__)
        assert CANARY not in repr(instance), type(instance)
    # That of Django's client is that of the drivers above, once the settings of a project are there.
    lacking = {kind for kind in speakers() if kind not in met and kind.__name__ != "FollowingDrivers"}
    assert not lacking, "make one of each above, with canaries in it"
