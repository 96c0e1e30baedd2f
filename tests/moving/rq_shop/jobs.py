"""RQ as projects use it: functions, a decorated one, and calls that name their options."""

from datetime import datetime, timedelta, timezone

from redis import Redis
from rq import Queue, Retry, Worker, get_current_job
from rq.cron import register
from rq.decorators import job
from rq.job import Job
from rq.registry import FailedJobRegistry

redis = Redis()
queue = Queue(connection=redis)
mail = Queue("mail", connection=redis)


def send(to, subject="Hello"):
    return get_current_job().id


@job("pictures", connection=redis, timeout=30, result_ttl=60)
def resize(path: str) -> str:
    return path


def checkout(user):
    first = queue.enqueue(send, user.email, subject="Welcome")
    mail.enqueue(send, user.email, job_timeout=30, retry=Retry(max=3, interval=10), depends_on=first, ttl=60)
    mail.enqueue_in(timedelta(minutes=5), send, user.email, retry=Retry(max=2, interval=[10, 60]))
    mail.enqueue_at(datetime(2030, 1, 1, tzinfo=timezone.utc), send, user.email, job_id=f"mail-{user.id}")
    queue.enqueue_call(func=send, args=(user.email,), at_front=True)
    queue.enqueue("jobs.send", user.email, on_failure=None)
    resize.delay(user.picture)


async def view(user):
    return queue.enqueue(send, user.email)


def mend(id):
    Job.fetch(id, connection=redis).requeue()
    return FailedJobRegistry(queue=queue)


register(send, queue_name="mail", cron="0 9 * * *")

if __name__ == "__main__":
    Worker([queue], connection=redis).work(with_scheduler=True)
