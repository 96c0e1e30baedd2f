"""Mistakes of people who know another queue, and the errors that help them."""

import copy
import functools
import inspect
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from taskharbor import Exponential, Fixed, Harbor, InvalidJob, JobContext, JobHandle, Task, Worker
from taskharbor.flow import Flow, chain
from taskharbor.policy.retry import Linear
from taskharbor.tasks.migration_hints import OF_FLOWS, OF_HANDLES, OF_HARBORS, OF_OPTIONS, OF_STEPS, OF_TASKS
from taskharbor.tasks.options import KNOWN
from taskharbor.tasks.task import Step


@pytest.fixture
def harbor() -> Any:
    with Harbor("memory://") as harbor:
        yield harbor


def add(x: int, y: int = 1) -> int:
    return x + y


# Names of other queues


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("delay", "a task has no attribute 'delay'; add.enqueue(…) stores a job"),
        ("apply_async", "add.options(delay=…, queue=…).enqueue(…) stores a job"),
        ("map", "harbor.enqueue_many([add.s(…), …]) stores many jobs"),
        ("nothing_like_it", "a task has no attribute 'nothing_like_it'"),
    ],
)
def test_an_attribute_that_tasks_of_other_libraries_have(harbor: Any, name: str, told: str) -> None:
    task = harbor.task(add)
    assert not hasattr(task, name)
    with pytest.raises(AttributeError) as caught:
        getattr(task, name)
    assert str(caught.value).endswith(told)


def test_an_attribute_that_results_of_other_libraries_have(harbor: Any) -> None:
    handle = harbor.task(add).enqueue(1)
    with pytest.raises(AttributeError, match=r"a handle has no attribute 'get'; handle\.result\(timeout=…\)"):
        handle.get()
    assert not hasattr(handle, "__len__")


def test_a_workflow_as_celery_writes_it(harbor: Any) -> None:
    task = harbor.task(add)
    flow: Any = chain(task.s(1))
    with pytest.raises(TypeError, match=r"steps are not joined by \|; write chain\(a\.s\(…\), b\.s\(…\)\)"):
        task.s(1) | task.s(2)
    with pytest.raises(TypeError, match="not joined"):
        flow | task.s(2)
    with pytest.raises(AttributeError, match=r"a chain has no attribute 'apply_async'; flow\.enqueue\(\) stores"):
        flow.apply_async()
    with pytest.raises(AttributeError, match="a workflow has no attribute 'nothing'"):
        _ = flow.nothing


def test_no_hint_hides_a_name_that_is_there() -> None:
    assert OF_TASKS.keys().isdisjoint(dir(Task))
    assert OF_HANDLES.keys().isdisjoint(dir(JobHandle))
    assert OF_HARBORS.keys().isdisjoint(dir(Harbor))
    assert OF_STEPS.keys().isdisjoint(dir(Step))
    assert OF_FLOWS.keys().isdisjoint(dir(Flow))
    assert OF_OPTIONS.keys().isdisjoint(KNOWN)


def test_an_attribute_that_apps_of_other_libraries_have(harbor: Any) -> None:
    told = (
        r"a harbor has no attribute 'enqueue'; a task stores its own jobs: task\.enqueue\(…\); "
        r"harbor\.client\.enqueue\(JobRequest\(type=…, payload=…\)\) stores a job by the name of its task"
    )
    with pytest.raises(AttributeError, match=told):
        harbor.enqueue(add, 1)
    with pytest.raises(AttributeError, match=r"'nothing_like_it'$"):
        harbor.nothing_like_it()
    assert copy.copy(harbor).client is harbor.client


def test_a_step_cannot_be_enqueued_by_itself(harbor: Any) -> None:
    step = harbor.task(add).s(1)
    with pytest.raises(AttributeError, match=r"a step .* add\.enqueue\(…\) stores a job, and chain\(add\.s\(…\)\)"):
        step.delay()
    assert copy.copy(step)._arguments == {"x": 1}


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("delay", "unexpected parameter 'delay'; it is an option: add.options(delay=…).enqueue(…); its signature is"),
        ("queue", "it is an option: add.options(queue=…).enqueue(…)"),
        ("countdown", "unexpected parameter 'countdown'; use delay= (options: add.options(…).enqueue(…))"),
        ("z", "unexpected parameter 'z'; its signature is (x: int, y: int = 1)"),
    ],
)
def test_an_option_among_the_arguments(harbor: Any, option: str, told: str) -> None:
    with pytest.raises(TypeError) as caught:
        harbor.task(add).enqueue(1, **{option: 10})
    assert told in str(caught.value)


def test_an_option_that_tasks_of_other_libraries_have(harbor: Any) -> None:
    with pytest.raises(TypeError, match="unknown option 'max_retries'; use max_attempts=, which counts the first"):
        harbor.task(max_retries=3)(add)
    with pytest.raises(TypeError, match="unknown option 'eta'; use run_at="):
        harbor.task(add).options(eta=3)


# Declaring


def test_a_positional_text_instead_of_a_named_option(harbor: Any) -> None:
    with pytest.raises(TypeError, match=r"@harbor.task\(name='mail'\) or @harbor.task\(queue='mail'\)"):
        harbor.task("mail")


