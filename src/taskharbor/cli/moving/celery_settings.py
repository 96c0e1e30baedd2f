"""The settings that a Celery application changes, and what becomes of each. Only plain numbers are shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from taskharbor.cli.moving.findings import Advice, Finding, differs, missing, same

_OPTION_OF_TASKS = "an option of each task, which the tasks above show"
_JSON = "payloads and results are JSON, by annotations; nothing is ever unpickled"
_WAITS = "not needed: a worker waits for its store, for ever; a call is repeated within call_timeout seconds"

SETTINGS: dict[str, tuple[str, Advice]] = {
    "beat_schedule": ("", same("see the schedules above")),
    "beat_scheduler": ("harbor.schedules", differs("schedules are rows of the store; add, edit and pause them there")),
    "beat_schedule_filename": ("", same("not needed: schedules are rows of the store, and every worker fires them")),
    "broker_connection_retry": ("", same(_WAITS)),
    "broker_connection_retry_on_startup": ("", same(_WAITS)),
    "broker_connection_max_retries": ("", same(_WAITS)),
    "broker_transport_options": (
        "--lease SECONDS",
        differs("visibility_timeout: leases are renewed while a job runs, so a long job needs no long lease"),
    ),
    "broker_url": ("Harbor('…')", same("")),  # see _broker
    "broker_pool_limit": ("", same("not needed: the options of the DSN bound connections")),
    "enable_utc": ("", same("not needed: moments are in UTC, tz= of a schedule names its clocks")),
    "imports": ("--import MODULE", same("or import them in the module of --app")),
    "include": ("--import MODULE", same("or import them in the module of --app")),
    "accept_content": ("", differs(_JSON)),
    "result_accept_content": ("", differs(_JSON)),
    "result_serializer": ("", differs(_JSON)),
    "task_serializer": ("", differs(_JSON)),
    "result_backend": ("", same("not needed: results are kept with the jobs, in the same store")),
    "result_expires": ("retention=… in the DSN", differs("done and cancelled jobs and their results; dead ones stay")),
    "result_extended": ("", same("not needed: a job keeps its arguments, times and worker")),
    "result_persistent": ("", same("not needed: results are as durable as the store")),
    "task_acks_late": ("", same("not needed: a job is always acknowledged after it ran")),
    "task_acks_on_failure_or_timeout": ("", same("not needed: failures are recorded, then retried or dead")),
    "task_always_eager": (
        "taskharbor.testing.drain(harbor)",
        differs("tests store jobs and run them with drain; calling the task just calls its function"),
    ),
    "task_eager_propagates": ("taskharbor.testing.drain(harbor)", differs("handle.result() raises what a job raised")),
    "task_annotations": ("", same(_OPTION_OF_TASKS)),
    "task_compression": ("", missing("payloads are stored as they are; a codec of your own may compress")),
    "task_create_missing_queues": ("Harbor(queues=[…])", differs("a harbor that lists its queues refuses all others")),
    "task_default_priority": ("", same(_OPTION_OF_TASKS)),
    "task_default_queue": ("Harbor(default_queue=…)", same("")),
    "task_default_rate_limit": ("", missing("there are no rate limits; group_limit= bounds how many jobs run at once")),
    "task_ignore_result": ("", same("not needed: a function that returns None stores no result")),
    "task_publish_retry": ("", same(_WAITS)),
    "task_publish_retry_policy": ("Harbor(call_timeout=…)", same("how long a call may take, with all its retries")),
    "task_queues": ("Harbor(queues=[…])", differs("queues have names only; there are no exchanges and bindings")),
    "task_queue_max_priority": ("", same("not needed: every queue has priorities")),
    "task_reject_on_worker_lost": ("", same("not needed: a job whose worker died runs again, three times at most")),
    "task_remote_tracebacks": ("", same("not needed: JobDead.last_error has class, text and frames")),
    "task_routes": ("", same("the queue of each task is among its options above")),
    "task_send_sent_event": ("", same("not needed: JobEnqueued is an event")),
    "task_soft_time_limit": ("", same(_OPTION_OF_TASKS)),
    "task_time_limit": ("", same(_OPTION_OF_TASKS)),
    "task_store_errors_even_if_ignored": ("", same("not needed: errors are kept with the job")),
    "task_track_started": ("", same("not needed: when a job began is kept with it")),
    "timezone": ("tz=… of each schedule", same("")),
    "worker_concurrency": (
        "--processes N --concurrency N",
        differs("a process runs 16 jobs at once, in threads and as coroutines; processes use more cores"),
    ),
    "worker_pool": (
        "--processes N --concurrency N",
        differs("coroutines and plain functions run side by side; process=True gives a function its own process"),
    ),
    "worker_prefetch_multiplier": ("", same("not needed: a worker takes as many jobs as it has free slots")),
    "worker_max_tasks_per_child": ("--max-jobs N", same("")),
    "worker_max_memory_per_child": ("--max-memory SIZE", same("for example 512M; Celery's number is in KiB")),
    "worker_send_task_events": ("", same("not needed: events always reach observers")),
    "worker_cancel_long_running_tasks_on_connection_loss": ("", same("not needed: leases that were lost stop a job")),
    "worker_enable_remote_control": ("", missing("workers take no commands; the store is read and changed instead")),
    "worker_hijack_root_logger": ("", same("not needed: a worker changes no logger of yours")),
    "worker_log_format": ("--log-format", differs("terminal, text or json")),
    "worker_task_log_format": ("--log-format", differs("terminal, text or json; lines of a handler carry its job")),
    "worker_redirect_stdouts": ("", differs("what handlers print goes to stdout")),
}
_SHOWN = (bool, int, float)


def setting_findings(changed: Mapping[str, Any]) -> Iterator[Finding]:
    """A finding for each setting that the application changes."""
    for key in sorted(changed):
        value = changed[key]
        shown = f"{key} = {value!r}" if isinstance(value, _SHOWN) else key
        ours, advice = _broker(value) if key == "broker_url" else SETTINGS.get(key, ("", None))
        if advice is None:
            advice = missing("this report knows nothing about it")
        told = () if not advice.text else (advice,)
        yield Finding(kind="setting", subject=key, theirs=shown, ours=ours, advice=told)


def _broker(value: Any) -> tuple[str, Advice]:
    scheme = str(value).partition("://")[0] if isinstance(value, str) and "://" in value else ""
    if scheme in ("redis", "rediss"):
        return f"Harbor({scheme + '://…'!r})", same("another database number or server than Celery's, while both run")
    return "Harbor('postgresql://…')", differs(
        f"{scheme or 'this broker'} is not a store: jobs are kept in PostgreSQL, Redis or a SQLite file"
    )
