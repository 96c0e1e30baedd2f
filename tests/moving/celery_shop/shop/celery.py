"""A Celery application as projects have it: settings, routes, a schedule, tasks in a module of their own."""

from datetime import timedelta

from celery import Celery
from celery.schedules import crontab

app = Celery("shop", broker="redis://:secret@localhost:6379/0", include=["shop.tasks"])
app.conf.update(
    result_backend="redis://:secret@localhost:6379/1",
    task_serializer="json",
    timezone="Europe/Zurich",
    task_routes={"shop.tasks.resize": {"queue": "pictures"}},
    worker_prefetch_multiplier=1,
    worker_max_tasks_per_child=100,
    task_always_eager=False,
    beat_schedule={
        "nightly": {"task": "shop.tasks.report", "schedule": crontab(minute=30, hour=[2, 14]), "args": ("eu",)},
        "poll": {"task": "shop.tasks.fetch", "schedule": 30.0, "kwargs": {"url": "https://example.com"}},
        "sweep": {
            "task": "shop.tasks.report",
            "schedule": timedelta(minutes=5),
            "options": {"queue": "slow", "expires": 60},
        },
        "payday": {"task": "shop.tasks.report", "schedule": crontab(0, 9, day_of_month="25", day_of_week="fri")},
    },
)


@app.on_after_finalize.connect
def add_more(sender, **kwargs):
    sender.add_periodic_task(3600, sender.tasks["shop.tasks.ping"].s(), name="hourly")
