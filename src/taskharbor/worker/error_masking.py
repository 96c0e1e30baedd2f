"""Masks values in error text before it is stored, if they cannot be masked later.

The command line and JobDead mask the values of the stored payload when they show error text. The results that were
bound into a workflow step are not in that payload, and a codec of the user's own may encrypt it: such values are masked
here, where they are known. Only failures of such jobs pay for it.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator

from msgspec.structs import replace

from taskharbor.model.codec import Codec, JsonCodec
from taskharbor.model.job import JobRecord
from taskharbor.model.naming import class_name
from taskharbor.model.outcome import Cancelled, Fail, Outcome, Retry
from taskharbor.policy.describe import summary
from taskharbor.policy.mask import mask, scalars, stored_values
from taskharbor.tasks.flow_metadata import BIND_KEY, read_bind


def masked_outcome(job: JobRecord, codec: Codec, outcome: Outcome) -> Outcome:
    """The outcome with masked error text. `job`: as its handler received it, with the results that were bound."""
    if BIND_KEY not in job.metadata and type(codec) is JsonCodec:
        return outcome
    return _masked(outcome, _unseen(job, codec))


def masked_on_dead(job: JobRecord, codec: Codec, outcome: Outcome) -> Outcome:
    """The outcome of an `on_dead` task without the values of the dead job's payload: its own payload has them as
    base64, where nobody finds them later."""
    return _masked(outcome, _payloads_of_dead(job, codec))


def _masked(outcome: Outcome, values: Iterator[object]) -> Outcome:
    if isinstance(outcome, Fail):
        reason, error = mask((outcome.reason, outcome.last_error), values)
        return replace(outcome, reason=reason, last_error=error)
    if isinstance(outcome, Retry):
        return replace(outcome, last_error=mask((outcome.last_error,), values)[0])
    if isinstance(outcome, Cancelled):
        return replace(outcome, reason=mask((outcome.reason,), values)[0])
    return outcome


def masked_text(job: JobRecord, codec: Codec, text: str) -> str:
    """A handler's own words, masked like error text."""
    if BIND_KEY not in job.metadata and type(codec) is JsonCodec:
        return text
    return mask((text,), _unseen(job, codec))[0]


def masked_summary(error: BaseException, value: object) -> str:
    """The summary of an error about a value, with the value masked: a codec may quote what it cannot encode."""
    try:
        return mask((summary(error),), ([value],))[0]
    except BaseException:  # a container of the user's own may raise when it is read
        return class_name(error)


def _unseen(job: JobRecord, codec: Codec) -> Iterator[object]:
    """The values that the handler received and that the stored payload does not show."""
    try:
        given = codec.decode(job.payload)
        into = read_bind(job.metadata[BIND_KEY]).into if BIND_KEY in job.metadata else None
    except BaseException:  # then the handler received nothing
        return
    if into is not None and isinstance(given, dict):
        yield [given.pop(into, None)]
    if type(codec) is not JsonCodec:
        seen = {each for value in stored_values(job.payload) for each in scalars(value)}
        yield from (each for each in scalars(given) if each not in seen)


def _payloads_of_dead(job: JobRecord, codec: Codec) -> Iterator[object]:
    """The values of the payloads of the dead jobs that an `on_dead` task received."""
    try:
        given = codec.decode(job.payload)
        dead = [each["job"] for each in given.values() if isinstance(each, dict) and isinstance(each.get("job"), dict)]
        payloads = [b64decode(record["payload"]) for record in dead if record.get("payload")]
    except BaseException:  # then the handler received nothing
        return
    for payload in payloads:
        yield from stored_values(payload)
