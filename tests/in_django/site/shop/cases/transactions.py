"""Jobs are stored with the caller's writes, or not at all: nested blocks, savepoints, requests, two databases."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, connections, transaction
from django.test import TestCase, TransactionTestCase, override_settings

from shop.api import task_enqueued
from shop.models import Note
from shop.tasks import plain, write
from taskharbor.django.connections import borrowed, lend
from taskharbor.django.testing import drain, enqueued


@contextmanager
def undone() -> Iterator[None]:
    """A block whose exception rolls it back, and goes no further."""
    try:
        yield
        raise KeyError("undo")
    except KeyError:
        pass


def texts() -> list[str]:
    return [result.args[0] for result in enqueued(write)]


class Rollbacks:
    """The matrix. On a real transaction, and inside that of a TestCase."""

    def test_a_block_that_commits(self) -> None:
        with transaction.atomic():
            write.enqueue("kept")
            plain.enqueue(1)
        self.assertEqual((texts(), len(enqueued(plain))), (["kept"], 1))

    def test_a_block_that_is_rolled_back(self) -> None:
        with undone(), transaction.atomic():
            write.enqueue("gone")
            plain.enqueue(1)
            Note.objects.create(text="gone")
            raise KeyError
        self.assertEqual((texts(), enqueued(plain), Note.objects.count()), ([], [], 0))

    def test_an_inner_block_alone_is_rolled_back(self) -> None:
        with transaction.atomic():
            write.enqueue("outer")
            with undone(), transaction.atomic():
                write.enqueue("inner")
                raise KeyError
            write.enqueue("after")
        self.assertEqual(texts(), ["outer", "after"])

    def test_an_outer_block_undoes_an_inner_one(self) -> None:
        with undone(), transaction.atomic():
            with transaction.atomic():
                write.enqueue("inner")
            raise KeyError
        self.assertEqual(texts(), [])

    def test_savepoints(self) -> None:
        with transaction.atomic():
            write.enqueue("before")
            place = transaction.savepoint()
            write.enqueue("undone")
            transaction.savepoint_rollback(place)
            place = transaction.savepoint()
            write.enqueue("kept")
            transaction.savepoint_commit(place)
        self.assertEqual(texts(), ["before", "kept"])

    def test_a_block_that_is_marked_for_rollback(self) -> None:
        with transaction.atomic():
            write.enqueue("gone")
            transaction.set_rollback(True)
        self.assertEqual(texts(), [])

    def test_a_wrong_call_leaves_the_transaction_usable(self) -> None:
        with transaction.atomic():
            with self.assertRaisesRegex(TypeError, "missing parameter 'text'"):
                write.enqueue()
            with self.assertRaisesRegex(TypeError, "Unsupported type"):
                write.enqueue(object())
            Note.objects.create(text="kept")
        self.assertEqual((texts(), Note.objects.count()), ([], 1))

    def test_a_result_is_seen_inside_its_transaction(self) -> None:
        with transaction.atomic():
            result = write.enqueue("x")
            self.assertEqual(write.get_result(result.id), result)

    def test_an_idempotency_key_inside_one_transaction(self) -> None:
        with transaction.atomic():
            first = write.using(idempotency_key="k").enqueue("x")
            second = write.using(idempotency_key="k").enqueue("x")
        self.assertEqual((first.id, len(texts())), (second.id, 1))

    def test_two_databases(self) -> None:
        with undone(), transaction.atomic(using="other"):
            write.enqueue("kept")
            write.using(backend="second").enqueue("gone")
            raise KeyError
        with undone(), transaction.atomic():
            write.enqueue("gone")
            write.using(backend="second").enqueue("kept")
            raise KeyError
        self.assertEqual(texts(), ["kept"])
        self.assertEqual([each.args for each in enqueued(write.using(backend="second"))], [["kept"]])
        self.assertEqual((drain("second"), drain()), (1, 1))


class InATest(Rollbacks, TestCase):
    databases = {"default", "other"}


class Committed(Rollbacks, TransactionTestCase):
    databases = {"default", "other"}

    def test_outside_of_a_block_it_is_stored_at_once(self) -> None:
        self.assertFalse(connection.in_atomic_block)
        write.enqueue("alone")
        plain.enqueue(1)
        self.assertFalse(connection.in_atomic_block)
        self.assertEqual((texts(), len(enqueued(plain))), (["alone"], 1))

    def test_a_request_is_one_transaction_if_the_settings_say_so(self) -> None:
        self.client.raise_request_exception = False
        connection.settings_dict["ATOMIC_REQUESTS"] = True
        self.addCleanup(connection.settings_dict.update, ATOMIC_REQUESTS=False)
        self.assertEqual(self.client.get("/create?fail=1").status_code, 500)
        self.assertEqual((texts(), Note.objects.count()), ([], 0))
        self.assertEqual(self.client.get("/create").status_code, 200)
        self.assertEqual((texts(), Note.objects.count()), (["from the job"], 1))

    def test_without_atomic_requests_each_statement_commits(self) -> None:
        self.client.raise_request_exception = False
        self.client.get("/create?fail=1")
        self.assertEqual((texts(), Note.objects.count()), (["from the job"], 1))

    def test_inside_of_on_commit(self) -> None:
        with transaction.atomic():
            transaction.on_commit(lambda: write.enqueue("after the commit"))
            self.assertEqual(texts(), [])
        self.assertEqual(texts(), ["after the commit"])

    def test_transactions_that_the_program_itself_commits(self) -> None:
        seen: list[str] = []

        def note(task_result: object, **_: object) -> None:
            seen.append(task_result.args[0])

        task_enqueued.connect(note)
        self.addCleanup(task_enqueued.disconnect, note)
        self.addCleanup(transaction.set_autocommit, True)
        transaction.set_autocommit(False)
        write.enqueue("gone")
        transaction.rollback()
        write.enqueue("kept")
        transaction.commit()
        transaction.set_autocommit(True)
        self.assertEqual((texts(), seen), (["kept"], ["gone", "kept"]))  # Django does not say when they commit

    def test_a_handler_in_the_thread_of_the_test_leaves_its_connection_there(self) -> None:
        mine = connections["default"]
        with lend({"default": mine}), borrowed():
            self.assertIs(connections["default"], mine)
        self.assertIs(connections["default"], mine)

    def test_jobs_of_one_test_are_gone_in_the_next(self) -> None:
        self.assertEqual((texts(), enqueued(plain)), ([], []))  # the others have left some


@override_settings(ATOMIC_REQUESTS=False)
class Asynchronous(TransactionTestCase):
    async def test_a_view_that_awaits(self) -> None:
        answer = await self.async_client.get("/create-async")
        self.assertEqual(answer.status_code, 200)
        result = await write.aget_result(answer.json()["id"])
        self.assertEqual(result.args, ["from the job"])
