"""Payloads, results and marks that are nested deeper than an interpreter follows: every command answers."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from taskharbor.drivers import JobRecord
from taskharbor.model import deep_json
from tests import lanes
from tests.cli.shell import kill, reserve, store, taskharbor, within

DEPTHS = (90, 900, 990, 5_000)
"""Within what is indented, what recursion manages, what it nearly does, and what it does not."""

COMMANDS = (
    "inspect {id}", "inspect {id} --show-payload", "inspect {id} --redact card", "inspect {id} --redact nothing",
    "explain {id}", "list", "dlq list", "flow show flow", "flow show flow --mermaid", "job retry {id}",
)  # fmt: skip


def nest(depth: int, inmost: str = '"canary-4711"') -> Iterator[str]:
    yield "[" * depth + inmost + "]" * depth
    yield '{"card":' * depth + inmost + "}" * depth
    yield '{"to":[' * (depth // 2) + inmost + "]}" * (depth // 2)
    yield "[" * depth + inmost  # never ends: no JSON at all


@pytest.mark.left_to("full", except_for=lanes.Chosen("990"))
@pytest.mark.parametrize("depth", DEPTHS)
def test_no_command_breaks_on_a_deep_payload(dsn: str, depth: int):
    shapes = [f'{{"x":{text}}}' if text.endswith(("]", "}")) else f'{{"x":{text}' for text in nest(depth)]
    mark = {"taskharbor.on_failure": shapes[0][:8000], "taskharbor.bind": shapes[0][:7000]}
    jobs = [
        JobRecord(id=f"dead{n}", type="x", payload=text.encode(), metadata=mark, flow_id="flow")
        for n, text in enumerate(shapes)
    ]
    jobs.append(JobRecord(id="done0", type="x", payload=shapes[2].encode(), queue="done"))
    store(dsn, *jobs)
    kill(dsn, *(f"dead{n}" for n in range(4)), reason="no canary-4711", error=f"ValueError: {shapes[0][-200:]}")
    (held,) = reserve(dsn, "done")
    within(dsn, lambda driver, now: driver.ack(held.lease, now, held.job.payload))
    for command in COMMANDS:
        for output in ("table", "json"):
            for id in ("dead1", "dead3", "done0") if "{id}" in command else ("",):
                words = command.replace("{id}", id).split()
                answer = taskharbor(*words, "--dsn", dsn, "--output", output)
                assert answer.code in (0, 1), (words, answer.err)
                if not {"--show-payload", "--redact"} & {*words} or words[1:] == ["dead1", "--redact", "card"]:
                    assert "canary" not in answer.out + answer.err, words
                if output == "json" and "--mermaid" not in words and depth <= 900:
                    json.loads(answer.out)


def test_a_deep_payload_is_shown_whole_and_in_one_line(dsn: str):
    text = next(nest(5_000))
    store(dsn, JobRecord(id="j1", type="x", payload=text.encode()))
    for output in ("table", "json"):
        shown = taskharbor("inspect", "j1", "--show-payload", "--dsn", dsn, "--output", output).out
        assert text in shown
        assert len(shown) < 2 * len(text) + 2_000


@pytest.mark.left_to("full", except_for=lanes.Chosen("990"))
@pytest.mark.parametrize("depth", DEPTHS)
def test_deep_payloads_are_stored_or_refused(dsn: str, tmp_path: Path, depth: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / f"deep_tasks{depth}.py").write_text(
        f"from taskharbor import Harbor\nfrom typing import Any\nharbor = Harbor({dsn!r})\n"
        "@harbor.task(name='take')\ndef take(x: Any) -> None: ...\n"
    )
    for text in nest(depth):
        for app in ([], ["--app", f"deep_tasks{depth}:harbor"]):
            payload = f'{{"x":{text}}}'
            answer = taskharbor("enqueue", "--job", "take", "--json", "-", "--dsn", dsn, *app, stdin=payload)
            assert answer.code in (0, 2), answer.err
            if answer.code:
                assert "nested too deeply" in answer.line or "got invalid JSON" in answer.line


@pytest.mark.parametrize("depth", [3, 900, 5_000])
def test_reading_and_writing_go_together_at_any_depth(depth: int):
    for text in list(nest(depth, '{"a":[1,"two",null,true,-1.5e3,{}],"b":[],"é\\n\\"":"\\\\"}'))[:3]:
        value = deep_json.read(text.encode())
        assert deep_json.is_deep(value) == (depth > deep_json.DEEP)
        again = deep_json.write(value)
        if depth < 100:
            assert msgspec.json.decode(again) == msgspec.json.decode(text)
        assert deep_json.write(deep_json.read(again)) == again
    for wrong in ("", "[1,]", "{1:2}", '{"a"}', "[1 2]", "]", "[[}", '{"a":1,}', "nul", "[1]]", '["\n'):
        padded = "[" * 5_000 + wrong + "]" * 5_000 if wrong else "[" * 5_000
        with pytest.raises(ValueError, match="JSON"):
            deep_json.read(padded.encode())
