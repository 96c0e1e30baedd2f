"""The signals of the stand-in."""

from celery import Signal

task_failure, worker_process_init = Signal(), Signal()