def test_a_method_is_refused_where_it_is_declared(harbor: Any) -> None:
    class Mailer:
        def send(self, to: str) -> None: ...

        @classmethod
        def make(cls) -> None: ...

        @staticmethod
        def static(to: str) -> str:
            return to

        def __call__(self, to: str) -> str:
            return to

    with pytest.raises(
        TypeError, match=r"Mailer.send: expected a function, got a method, which needs its self; declare"
    ):
        harbor.task(Mailer.send)
    with pytest.raises(
        TypeError, match=r"Mailer.make: expected a function, got a method, which needs its cls; declare"
    ):
        harbor.task(Mailer.__dict__["make"])  # as below @harbor.task in the body of the class
    for fits in (Mailer().send, Mailer.make, Mailer.static, Mailer()):
        harbor.task(fits)

    class Static:
        @staticmethod
        @harbor.task(name="static")
        def send(to: str) -> str:
            return to

    assert Static.send("ada") == Static().send("ada") == "ada"

    def self_made(self: int) -> None: ...

    def plain(self) -> None: ...

    harbor.task(self_made)
    harbor.task(plain)


@pytest.mark.parametrize("name", ["ctx", "context"])
def test_a_context_without_its_annotation(harbor: Any, name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def work({name}, x: int): ...", scope)
    with pytest.raises(
        TypeError, match=rf"missing parameter 'x'.*; is '{name}' to receive .* annotate it: {name}: JobC"
    ):
        harbor.task(name="work")(scope["work"]).enqueue(1)

    def works(ctx: JobContext, x: int) -> None: ...

    with pytest.raises(TypeError) as caught:
        harbor.task(works).enqueue()
    assert "JobContext" not in str(caught.value)


@pytest.mark.parametrize("policy", [Exponential, Fixed, Linear, ValueError])
def test_a_retry_policy_class_instead_of_an_instance(harbor: Any, policy: Any) -> None:
    told = rf"retry: expected a policy such as {policy.__name__}\(…\), got the class itself; call it"
    for use in (
        lambda: harbor.task(retry=policy)(add),
        lambda: harbor.task(name="other")(add).options(retry=policy),
        lambda: Worker("memory://", retry=policy),
        lambda: Worker("memory://").register("t", add, retry=policy),
    ):
        with pytest.raises(TypeError, match=told):
            use()
        harbor.tasks.clear()


# A decorator above @harbor.task


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def test_a_decorator_above_harbor_task_is_refused_at_enqueue(harbor: Any) -> None:
    above: Any = logged(harbor.task(add))
    assert above(1) == 2
    for call in (above.enqueue, above.aenqueue, above.options, above.s):
        with pytest.raises(TypeError, match=r"a decorator stands above @harbor.task, .* put @harbor.task on top"):
            call(1)


def test_a_worker_runs_a_decorator_below_harbor_task(harbor: Any) -> None:
    below = harbor.task(name="below")(logged(add))
    handle = below.enqueue(1, y=4)
    harbor.worker().run(until_empty=True)
    assert handle.result() == 5


def test_methods_of_a_task_cannot_be_replaced(harbor: Any) -> None:
    task = harbor.task(add)
    assert Task.enqueue.__doc__
    assert inspect.iscoroutinefunction(task.aenqueue)
    assert task.enqueue.__self__ is task
    with pytest.raises(AttributeError, match=r"Task\.enqueue cannot be replaced"):
        task.enqueue = None


def test_attributes_of_a_function_do_not_hide_those_of_its_task(harbor: Any) -> None:
    def odd() -> int:
        return 1

    vars(odd).update(handler="theirs", _options="theirs", note="theirs", enqueue="theirs")
    task = harbor.task(odd)
    assert task.note == "theirs"
    assert task.enqueue().id


# Payloads and results


def test_a_payload_that_is_too_large_names_its_task(harbor: Any) -> None:
    @harbor.task(name="store")
    def store(text: str) -> None: ...

    with pytest.raises(InvalidJob, match="payload of store: expected at most 1048576 bytes"):
        store.enqueue("x" * 2_000_000)


@pytest.mark.parametrize("process", [False, True])
def test_a_result_that_does_not_fit_its_annotation_is_logged_by_the_worker(
    harbor: Any, caplog: pytest.LogCaptureFixture, process: bool
) -> None:
    task = harbor.task(name="wrong", process=process)(wrong)
    handles = [task.enqueue() for _ in range(2)]
    with caplog.at_level(logging.WARNING, "taskharbor"):
        harbor.worker(concurrency=1).run(until_empty=True)
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith(
        "wrong returns something else than its annotation int says: expected int, got str; the job is"
    )
    assert "canary" not in told
    for handle in handles:
        assert handle.status() == "done"
        with pytest.raises(ValueError, match="cannot be read as int"):
            handle.result()


def wrong() -> int:
    return "canary"  # type: ignore[return-value]  # wrong on purpose


# A notebook


CELLS = """
import sys
from taskharbor import Harbor
from taskharbor.testing import drain

harbor = Harbor("memory://")
cell = '''
@harbor.task
def add(x: int) -> int:
    return x + {0}
'''
exec(cell.format(1))
old = add
exec(cell.format(2))
handles = [old.enqueue(1), add.enqueue(1)]
drain(harbor)
print([handle.result() for handle in handles])
for other in ("harbor.task(name='__main__.add')(lambda x: x)", "harbor.task(name='__main__.add')(print)"):
    try:
        exec(other)
    except ValueError as error:
        print(str(error).split(":")[0])
"""


def test_a_cell_that_is_run_twice_replaces_its_task() -> None:
    """At a prompt; typed into a file, two functions of one name are a mistake."""
    done = subprocess.run([sys.executable, "-c", CELLS], capture_output=True, text=True, timeout=60)
    refused = "two handlers named '__main__.add'"
    assert done.stdout.splitlines() == ["[3, 3]", refused, refused], done.stderr


def test_two_functions_of_one_name_in_a_file_are_refused(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(CELLS)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert "ValueError: two handlers named 'script.add'" in done.stderr
