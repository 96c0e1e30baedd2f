"""Results that a reader would not get as they were returned: the job is done, and an event says where."""

import base64
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pydantic
import pytest

from taskharbor import Harbor, JobRequest
from taskharbor.events import Event, ResultChanged
from tests.worker import process_handlers


class Base(pydantic.BaseModel):
    a: int


class More(Base):
    b: str = "hunter2"


class Card(pydantic.BaseModel):
    number: pydantic.SecretStr


@dataclass
class Paid:
    at: datetime


ASTERISKS = pydantic.SecretStr("**********")


def a_subclass() -> Base:
    return More(a=1)


def secrets_by_key() -> dict[str, Card]:
    return {"ada": Card(number=pydantic.SecretStr("hunter2"))}


def a_secret_without_an_annotation() -> Any:
    return [Card(number=pydantic.SecretStr("hunter2"))]


def text_for_bytes() -> bytes:
    return "hunter2g"  # type: ignore[return-value]  # wrong on purpose


def all_of_it() -> Base:
    return Base(a=1)


def its_json_form() -> Any:
    return {"at": datetime(2030, 1, 1, tzinfo=UTC), "pairs": [(1, 2)], "paid": Paid(datetime(2030, 1, 1, tzinfo=UTC))}


def run(function: Any, process: bool = False) -> tuple[Any, list[ResultChanged]]:
    heard: list[Event] = []
    with Harbor("memory://", observers=[heard.append]) as harbor:
        job = harbor.task(name=function.__name__, process=process)(function).enqueue()
        harbor.worker().run(until_empty=True)
        found = job.result()
    return found, [event for event in heard if isinstance(event, ResultChanged)]


@pytest.mark.parametrize(
    ("function", "read", "place", "what"),
    [
        (a_subclass, Base(a=1), "$", "expected Base, got More, whose field 'b' would be lost"),
        (secrets_by_key, {"ada": Card(number=ASTERISKS)}, "$[…].number", "a SecretStr is written as asterisks"),
        (a_secret_without_an_annotation, [{"number": "**********"}], "$[0].number", "a SecretStr is written"),
        (text_for_bytes, base64.b64decode("hunter2g"), "$", "expected bytes, got text"),
    ],
)
def test_a_changed_result_is_stored_and_reported(function: Any, read: Any, place: str, what: str) -> None:
    found, (event,) = run(function)
    assert found == read
    assert (event.job.type, event.place) == (function.__name__, place)
    assert event.what.startswith(what)
    assert "hunter2" not in repr(event)
    assert "ada" not in repr(event)


def test_a_child_process_reports_a_changed_result_too() -> None:
    found, (event,) = run(process_handlers.signed_receipt, process=True)
    assert (found, event.place) == (process_handlers.Receipt(1), "$")
    assert event.what.startswith("expected Receipt, got SignedReceipt")


@pytest.mark.parametrize("function", [all_of_it, its_json_form])
def test_a_result_that_loses_nothing_is_not_reported(function: Any) -> None:
    assert run(function)[1] == []


def test_a_request_by_name_is_refused_if_its_json_lacks_something() -> None:
    with Harbor("memory://") as harbor:
        with pytest.raises(
            TypeError, match=r"pay: payload: a SecretStr is written as asterisks, .* at \$\.card\.number"
        ):
            harbor.client.enqueue(JobRequest(type="pay", payload={"card": Card(number=pydantic.SecretStr("hunter2"))}))
        harbor.client.enqueue(JobRequest(type="pay", payload={"paid": Paid(datetime(2030, 1, 1, tzinfo=UTC))}))
