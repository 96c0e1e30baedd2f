"""The tasks of the project, found because the file is named so."""

import os
import signal
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection

from shop.api import TaskContext, task
from shop.models import Note
from taskharbor import Cancel, Fixed, JobContext, Snooze
from taskharbor.django import harbor, harbor_options


@task
def write(text: str) -> int:
    Note.objects.create(text=text)
    return Note.objects.count()


@task
async def write_async(text: str) -> int:
    await Note.objects.acreate(text=text)
    return await Note.objects.acount()


@task(queue_name="mail", priority=7)
@harbor_options(max_attempts=2, timeout=30, retry=Fixed(0), group="post")
def fail(text: str) -> None:
    raise ValueError(f"no: {text}")


@task(takes_context=True)
def everything(
    context: TaskContext, a: Any, /, b: Any = 2, *rest: Any, ctx: JobContext, c: Any = 4, **more: Any
) -> Any:
    result = context.task_result
    return {
        "context": [context.attempt, result.status, result.args, result.kwargs, result.worker_ids == [ctx.worker]],
        "same": result.id == ctx.job.id,
        "given": [a, b, rest, c, more],
    }


@task
def unfit() -> object:
    return object()


@task
@harbor_options(process=True, max_attempts=1)
def in_a_child(text: str) -> list[Any]:
    Note.objects.create(text=text)
    return [os.getpid(), Note.objects.count()]


@task
def cancelled() -> None:
    raise Cancel("changed its mind")


@task
def later() -> None:
    raise Snooze(3600)


@task
def enqueue_write(text: str) -> str:
    found: str = write.enqueue(text).id
    return found


@task
@harbor_options(max_attempts=1)
def backend_pid() -> int:
    return pid_of_connection()


@task
@harbor_options(max_attempts=1)
async def backend_pid_async() -> int:
    return await sync_to_async(pid_of_connection)()


def pid_of_connection() -> int:
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        found: int = cursor.fetchone()[0]
        return found


@task
def die_once(marker: str) -> str:
    """Kills its worker the first time."""
    if not Path(marker).exists():
        Path(marker).write_text("here")
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


@harbor.task(queue="mail")
def plain(number: int) -> int:
    return number + Note.objects.count()
