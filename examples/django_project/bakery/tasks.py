"""What the oven does, outside of any request."""

import os
import time

import django

from bakery.models import Order
from taskharbor import JobContext
from taskharbor.django import harbor_options

if django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task

STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "1"))
STEPS = ("mixed", "in the oven", "cooled")


@task(queue_name="oven")
@harbor_options(group="oven", group_limit=2)
def bake(order_id: int, ctx: JobContext) -> str:
    for number, step in enumerate(STEPS, 1):
        time.sleep(STEP_SECONDS)  # here you would do the work
        ctx.progress(number, len(STEPS), step)
        ctx.cancelled.check()
    order = Order.objects.get(pk=order_id)
    order.baked = True
    order.save(update_fields=["baked"])
    return f"a {order.cake} cake"
