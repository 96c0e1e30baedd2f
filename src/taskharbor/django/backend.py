"""The backend for Django's tasks: `BACKEND: "taskharbor.django.TaskHarborBackend"`.

Enqueueing is one call of the harbor behind it. Where the store is a database of Django's, that joins the transaction
that is open there; elsewhere it waits for the commit, or does not (`enqueue` in OPTIONS).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async
from django.db import transaction
from django.utils import timezone

from taskharbor.django import registry
from taskharbor.django.address import is_configured, is_manual
from taskharbor.django.api import (
    BaseTaskBackend,
    InvalidTask,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    normalize_json,
    task_enqueued,
)
from taskharbor.django.harbors import DjangoHarbor, harbor_of
from taskharbor.django.results import BACKEND, POSITIONAL, result_of
from taskharbor.django.settings import BackendOptions, read_options
from taskharbor.django.task import HarborTask, options_of, refuse_unknown
from taskharbor.model.errors import JobNotFound, StoreMissing
from taskharbor.model.ids import new_id
from taskharbor.model.job import JobInfo, JobRecord
from taskharbor.model.times import to_ms
from taskharbor.tasks.options import declared as check_options
from taskharbor.tasks.prepare import TaskCall, prepare_all

logger = logging.getLogger("taskharbor.django")


class TaskHarborBackend(BaseTaskBackend):  # type: ignore[misc]  # Django has no types
    """Jobs of Django's tasks in a store of TaskHarbor's."""

    task_class = HarborTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._params = params

    @property
    def harbor_options(self) -> BackendOptions:
        """The checked OPTIONS. Not read when the backend is made: `manage.py check` has to say what is wrong."""
        return read_options(self.alias, self._params)

    @property
    def harbor(self) -> DjangoHarbor:
        """The harbor behind this backend."""
        return harbor_of(self.alias)

    def validate_task(self, task: Any) -> None:
        """InvalidTask unless this backend can run it."""
        super().validate_task(task)
        try:
            refuse_unknown(self.harbor_options.defaults, "defaults")
            check_options({**self.harbor_options.defaults, **options_of(task)}, task.module_path)
        except (TypeError, ValueError) as error:
            raise InvalidTask(str(error)) from error

    def register(self, task: Any) -> registry.DeclaredFunction:
        """Make a task's function known to the workers of this project."""
        try:
            found = registry.declared(task)
            found.on(self.harbor)
        except (TypeError, ValueError) as error:
            raise InvalidTask(str(error)) from error
        return found

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Store a job; its result, which is READY."""
        self.validate_task(task)
        declared = self.register(task)
        args, kwargs = normalize_json(list(args)), normalize_json(dict(kwargs))
        call = self._call(task, declared, args, kwargs)
        result = TaskResult(
            task=task,
            id=call.id,
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        options = self.harbor_options
        if options.database is not None:
            self._store(call, result)
            if is_manual(options.database):
                self._announce(result)
            else:
                transaction.on_commit(partial(self._announce, result), using=options.database)
        elif options.enqueue == "on_commit" and is_configured(options.using):
            transaction.on_commit(partial(self._store_after_commit, call, result), using=options.using)
        else:
            self._store(call, result)
            self._announce(result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The result of a job, by its id."""
        try:
            return self._result_of(self.harbor.job(result_id).info())
        except (JobNotFound, StoreMissing, ValueError) as error:
            raise TaskResultDoesNotExist(result_id) from error

    async def aget_result(self, result_id: str) -> Any:
        """The same, awaited: in the thread of Django's connections."""
        return await sync_to_async(self.get_result, thread_sensitive=True)(result_id)

    def check(self, **kwargs: Any) -> Iterable[Any]:
        """What Django's system checks say of this backend."""
        from taskharbor.django.checks import check_backend

        return check_backend(self.alias)

    def _call(
        self, task: Any, declared: registry.DeclaredFunction, args: list[Any], kwargs: dict[str, Any]
    ) -> TaskCall:
        """The call to store. Its id is made here: the result needs it before the job is stored."""
        own = {**self.harbor_options.defaults, **options_of(task)}
        metadata = dict(own.pop("metadata", {}))
        before = declared.options(self.harbor_options)
        own = {name: value for name, value in own.items() if name not in before or before[name] != value}
        if args:
            metadata[POSITIONAL] = str(len(args))
        if self.alias != declared.task.backend:
            metadata[BACKEND] = self.alias
        options = {**own, "queue": task.queue_name, "priority": int(task.priority), "metadata": metadata}
        if task.run_after is not None:
            naive = timezone.is_naive(task.run_after)
            options["run_at"] = timezone.make_aware(task.run_after) if naive else task.run_after
        step = declared.on(self.harbor).options(**options).s(*args, **kwargs)
        call = step._call()
        return TaskCall(
            call.type, call.payload, call.options, call.returns, new_id(to_ms(self.harbor.clock.now())), call.signature
        )

    def _store(self, call: TaskCall, result: Any) -> None:
        store = self.harbor._store
        records: list[JobRecord] = []

        def prepared(now: datetime) -> list[JobRecord]:
            records[:] = prepare_all([call], store.default_queue, now)
            return records

        (stored,) = store.enqueue(prepared, None, "task.enqueue")
        object.__setattr__(result, "enqueued_at", records[0].created_at)
        if stored.id != result.id:  # its idempotency key is known: this is the job that was there
            object.__setattr__(result, "id", stored.id)

    def _store_after_commit(self, call: TaskCall, result: Any) -> None:
        try:
            self._store(call, result)
        except Exception as error:
            logger.error(
                "the job %s of %s was not stored after the commit of its transaction: %s",
                result.id,
                call.type,
                type(error).__name__,
            )
            raise
        self._announce(result)

    def _announce(self, result: Any) -> None:
        task_enqueued.send(type(self), task_result=result)

    def _result_of(self, info: JobInfo) -> Any:
        declared = registry.find(info.job.type)
        if declared is None:
            raise TaskResultMismatch(
                f"job {info.job.id} is of type {info.job.type!r}, which no @task in an imported module declares; "
                "import its module"
            )
        return result_of(info, declared, self.alias)
