"""Jobs in a store that no transaction of Django's reaches: stored after the commit, or at once."""

from unittest import mock

from django.db import transaction
from django.test import TestCase, TransactionTestCase

from shop.api import TaskResultDoesNotExist, TaskResultStatus, task_enqueued
from shop.models import Note
from shop.tasks import plain, write
from taskharbor.django import harbor
from taskharbor.django.testing import drain, enqueued


class AfterTheCommit(TransactionTestCase):
    def setUp(self) -> None:
        for info in harbor.jobs():
            harbor.job(info.job.id).delete()

    def test_a_commit_stores_it(self) -> None:
        seen: list[str] = []

        def note(task_result: object, **_: object) -> None:
            seen.append(task_result.id)

        task_enqueued.connect(note)
        self.addCleanup(task_enqueued.disconnect, note)
        with transaction.atomic():
            result = write.enqueue("x")
            with transaction.atomic():
                inner = write.enqueue("y")
            self.assertEqual((enqueued(write), seen), ([], []))
            with self.assertRaises(TaskResultDoesNotExist):
                write.get_result(result.id)
        self.assertEqual([each.id for each in enqueued(write)], [result.id, inner.id])
        self.assertEqual(seen, [result.id, inner.id])
        self.assertEqual(write.get_result(result.id), result)
        self.assertEqual(drain(), 2)
        self.assertEqual(Note.objects.count(), 2)

    def test_a_rollback_forgets_it(self) -> None:
        try:
            with transaction.atomic():
                write.enqueue("outer")
                try:
                    with transaction.atomic():
                        write.enqueue("inner")
                        raise KeyError
                except KeyError:
                    write.enqueue("after")
                raise KeyError
        except KeyError:
            pass
        self.assertEqual(enqueued(write), [])

    def test_a_savepoint_alone(self) -> None:
        with transaction.atomic():
            write.enqueue("outer")
            try:
                with transaction.atomic():
                    write.enqueue("inner")
                    raise KeyError
            except KeyError:
                pass
        self.assertEqual([each.args for each in enqueued(write)], [["outer"]])

    def test_without_a_transaction_it_is_stored_at_once(self) -> None:
        result = write.enqueue("x")
        self.assertEqual(write.get_result(result.id), result)

    def test_now_means_now(self) -> None:
        try:
            with transaction.atomic():
                result = write.using(backend="now").enqueue("x")
                raise KeyError
        except KeyError:
            pass
        self.assertEqual(write.using(backend="now").get_result(result.id).status, TaskResultStatus.READY)

    def test_a_store_that_fails_after_the_commit_is_an_error_with_the_id(self) -> None:
        failing = mock.patch.object(harbor._store, "enqueue", side_effect=ConnectionError("secret-in-its-text"))
        with self.assertLogs("taskharbor.django", "ERROR") as logs, self.assertRaises(ConnectionError), failing:
            with transaction.atomic():
                result = write.enqueue("x")
        self.assertIn(result.id, logs.output[0])
        self.assertNotIn("secret", logs.output[0])

    def test_a_key_that_is_known_gives_the_job_that_was_there(self) -> None:
        first = write.using(idempotency_key="k").enqueue("x")
        with transaction.atomic():
            second = write.using(idempotency_key="k").enqueue("x")
        self.assertEqual(second.id, first.id)


class InATest(TestCase):
    def test_the_handlers_use_the_connection_of_the_test(self) -> None:
        for info in harbor.jobs():
            harbor.job(info.job.id).delete()
        Note.objects.create(text="only this test sees it")
        with self.captureOnCommitCallbacks(execute=True):
            result = write.enqueue("x")
        job = plain.enqueue(1)  # not a task of Django's: stored at once
        self.assertEqual(drain(), 2)
        result.refresh()
        self.assertEqual((result.return_value, Note.objects.count()), (2, 2))
        self.assertIn(job.result(1), (2, 3))

    async def test_awaited(self) -> None:
        result = await write.using(backend="now").aenqueue("x")
        self.assertEqual((await write.using(backend="now").aget_result(result.id)).args, ["x"])
