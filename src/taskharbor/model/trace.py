"""The trace that a job belongs to, as W3C's trace context in its metadata.

Core does not interpret it, only passes it on: the jobs that a job creates (the workflow it returns, the failure step of
its flow) carry the trace of that job. So a workflow is one trace, whichever workers run its steps.
"""

from __future__ import annotations

from collections.abc import Mapping

from taskharbor.model.bounds import MAX_METADATA_BYTES, MAX_METADATA_ENTRIES

TRACE_KEYS = ("traceparent", "tracestate")


def trace_of(metadata: Mapping[str, str]) -> dict[str, str]:
    """The entries that name the trace; empty if there are none."""
    if "traceparent" not in metadata:
        return {}
    return {key: metadata[key] for key in TRACE_KEYS if key in metadata}


def with_trace(metadata: dict[str, str], trace: Mapping[str, str]) -> dict[str, str]:
    """The metadata with the trace added, unless it has one already or would get too large."""
    if not trace or "traceparent" in metadata:
        return metadata
    both = {**metadata, **trace}
    size = sum(len(key.encode()) + len(value.encode()) for key, value in both.items())
    return both if len(both) <= MAX_METADATA_ENTRIES and size <= MAX_METADATA_BYTES else metadata
