"""Amend: the texts of a job that may quote its payload, which core masks when it replaces that."""

from __future__ import annotations

from typing import Any

from taskharbor.conformance.case import case
from taskharbor.conformance.cases.amend import LATER, REPLACES, amend, amended, fresh
from taskharbor.conformance.environment import Environment, refusals
from taskharbor.conformance.parts import AMEND
from taskharbor.drivers import replace

TEXTS = "So is an error text of more than 8 KiB, a trail of more than 16 KiB, and a note of more than 1 KiB."


@case(REPLACES, LATER, needs=AMEND)
async def texts_of_a_dead_job(env: Environment) -> None:
    job = await env.dead()
    before = (await env.info(job)).job
    long: dict[str, Any] = {
        "last_error": "e" * 8192,
        "reason": "ü" * 4096,
        "trail": b"t" * 16 * 1024,
        "note": b"n" * 1024,
    }
    assert await amended(env, job, **long) == replace(before, edits=1, **long)


@case(TEXTS, needs=AMEND)
async def texts_over_their_bounds(env: Environment) -> None:
    job = await env.add()
    bad: list[dict[str, Any]] = [
        {"last_error": "x" * 8193},
        {"reason": "ü" * 4097},
        {"reason": "\x00"},
        {"last_error": b"bytes"},
        {"trail": b"x" * (16 * 1024 + 1)},
        {"note": b"x" * 1025},
        {"note": "text"},
    ]
    for fields in bad:
        assert refusals(await amend(env, fresh(job, **fields))) == ["InvalidJob"], list(fields)
    assert (await env.info(job)).job.edits == 0
