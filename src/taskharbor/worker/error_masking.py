"""Error text as it is stored: without values that nobody could find in the job's record again.

Whoever shows error text later (the command line, a JobDead) takes the values of the stored payload out of it. The
results that were bound into a step do not stand there, and neither does what a codec of the user's own has enciphered:
those are taken out here, where they are known. It costs nothing but for a failure of such a job.
"""

from __future__ import annotations

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
    """The outcome of a failure, fit to be stored. `job`: as its handler received it, with all that was bound."""
    if BIND_KEY not in job.metadata and type(codec) is JsonCodec:
        return outcome
    if isinstance(outcome, Fail):
        reason, error = mask((outcome.reason, outcome.last_error), _unseen(job, codec))
        return replace(outcome, reason=reason, last_error=error)
    if isinstance(outcome, Retry):
        return replace(outcome, last_error=mask((outcome.last_error,), _unseen(job, codec))[0])
    if isinstance(outcome, Cancelled):
        return replace(outcome, reason=mask((outcome.reason,), _unseen(job, codec))[0])
    return outcome


def masked_summary(error: BaseException, value: object) -> str:
    """The summary of an error about a value, without what is in the value: a codec may quote what it cannot write."""
    try:
        return mask((summary(error),), ([value],))[0]
    except BaseException:  # the value is somebody's own container, and fails when it is looked into
        return class_name(error)


def _unseen(job: JobRecord, codec: Codec) -> Iterator[object]:
    """What the handler was given and the stored payload does not show."""
    try:
        given = codec.decode(job.payload)
        into = read_bind(job.metadata[BIND_KEY]).into if BIND_KEY in job.metadata else None
    except BaseException:  # then the handler was given nothing
        return
    if into is not None and isinstance(given, dict):
        yield [given.pop(into, None)]
    if type(codec) is not JsonCodec:
        seen = {each for value in stored_values(job.payload) for each in scalars(value)}
        yield from (each for each in scalars(given) if each not in seen)
