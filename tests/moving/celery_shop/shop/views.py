"""Where jobs are enqueued: only `--scan` finds this file."""

from datetime import datetime, timezone

from celery.result import AsyncResult

from shop import tasks
from shop.celery import app
from shop.tasks import fetch as download
from shop.tasks import send_mail


def sign_up(user):
    send_mail.delay(user.email, subject="Welcome")
    send_mail.apply_async((user.email,), {"subject": "Later"}, countdown=60, queue="mail", expires=300)
    tasks.resize.apply_async(args=[user.picture], kwargs={"width": 80}, eta=datetime(2030, 1, 1, tzinfo=timezone.utc))
    download.delay("https://example.com").get(timeout=10)
    send_mail.apply_async(args=[user.email], link=tasks.ping.s(), task_id=f"welcome-{user.id}")


async def status(job):
    send_mail.delay("ada@example.com")
    return AsyncResult(job).get()


def stop(job):
    app.control.revoke(job, terminate=True)
    app.control.rate_limit("mail", "1/m")
    app.send_task("mail", args=["ada@example.com"])
