"""Handlers that run in child processes, which find them by import."""

import logging

from taskharbor import Fixed, Harbor, JobContext

harbor = Harbor("memory://process_tasks")


@harbor.task(process=True, queue="heavy", max_attempts=2, retry=Fixed(0))
def crunch(ctx: JobContext, fail: bool = False) -> None:
    logging.getLogger("application").info("crunching")
    ctx.log.warning("through the context")
    if fail and ctx.job.attempts == 0:
        raise ValueError("once")
