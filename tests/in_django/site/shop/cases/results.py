"""What a `TaskResult` says of a job, in every state; contexts, options, signals."""

import pickle
from datetime import datetime, timedelta
from unittest import skipIf

import django
from django.test import TestCase
from django.utils import timezone

from shop import tasks
from shop.api import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    task,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from taskharbor import Harbor, JobDead, Unrecoverable
from taskharbor.django import harbor, harbor_options
from taskharbor.django.results import TaskError, class_path
from taskharbor.django.testing import adrain, drain, enqueued
from taskharbor.testing import ManualClock


class Results(TestCase):
    def test_a_job_that_returns(self) -> None:
        result = tasks.write.enqueue("x")
        self.assertEqual((result.status, result.attempts, result.is_finished), (TaskResultStatus.READY, 0, False))
        drain()
        result.refresh()
        self.assertEqual((result.status, result.return_value, result.errors), (TaskResultStatus.SUCCESSFUL, 1, []))
        self.assertEqual((result.attempts, len(result.worker_ids)), (1, 1))
        self.assertLessEqual(result.enqueued_at, result.started_at)
        self.assertEqual(result.started_at, result.last_attempted_at)
        self.assertLessEqual(result.started_at, result.finished_at)

    def test_every_failed_attempt_has_its_error(self) -> None:
        result = tasks.fail.enqueue("x")
        drain()
        result.refresh()
        self.assertEqual((result.status, result.attempts), (TaskResultStatus.FAILED, 2))
        self.assertEqual([each.exception_class for each in result.errors], [ValueError, ValueError])
        for error in result.errors:
            self.assertTrue(error.traceback.startswith("Traceback (most recent call last):\n  File "), error.traceback)
            self.assertIn("in fail\n", error.traceback)
            self.assertTrue(error.traceback.endswith("\nValueError: no: x\n"), error.traceback)
        self.assertLessEqual(result.started_at, result.last_attempted_at)
        with self.assertRaisesRegex(ValueError, "Task failed"):
            result.return_value  # noqa: B018 - it is a property

    def test_arguments_come_back_as_they_were_given(self) -> None:
        result = tasks.everything.enqueue(1, {"x": [None, 1.5]}, 3, 4, c=5, d=6)
        found = tasks.everything.get_result(result.id)
        self.assertEqual((found.args, found.kwargs), ([1, {"x": [None, 1.5]}, 3, 4], {"c": 5, "d": 6}))
        self.assertEqual(found, result)
        drain()
        result.refresh()
        given = result.return_value["given"]
        self.assertEqual(given, [1, {"x": [None, 1.5]}, [3, 4], 5, {"d": 6}])
        context = result.return_value["context"]
        self.assertEqual(context, [1, "RUNNING", result.args, result.kwargs, True])
        self.assertTrue(result.return_value["same"])

    def test_a_result_that_is_not_json_is_a_failure(self) -> None:
        result = tasks.unfit.using(max_attempts=1).enqueue()
        drain()
        result.refresh()
        self.assertEqual([each.exception_class for each in result.errors], [TypeError])
        self.assertIn("Unsupported type", result.errors[0].traceback)

    def test_every_recorded_class_of_our_own_can_be_imported(self) -> None:
        private = [f"taskharbor.{name}" for name in ("Crashed", "Lost", "ChildDied", "PayloadMismatch", "Refusal")]
        classes = {
            name: TaskError(exception_class_path=class_path(name), traceback="").exception_class
            for name in ("", *private, "taskharbor.Unrecoverable", "KeyError")
        }
        self.assertEqual(classes.pop("KeyError"), KeyError)
        self.assertEqual(classes.pop("taskharbor.Unrecoverable"), Unrecoverable)
        self.assertEqual(set(classes.values()), {JobDead})

    def test_cancelled_and_snoozed(self) -> None:
        gone, waits = tasks.cancelled.enqueue(), tasks.later.enqueue()
        drain()
        gone.refresh()
        waits.refresh()
        self.assertEqual(gone.status, TaskResultStatus.FAILED)
        self.assertEqual([each.exception_class_path for each in gone.errors], ["taskharbor.JobCancelled"])
        self.assertIn("changed its mind", gone.errors[0].traceback)
        self.assertEqual((waits.status, waits.attempts, waits.errors), (TaskResultStatus.READY, 1, []))
        operator = tasks.write.enqueue("x")
        harbor.job(operator.id).cancel()
        operator.refresh()
        self.assertEqual((operator.status, len(operator.errors)), (TaskResultStatus.FAILED, 1))

    def test_priority_queue_and_moment(self) -> None:
        soon = timezone.now() + timedelta(hours=1)
        result = tasks.write.using(priority=-100, queue_name="mail", run_after=soon).enqueue("x")
        info = harbor.job(result.id).info()
        self.assertEqual((info.job.priority, info.job.queue, info.state), (-100, "mail", "scheduled"))
        found = tasks.write.get_result(result.id)
        self.assertEqual((found.task.priority, found.task.queue_name, found.status), (-100, "mail", "READY"))
        self.assertAlmostEqual(found.task.run_after, soon, delta=timedelta(milliseconds=1))
        self.assertEqual(drain(), 0)
        order = [tasks.write.using(priority=each).enqueue(str(each)) for each in (-100, 100, 0)]
        drain()
        for each in order:
            each.refresh()
        self.assertEqual([each.return_value for each in order], [3, 1, 2])

    def test_a_naive_moment_counts_in_the_time_zone_of_the_project(self) -> None:
        with self.settings(USE_TZ=False, TIME_ZONE="Europe/Zurich"):
            result = tasks.write.using(run_after=datetime(2050, 1, 1)).enqueue("x")  # noqa: DTZ001 - a naive one is meant
        self.assertEqual(harbor.job(result.id).info().job.run_at.isoformat(), "2049-12-31T23:00:00+00:00")

    def test_ids_of_others(self) -> None:
        with self.assertRaises(TaskResultDoesNotExist):
            tasks.write.get_result("01J00000000000000000000000")
        with self.assertRaises(TaskResultDoesNotExist):
            tasks.write.get_result("no\x00id{")
        with self.assertRaises(TaskResultMismatch):
            tasks.write.get_result(tasks.cancelled.enqueue().id)
        with self.assertRaisesRegex(TaskResultMismatch, "no @task in an imported module declares"):
            tasks.write.get_result(tasks.plain.enqueue(1).id)

    def test_nothing_is_imported_because_a_job_names_it(self) -> None:
        from taskharbor import JobRequest

        job = harbor.client.enqueue(JobRequest(type="os.getpid", payload={}))
        drain()
        self.assertEqual(job.info().job.attempts, 0)
        self.assertEqual(job.status(), "scheduled")  # no worker knows its type: it waits for one that does

    def test_a_clock_moves_the_time(self) -> None:
        result = tasks.later.enqueue()
        clock = ManualClock(timezone.now())
        self.assertEqual([drain(clock=clock), drain(clock=clock)], [1, 0])
        clock.advance(3600)
        self.assertEqual(drain(clock=clock), 1)
        result.refresh()
        self.assertEqual(result.attempts, 2)
        self.assertEqual(drain(), 0)  # by the time of the store again

    async def test_awaited(self) -> None:
        result = await tasks.write_async.aenqueue("x")
        again = await tasks.write.aenqueue("y")
        self.assertEqual(await adrain(), 2)
        await result.arefresh()
        await again.arefresh()
        self.assertEqual({result.return_value, again.return_value}, {1, 2})
        self.assertEqual(await tasks.write_async.aget_result(result.id), result)

    def test_a_job_enqueues_another(self) -> None:
        result = tasks.enqueue_write.enqueue("x")
        self.assertEqual(drain(), 2)
        result.refresh()
        self.assertEqual(tasks.write.get_result(result.return_value).return_value, 1)

    def test_a_task_of_the_harbor_and_one_with_a_process(self) -> None:
        job, result = tasks.plain.enqueue(41), tasks.in_a_child.enqueue("x")
        self.assertEqual(len(enqueued(tasks.plain, number=41)), 1)
        with self.assertRaisesRegex(TypeError, "has no parameter numbr"):
            enqueued(tasks.plain, numbr=41)
        with self.assertRaisesRegex(ValueError, "no harbor of TASKS declares 'elsewhere'"):
            enqueued(Harbor("memory://").task(name="elsewhere")(abs))
        self.assertEqual(drain(), 2)  # in this process: a child could not see the transaction
        result.refresh()
        self.assertIn(job.result(1), (41, 42))
        self.assertEqual(result.return_value[1], 1)


