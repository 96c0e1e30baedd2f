"""Tests as a project would have them: no worker beside them, everything in the transaction of the test."""

from django.test import TestCase

from bakery import tasks
from bakery.models import Order
from taskharbor.django.testing import drain, enqueued


class OrderTest(TestCase):
    def setUp(self) -> None:
        tasks.STEP_SECONDS = 0

    def test_an_order_is_baked(self) -> None:
        order = self.client.post("/orders", {"cake": "plum"}).json()["order"]
        [result] = enqueued(tasks.bake, order_id=order)
        self.assertEqual(drain(), 1)
        result.refresh()
        self.assertEqual(result.return_value, "a plum cake")
        self.assertTrue(Order.objects.get(pk=order).baked)

    def test_what_is_not_a_cake_leaves_nothing_behind(self) -> None:
        self.assertEqual(self.client.post("/orders", {"cake": "3.14"}).status_code, 422)
        self.assertEqual((Order.objects.count(), enqueued(tasks.bake)), (0, []))
