"""How much of a job's payload and result a command prints: nothing, unless the user asked for it.

Error text is printed, because operators need it. A handler's error may quote its arguments, so the values of a hidden
payload are masked in it. Metadata that the library itself writes counts as payload: one entry holds the payload of a
workflow's failure step.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from taskharbor.model import deep_json
from taskharbor.model.bounds import MAX_PAYLOAD_BYTES
from taskharbor.model.errors import because
from taskharbor.model.executions import read_trail, write_trail
from taskharbor.model.job import JobInfo, JobRecord
from taskharbor.model.progress import read_note, write_note
from taskharbor.policy.mask import MASK, mask, stored_values
from taskharbor.store.text import first_line
from taskharbor.tasks.flow_metadata import RESERVED

MAX_MASKED_BYTES = MAX_PAYLOAD_BYTES
"""Of a payload that texts are searched for. A store may allow larger ones: then the texts are not shown."""
NOT_SHOWN = "(not shown: the payload is too large to mask it)"
QUOTED_KEY = f"{RESERVED}quoted"
"""In metadata: it or the idempotency key quotes a payload that an amendment replaced. Both are hidden from then on."""


@dataclass(frozen=True)
class Redaction:
    """What to print: everything, everything except some fields, or nothing."""

    show: bool = False
    fields: frozenset[str] = frozenset()

    @classmethod
    def of(cls, show_payload: bool, redact: tuple[str, ...]) -> Redaction:
        """From the options. `--redact` implies `--show-payload`: naming a field to hide asks for the rest."""
        return cls(show_payload or bool(redact), frozenset(name.lower() for name in redact))

    def value(self, data: bytes | None) -> Any:
        """Stored bytes as a printable value; None if they are hidden. A deeply nested value is returned as raw JSON."""
        if data is None or not self.show:
            return None
        try:
            value = deep_json.read(data)
        except ValueError:
            return MASK if self.fields else _plain(data)  # not JSON, so fields cannot be found
        for inside in _objects(value):
            inside.update({key: MASK for key in inside if key.lower() in self.fields})
        return msgspec.Raw(deep_json.write(value)) if deep_json.is_deep(value) else value

    def metadata(self, job: JobRecord) -> dict[str, str]:
        """A job's metadata, with hidden payload values masked. What the library wrote itself is hidden whole."""
        whole = self.show and not self.fields
        texts = zip(job.metadata, self.texts(job, list(job.metadata.values())), strict=True)
        hides = () if whole else ("",) if QUOTED_KEY in job.metadata else (RESERVED,)
        return {key: MASK if key.startswith(hides) else text for key, text in texts}

    def key(self, job: JobRecord) -> str | None:
        """A job's idempotency key, with hidden payload values masked: keys are often made of arguments."""
        if job.idempotency_key is None:
            return None
        if QUOTED_KEY in job.metadata and (not self.show or self.fields):
            return MASK
        return self.texts(job, (job.idempotency_key,))[0]

    def errors(self, job: JobRecord) -> tuple[str, str]:
        """The recorded reason and last error of a job, with hidden payload values masked."""
        reason, error = self.texts(job, (job.reason, job.last_error))
        return reason, error

    def texts(self, job: JobRecord, texts: Sequence[str]) -> Sequence[str]:
        """Texts of a job's handler, such as its errors and its progress, with hidden payload values masked."""
        if not any(texts) or not job.payload or (self.show and not self.fields):
            return texts
        if len(job.payload) > MAX_MASKED_BYTES:
            return [NOT_SHOWN if text else text for text in texts]
        return mask(texts, self._hidden(job.payload) if self.show else stored_values(job.payload))

    def masked(self, info: JobInfo) -> JobInfo:
        """A job with its texts masked, each once, and without its payload and result: for what shows them often."""
        job = info.job
        trail, note = read_trail(job.trail), read_note(job.note)
        texts = [job.reason, job.last_error, note.note if note else "", job.idempotency_key or ""]
        texts += [*job.metadata.values(), *(each.error for each in trail)]
        reason, error, words, key, *rest = self.texts(job, texts)
        values, errors = rest[: len(job.metadata)], rest[len(job.metadata) :]
        light = replace(
            job,
            payload=b"",
            result=None if job.result is None else b"",
            reason=reason,
            last_error=error,
            idempotency_key=None if job.idempotency_key is None else key,
            metadata=dict(zip(job.metadata, values, strict=True)),
        )
        if note:
            light = replace(light, note=write_note(replace(note, note=words)))
        if trail:
            pairs = zip(trail, errors, strict=True)
            light = replace(light, trail=write_trail([replace(each, error=error) for each, error in pairs]))
        return replace(info, job=light)

    def why(self, job: JobRecord) -> str:
        """One line: the recorded reason of a job's end, and the last error where it adds something."""
        reason, error = map(first_line, self.errors(job))
        return because(reason, error)

    def _hidden(self, payload: bytes) -> Iterable[Any]:
        """The values of hidden fields, each once, at any depth."""
        try:
            value = deep_json.read(payload)
        except ValueError:
            return stored_values(payload)
        hidden: list[Any] = []
        for inside in _objects(value):
            hidden += [inside.pop(key) for key in list(inside) if key.lower() in self.fields]
        return hidden


HIDDEN = Redaction()


def _plain(data: bytes) -> Any:
    """Bytes that are not JSON: as text if they are UTF-8, else as base64."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a value, outermost first. Entries that the caller removes meanwhile are not visited."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
        waiting.extend(deep_json.children(item))