class Options(TestCase):
    def test_by_decorator_and_by_call(self) -> None:
        job = harbor.job(tasks.fail.enqueue("x").id).info().job
        self.assertEqual((job.max_attempts, job.timeout, job.group), (2, timedelta(seconds=30), "post"))
        self.assertEqual(set(job.metadata), {"django.positional"})
        changed = tasks.fail.using(max_attempts=9, group="g", group_limit=2, metadata={"trace": "1"}, priority=3)
        job = harbor.job(changed.enqueue("x").id).info().job
        self.assertEqual((job.max_attempts, job.group, job.group_limit, job.priority), (9, "g", 2, 3))
        self.assertEqual(job.metadata["trace"], "1")

    @skipIf(django.VERSION[:2] == (6, 0), "@task of Django 6.0 takes no options of a backend")
    def test_by_the_decorator_of_django(self) -> None:
        made = task(max_attempts=4, timeout=5)(tasks.backend_pid.func)
        self.assertEqual((made.max_attempts, made.timeout), (4, 5))
        with self.assertRaises(TypeError):
            task(max_attemts=4)(tasks.backend_pid.func)

    def test_wrong_ones(self) -> None:
        with self.assertRaisesRegex(TypeError, "did you mean 'max_attempts'"):
            harbor_options(max_attemps=3)
        with self.assertRaisesRegex(TypeError, "queue_name"):
            harbor_options(queue="mail")
        with self.assertRaisesRegex(TypeError, "below @task"):
            harbor_options(max_attempts=3)(tasks.write)
        with self.assertRaisesRegex(InvalidTask, "max_attempts: expected 1 or more"):
            tasks.write.using(max_attempts=0)
        with self.assertRaises(InvalidTask):
            tasks.write.using(queue_name="nobody serves it")

    def test_flags(self) -> None:
        backend = task_backends["default"]
        for flag in ("defer", "async_task", "get_result", "priority"):
            self.assertTrue(getattr(backend, f"supports_{flag}"))

    @skipIf(django.VERSION < (6, 1), "tasks are pickled since Django 6.1")
    def test_pickled(self) -> None:
        made = tasks.fail.using(priority=9, idempotency_key="k")
        self.assertEqual(pickle.loads(pickle.dumps(made)), made)


