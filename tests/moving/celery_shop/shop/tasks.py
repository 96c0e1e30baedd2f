"""Tasks with most of the options that projects use."""

from celery import Task, chain, chord, group, shared_task
from celery.exceptions import SoftTimeLimitExceeded
from celery.signals import task_failure, worker_process_init

from shop.celery import app


class Connected(Task):
    """A base class with a hook."""

    def on_failure(self, exc, task_id, args, kwargs, einfo):
        print("failed", task_id)


@app.task
def ping():
    return "pong"


@shared_task(name="mail", bind=True, max_retries=5, default_retry_delay=30, acks_late=True, rate_limit="10/m")
def send_mail(self, to: str, subject: str = "Hello") -> str:
    try:
        return f"{self.request.id}: {to}"
    except OSError as exc:
        raise self.retry(exc=exc, countdown=2**self.request.retries)


@app.task(autoretry_for=(ConnectionError, TimeoutError), retry_backoff=2, retry_backoff_max=120, max_retries=4)
def fetch(url: str) -> str:
    return url


@app.task(autoretry_for=(Exception,), retry_kwargs={"max_retries": 2, "countdown": 5}, ignore_result=True)
def notify(user: int) -> None:
    pass


@app.task(soft_time_limit=50, time_limit=60, base=Connected)
def resize(path, width):
    try:
        return path
    except SoftTimeLimitExceeded:
        return None


@app.task(serializer="pickle", priority=3, expires=600)
def report(region="eu"):
    return region


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def total(numbers: list[int], tax: int = 0) -> int:
    return sum(numbers) + tax


@worker_process_init.connect
def open_pool(**kwargs):
    pass


@task_failure.connect
def tell(sender=None, **kwargs):
    pass


def checkout():
    chain(add.s(1, 2), add.s(3), total.si([1, 2])).apply_async(countdown=10)
    chord((add.s(n, n) for n in range(3)), total.s(7)).delay()
    group(add.s(1, 1), add.s(2, 2))()
    (add.s(1, 2) | add.s(4)).apply_async()
    chord(add.s(n, n) for n in range(3))(total.s(tax=1))
    add.s(1, 2).apply_async(queue="slow")
    add.s(1, 2)()


class Sweep(Task):
    """A class, as older programs have them."""

    name = "sweep"
    max_retries = None

    def run(self, days: int) -> None:
        raise self.retry(countdown=3600)


app.register_task(Sweep())
