"""OmniQ v1: the language-neutral queue on Redis, in full and strictly. See docs/omniq.md.

The keys and the scripts are those of `taskharbor.drivers.redis`: one format, two faces. Needs the extra
`taskharbor[redis]`. Public names only.
"""

from importlib.util import find_spec

if find_spec("redis") is None:
    raise ImportError("taskharbor.omniq needs redis-py: pip install 'taskharbor[redis]'", name="redis")

from taskharbor.omniq.client import AsyncOmniQ, OmniQ
from taskharbor.omniq.consumer import LeaseLost, Stopped
from taskharbor.omniq.operations import now_ms, queue_base, ulid
from taskharbor.omniq.values import (
    PAUSED,
    AckFailResult,
    BatchItem,
    Job,
    JobContext,
    Lane,
    NotActive,
    OmniQError,
    Paused,
    ReserveResult,
    TokenMismatch,
)

__all__ = [
    "PAUSED",
    "AckFailResult",
    "AsyncOmniQ",
    "BatchItem",
    "Job",
    "JobContext",
    "Lane",
    "LeaseLost",
    "NotActive",
    "OmniQ",
    "OmniQError",
    "Paused",
    "ReserveResult",
    "Stopped",
    "TokenMismatch",
    "now_ms",
    "queue_base",
    "ulid",
]
