"""What a call carries to its worker: its own retry policy, unrecoverable errors and name."""

from datetime import timedelta
from typing import Any

import pytest

from taskharbor import Exponential, Fixed, Harbor, Linear
from taskharbor.events import PolicyFailed
from taskharbor.policy.retry import read_retry, write_retry
from taskharbor.testing import ManualClock, drain
from tests.worker.workbench import Bench, bench_test, job


def info(harbor: Harbor, id: str) -> Any:
    import asyncio

    return asyncio.run(harbor.driver.sibling().inspect(id, harbor.clock.now()))


def test_a_call_has_its_own_retry_policy_and_unrecoverable_errors() -> None:
    harbor = Harbor("memory://", clock=ManualClock())

    @harbor.task(retry=Fixed(5), unrecoverable=KeyError)
    def fails(kind: str) -> None:
        raise {"key": KeyError, "value": ValueError, "unicode": UnicodeError}[kind]()

    with harbor:
        plain = fails.enqueue("value")
        patient = fails.options(retry=Linear(100)).enqueue("value")
        final = fails.options(unrecoverable=[ValueError]).enqueue("unicode")  # a UnicodeError is a ValueError
        lenient = fails.options(unrecoverable=()).enqueue("key")
        declared = fails.enqueue("key")
        drain(harbor)
        now = harbor.clock.now()
        assert info(harbor, plain.id).job.run_at == now + timedelta(seconds=5)
        assert info(harbor, patient.id).job.run_at == now + timedelta(seconds=100)
        assert info(harbor, final.id).state == "dlq"
        assert info(harbor, lenient.id).state == "scheduled"
        assert info(harbor, declared.id).state == "dlq"


def test_a_call_may_go_to_another_type() -> None:
    harbor = Harbor("memory://", clock=ManualClock())
    seen: list[str] = []

    @harbor.task(name="mail.v1")
    def old(to: str) -> None:
        seen.append(f"old {to}")

    @harbor.task(name="mail.v2")
    def new(to: str) -> None:
        seen.append(f"new {to}")

    with harbor:
        handle = old.options(name="mail.v2").enqueue("ada")
        drain(harbor)
        assert seen == ["new ada"]
        assert info(harbor, handle.id).job.type == "mail.v2"


@pytest.mark.parametrize(
    "policy",
    [
        Exponential(),
        Exponential(timedelta(seconds=2), 3, timedelta(hours=1), 0.5),
        Fixed(1.5),
        Fixed(timedelta(1)),
        Linear(2),
    ],
)
def test_retry_policies_survive_the_metadata(policy: Any) -> None:
    assert read_retry(write_retry(policy)) == policy


@pytest.mark.parametrize("text", ["", "{}", '{"type":"os.system"}', '{"type":"Fixed","delay":-1}', '"x"', "\x00"])
@pytest.mark.parametrize("key", ["taskharbor.retry", "taskharbor.unrecoverable"])
@bench_test
async def test_unreadable_metadata_is_ignored_and_reported(bench: Bench, key: str, text: str) -> None:
    def handler() -> None:
        raise ValueError

    await bench.ran(handler, job("j", metadata={key: text}), retry=Fixed(7))
    found = await bench.info("j")
    assert found.job.run_at == bench.clock.now() + timedelta(seconds=7)
    assert len(bench.of(PolicyFailed)) == 1
