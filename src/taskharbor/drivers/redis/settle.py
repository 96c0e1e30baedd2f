"""Settle: acks of plain jobs with one short script, any other outcomes with the general one, spawned jobs after a plan.

An outcome that no store could apply is InvalidJob. A refusal of its lease comes before that: a
probe asks the store for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from taskharbor.drivers.planning import PlanOutdated
from taskharbor.drivers.redis.leases import refusal
from taskharbor.drivers.redis.plan import MAX_PLANS, overtaken, plan_spawn
from taskharbor.drivers.redis.records import up_to_ms
from taskharbor.drivers.redis.router import Flows
from taskharbor.drivers.redis.scripts import ScriptCall, binary
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.model.bounds import check_outcome, clean_error
from taskharbor.model.errors import BackendUnavailable, InvalidJob, TaskHarborError
from taskharbor.model.outcome import Ack, Cancelled, Fail, Outcome, Retry
from taskharbor.model.safe_repr import shown
from taskharbor.model.times import to_ms

PLAN_AGAIN = 5  # what settle.lua returns for an outcome whose plan no longer holds, and for a probe that is not refused


class PlannedSpawn(NamedTuple):
    """Spawned jobs as settle.lua takes them."""

    jobs: Sequence[Any] | bool = False
    needed: Sequence[Any] = ()
    flows: Flows | bool = False
    heir: str | bool = False
    heir_queue: str = ""

    def __repr__(self) -> str:
        return shown(self, "flows", "heir", "heir_queue")


NO_SPAWN = PlannedSpawn()
Code = int | InvalidJob | BackendUnavailable  # of an outcome: 0, a refusal of the fence, or an error
KINDS: dict[type, str] = {Ack: "a", Retry: "r", Fail: "f", Cancelled: "c"}


async def settle(store: RedisStore, outcomes: Sequence[Outcome], now: int) -> list[TaskHarborError | None]:
    """Apply outcomes, at least one; for each None or why it was refused."""
    codes = await _settle(store, outcomes, now)
    if not any(codes):
        return [None] * len(codes)
    unreached = [code for code in codes if isinstance(code, BackendUnavailable)]
    if len(unreached) == len(codes):
        raise unreached[0]
    return [
        code if isinstance(code, TaskHarborError) else refusal(outcome.lease, code) if code else None
        for outcome, code in zip(outcomes, codes, strict=True)
    ]


async def _settle(store: RedisStore, outcomes: Sequence[Outcome], now: int) -> list[Code]:
    """For each outcome 0, a refusal of the fence, why it is invalid, or why it cannot be applied now. Those with a
    spawn are planned one by one."""
    applied = await _ack_plain(store, outcomes, now)
    codes: list[Code] = [0] * applied
    if applied:
        outcomes = outcomes[applied:]
    batch: list[Any] = []
    for outcome in outcomes:
        try:
            check_outcome(outcome, store.max_payload)
        except InvalidJob as invalid:
            codes += await _apply(store, [*batch, encode_probe(outcome)], now)
            batch = []
            if codes[-1] == PLAN_AGAIN:
                codes[-1] = invalid
            continue
        if isinstance(outcome, Ack | Fail) and (outcome.spawn or getattr(outcome, "handover", None) is not None):
            codes += await _apply(store, batch, now)
            batch = []
            codes.append(store.router.away(outcome.lease.queue) or await _settle_alone(store, outcome, now))
        else:
            batch.append(encode(outcome))
    codes += await _apply(store, batch, now)
    return codes


async def _ack_plain(store: RedisStore, outcomes: Sequence[Outcome], now: int) -> int:
    """Apply acks of plain jobs, which nearly all outcomes are; returns how many of the outcomes, from the first on."""
    acks = encode_plain_acks(outcomes) if store.try_plain("settle") else None
    if not acks or (home := store.router.shared_home(acks[::4])) is None:
        return 0
    applied: int = await store.run(ScriptCall("ack_plain", now=now, home=home, acks=acks), durable=True)
    if applied < len(outcomes):
        store.skip_plain("settle")
    return applied


async def _apply(store: RedisStore, encoded: Sequence[Any], now: int) -> list[int | BackendUnavailable]:
    """For each encoded outcome what settle.lua returns, or why it cannot be applied now."""
    if not encoded:
        return []
    queues = [outcome[0] for outcome in encoded]
    await store.router.expect_messages(queues)

    async def apply_in(home: str, positions: Sequence[int]) -> Sequence[int]:
        args = ScriptCall("settle", now=now, home=home, outcomes=[encoded[position] for position in positions])
        replies: Sequence[int] = await store.run(args, durable=True)
        return replies

    try:
        codes = await store.each_home(queues, apply_in)
    except BackendUnavailable as error:
        if not store.router.divides:
            raise
        return [error] * len(encoded)
    await store.router.deliver([queue for queue, code in zip(queues, codes, strict=True) if isinstance(code, int)])
    return codes


async def _settle_alone(store: RedisStore, outcome: Ack | Fail, now: int) -> Code:
    """An outcome with a spawn. That it cannot be applied now says nothing about the others, where a call is divided."""
    try:
        return await _settle_planned(store, outcome, now)
    except BackendUnavailable as error:
        if not store.router.divides:
            raise
        return error


async def _settle_planned(store: RedisStore, outcome: Ack | Fail, now: int) -> Code:
    for _ in range(MAX_PLANS):
        try:
            spawn = await _planned_spawn(store, outcome, now)
        except PlanOutdated:
            continue
        except InvalidJob as invalid:
            (code,) = await _apply(store, [encode_probe(outcome)], now)
            return invalid if code == PLAN_AGAIN else code
        (code,) = await _apply(store, [encode(outcome, spawn)], now)
        if code != PLAN_AGAIN:
            if isinstance(spawn.flows, dict):
                await store.router.confirm(outcome.spawn, spawn.flows, now)
            return code
    raise overtaken()


async def _planned_spawn(store: RedisStore, outcome: Ack | Fail, now: int) -> PlannedSpawn:
    """The spawn of an outcome, planned; InvalidJob if it cannot be stored."""
    acked = (outcome.lease.queue, outcome.lease.job_id) if isinstance(outcome, Ack) else None
    handover = outcome.handover if isinstance(outcome, Ack) else None
    planned = await plan_spawn(store, outcome.spawn, acked=acked, handover=handover)
    flows = await store.router.admit_planned(planned.fresh, (), spawned=True)
    heir = planned.heir
    return PlannedSpawn(
        planned.arrays(now, cluster=store.endpoint.cluster),
        planned.needed(),
        flows or False,
        heir or False,
        planned.queue_of(heir) if heir else "",
    )


# Outcomes as arrays


def encode(outcome: Outcome, spawn: PlannedSpawn = NO_SPAWN) -> tuple[Any, ...]:
    """An outcome as settle.lua takes it."""
    lease = outcome.lease
    head = (lease.queue, lease.job_id, lease.token)
    if isinstance(outcome, Ack):
        result = binary(outcome.result) if outcome.result is not None else False
        if spawn is NO_SPAWN and not outcome.trail:
            return (*head, "a", result)
        return (*head, "a", result, *spawn, binary(outcome.trail))
    if isinstance(outcome, Retry):
        run_at = up_to_ms(outcome.run_at) if outcome.run_at is not None else False
        failed_at = to_ms(outcome.failed_at) if outcome.failed_at is not None else False
        return (*head, "r", run_at, outcome.attempts, clean_error(outcome.last_error), failed_at, *_failure(outcome))
    if isinstance(outcome, Fail):
        failed_at = to_ms(outcome.failed_at) if outcome.failed_at is not None else False
        reason, error = clean_error(outcome.reason), clean_error(outcome.last_error)
        return (*head, "f", reason, outcome.attempts, failed_at, error, *spawn[:3], *_failure(outcome))
    return (*head, "c", clean_error(outcome.reason), binary(outcome.trail))


def _failure(outcome: Retry | Fail) -> tuple[str, str, Any]:
    return outcome.error_class, outcome.fingerprint, binary(outcome.trail)


def encode_plain_acks(outcomes: Sequence[Outcome]) -> list[Any] | None:
    """Outcomes as ack_plain.lua takes them, in one flat array; None unless all are acks and nothing more."""
    flat: list[Any] = []
    for outcome in outcomes:
        if type(outcome) is not Ack or outcome.spawn or outcome.handover is not None or outcome.trail:
            return None
        lease, result = outcome.lease, outcome.result
        if result is None:
            flat += (lease.queue, lease.job_id, lease.token, False)
        elif type(result) is bytes:
            flat += (lease.queue, lease.job_id, lease.token, binary(result))
        else:
            return None
    return flat


def encode_probe(outcome: Outcome) -> tuple[Any, ...]:
    """A dry run of an outcome: the script checks the lease and applies nothing."""
    lease = outcome.lease
    return (lease.queue, lease.job_id, lease.token, "?" + KINDS.get(type(outcome), ""))
