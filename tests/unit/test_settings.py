"""The worker's settings: each invalid one is refused at once, with what was expected and what was given."""

import os
import re
from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest

from taskharbor import Worker
from taskharbor.drivers import check_name
from taskharbor.worker.settings import settings


def test_the_defaults():
    made = settings()
    assert (made.queues, made.concurrency, made.lease, made.heartbeat) == (
        ("default",),
        16,
        timedelta(seconds=30),
        10.0,
    )
    assert (made.poll_interval, made.shutdown_timeout, made.max_lost, made.max_attempts) == (1.0, 30.0, 3, 5)
    assert made.heart == "thread"


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("queues", [], "queues: expected at least one queue name, got none"),
        ("queues", [""], "queues: expected 1 to 255 bytes of text, got 0; give it a name"),
        ("queues", ["a{b}"], "queues: expected no control characters and no braces, got '{'; remove it"),
        ("queues", ["a", 5], "queues: expected text, got int"),
        ("concurrency", 0, "concurrency: expected 1 or more, got 0"),
        ("concurrency", -3, "concurrency: expected 1 or more, got -3"),
        ("lease", 0, "lease: expected more than zero seconds, got 0"),
        ("lease", -1, "lease: expected more than zero seconds, got -1"),
        ("lease", float("nan"), "lease: expected at most 36525 days, got nan seconds"),
        ("heartbeat", 0, "heartbeat: expected more than zero seconds, got 0"),
        (
            "heartbeat",
            16,
            "heartbeat: expected at most half the lease (15 s), so that a missed beat loses no job; got 16 s",
        ),
        ("poll_interval", 0, "poll_interval: expected more than zero seconds, got 0"),
        ("shutdown_timeout", -1, "shutdown_timeout: expected zero or more seconds, got -1"),
        ("max_lost", 0, "max_lost: expected 1 or more, got 0"),
        ("max_attempts", 0, "max_attempts: expected 1 or more, got 0"),
        ("name", "a\nb", "name: expected no control characters and no braces, got '\\n'; remove it"),
        ("name", "a" * 256, "name: expected 1 to 255 bytes of text, got 256; shorten it"),
    ],
)
def test_a_value_out_of_bounds_is_a_value_error(option: str, value: Any, said: str):
    with pytest.raises(ValueError, match=f"{re.escape(said)}$"):
        settings(**{option: value})


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("concurrency", 1.5, "concurrency: expected a whole number, got float"),
        ("concurrency", True, "concurrency: expected a whole number, got bool"),
        ("concurrency", "4", "concurrency: expected a whole number, got str"),
        ("max_lost", None, "max_lost: expected a whole number, got NoneType"),
        ("lease", "30", "lease: expected seconds or a timedelta, got str"),
        ("lease", None, "lease: expected seconds or a timedelta, got NoneType"),
        ("heartbeat", "10", "heartbeat: expected seconds or a timedelta, got str"),
        ("poll_interval", None, "poll_interval: expected seconds or a timedelta, got NoneType"),
        ("shutdown_timeout", None, "shutdown_timeout: expected seconds or a timedelta, got NoneType"),
    ],
)
def test_a_value_of_another_type_is_a_type_error(option: str, value: Any, said: str):
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        settings(**{option: value})


def test_a_worker_refuses_when_it_is_made():
    with pytest.raises(ValueError, match="concurrency: expected 1 or more, got 0"):
        Worker("memory://", concurrency=0)
    with pytest.raises(TypeError, match=r"retry: expected a policy such as Exponential\(\) or a function, got int"):
        Worker("memory://", retry=5)  # type: ignore[arg-type]  # wrong on purpose


def test_queues_are_served_once_each_in_the_order_given():
    assert settings(queues=["b", "a", "b"]).queues == ("b", "a")
    assert settings(queues="mail").queues == ("mail",)


def test_the_default_heartbeat_is_a_third_of_the_lease():
    assert settings(lease=timedelta(minutes=1)).heartbeat == 20.0
    assert settings(lease=30, heartbeat=15).heartbeat == 15.0


def test_each_worker_has_a_unique_name():
    first, second = settings(name="mailer").name, settings(name="mailer").name
    assert first != second
    assert first.startswith(f"mailer:{os.getpid()}:")
    check_name(settings(name="a" * 255).name, "worker")
    check_name(settings().name, "worker")


def test_a_long_name_is_cut_by_bytes_and_the_id_stays_within_its_limit() -> None:
    made = settings(name="é" * 127)
    assert len(made.name.encode()) <= 255


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"heart": "foo"}, "heart: expected 'thread' or 'loop', got 'foo'"),
        ({"queues": 5}, "queues: expected queue names"),
    ],
)
def test_a_heart_or_queues_of_the_wrong_type_are_refused(given: dict[str, object], told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        settings(**given)  # type: ignore[arg-type]  # wrong on purpose


def test_a_member_of_a_str_enum_is_a_name() -> None:
    class Queue(StrEnum):
        MAIL = "mail"

    [served] = settings(queues=[Queue.MAIL]).queues
    assert (served, type(served)) == ("mail", str)
