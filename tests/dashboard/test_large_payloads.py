"""A payload that is expensive to look through: the page is there, and no other request waits for it."""

import threading
from typing import Any

import pytest

from taskharbor.drivers import JobRecord
from taskharbor.model import deep_json
from taskharbor.model.outcome import Fail
from taskharbor.policy import mask as masks
from taskharbor.store import redaction
from taskharbor.store.redaction import HIDDEN, NOT_SHOWN
from tests.dashboard.scene import MINUTE
from tests.dashboard.site import NOW, Site, visit

BRACKETS = b'{"kw":' + b"[" * 500_000
DEEP = b'{"kw":' + b"[" * 50_000 + b'"s3cr3t-value"' + b"]" * 50_000 + b"}"


async def dead(site: Site, payload: bytes) -> None:
    await site.driver.enqueue([JobRecord(id="huge", type="t", queue="huge", payload=payload)], NOW)
    (held,) = await site.driver.reserve(("huge",), NOW, MINUTE, 1, "w")
    error = "ValueError: s3cr3t-value is wrong"
    await site.driver.settle([Fail(held.lease, error, 1, NOW, error)], NOW)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """How many characters were read token by token, and which threads masked."""
    seen: dict[str, Any] = {"tokens": 0, "threads": set(), "masks": 0}
    parsed, mask = deep_json._parsed, masks.mask

    def counted(text: str) -> Any:
        seen["tokens"] += len(text)
        return parsed(text)

    def noted(texts: Any, values: Any) -> Any:
        if any(texts):
            seen["threads"].add(threading.current_thread() is threading.main_thread())
            seen["masks"] += 1
        return mask(texts, values)

    monkeypatch.setattr(deep_json, "_parsed", counted)
    monkeypatch.setattr(redaction, "mask", noted)
    monkeypatch.setattr(masks, "mask", noted)
    return seen


def test_a_megabyte_of_brackets_is_read_by_no_page(watched: dict[str, Any]):
    async def look(site: Site) -> None:
        await dead(site, BRACKETS)
        watched["threads"].clear()
        for path in ("/jobs/huge", "/dead", "/"):
            assert "ValueError: s3cr3t-value is wrong" in (await site.get(path)).text, path
        assert (await site.json("/jobs/huge"))["last_error"] == "ValueError: s3cr3t-value is wrong"
        assert (await site.json("/jobs?queue=huge"))["jobs"][0]["reason"] == "ValueError: s3cr3t-value is wrong"
        assert watched["threads"] == {False}
        assert watched["tokens"] == 0
        assert (await site.post("/jobs/huge/download", part="payload")).status_code == 200

    visit(look)


def test_no_preview_and_no_edit_looks_through_it_on_the_event_loop(watched: dict[str, Any]):
    async def look(site: Site) -> None:
        await dead(site, BRACKETS)
        site.clock.advance(1)
        watched["threads"].clear()
        assert (await site.get("/operations/new?state=dlq&queue=huge")).status_code == 200
        assert watched["threads"] == {False}
        watched["threads"].clear()
        reply = await site.post("/jobs/huge/edit", payload='{"kw": 1}', deliveries=1, edits=0)
        assert reply.status_code == 200, reply.text
        assert watched["threads"] == {False}

    visit(look)


@pytest.mark.parametrize("piece", [b'\\"', b'"\\', b'"', b"\\", b'"a",', b"1"])
def test_a_megabyte_of_anything_is_looked_through_once(piece: bytes):
    """It took the square of the size, and held up every thread, where a text did not end."""
    payload = b'{"kw":"s3cr3t", "a":' + piece * (1_000_000 // len(piece))
    job = JobRecord(id="huge", type="t", payload=payload, last_error="ValueError: s3cr3t is wrong")
    assert HIDDEN.errors(job) == ("", "ValueError: ••• is wrong")


def test_texts_beside_a_payload_over_the_usual_bound_are_not_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(redaction, "MAX_MASKED_BYTES", 1_000)

    async def look(site: Site) -> None:
        await dead(site, b'{"key": "%s"}' % (b"s3cr3t-value" * 100))
        page = (await site.get("/jobs/huge")).text
        assert NOT_SHOWN in page
        assert "s3cr3t" not in page
        assert (await site.json("/jobs/huge"))["last_error"] == NOT_SHOWN
        assert (await site.json("/jobs?queue=huge"))["jobs"][0]["reason"] == NOT_SHOWN
        assert NOT_SHOWN in (await site.get("/dead")).text

    visit(look)


def test_a_deep_payload_is_masked_without_reading_it_token_by_token(watched: dict[str, Any]):
    async def look(site: Site) -> None:
        await dead(site, DEEP)
        watched["threads"].clear()
        watched["masks"] = 0
        page = (await site.get("/jobs/huge")).text
        assert "ValueError: ••• is wrong" in page
        assert "s3cr3t" not in page
        assert (watched["masks"], watched["threads"]) == (1, {False})  # once, and not on the event loop

    visit(look)
    assert watched["tokens"] == 0