class Signals(TestCase):
    def setUp(self) -> None:
        self.seen: list[tuple[str, str, int]] = []
        for signal in (task_enqueued, task_started, task_finished):
            signal.connect(self.note)
            self.addCleanup(signal.disconnect, self.note)

    def note(self, sender: type, signal: object, task_result: object, **_: object) -> None:
        name = {id(task_enqueued): "enqueued", id(task_started): "started"}.get(id(signal), "finished")
        self.assertIs(sender, type(task_backends["default"]))
        self.seen.append((name, str(task_result.status), len(task_result.errors)))

    def test_they_come_in_order_and_after_the_commit(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            tasks.write.enqueue("x")
            self.assertEqual(self.seen, [])
        drain()
        self.assertEqual(
            self.seen, [("enqueued", "READY", 0), ("started", "RUNNING", 0), ("finished", "SUCCESSFUL", 0)]
        )

    def test_a_failure_that_is_retried_is_not_the_end(self) -> None:
        tasks.fail.enqueue("x")
        drain()
        self.assertEqual(self.seen, [("started", "RUNNING", 0), ("started", "RUNNING", 1), ("finished", "FAILED", 2)])

    async def test_of_a_coroutine(self) -> None:
        await tasks.write_async.aenqueue("x")
        await adrain()
        self.assertEqual([name for name, *_ in self.seen], ["started", "finished"])
