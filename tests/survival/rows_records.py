"""Text that is hard to store: in arguments, results and errors."""

from pathlib import Path
from typing import Any

from taskharbor import Harbor
from tests import lanes
from tests.survival.figures import Figures
from tests.survival.journal import Reader
from tests.survival.registry import ALL, row
from tests.survival.stores import shared_store
from tests.survival.tasks import Tasks

LARGE = lanes.figure(test=100_000, chaos=5_000_000)  # times two bytes
TEXTS = {
    "plain": "plain",
    "NUL": "a\x00b",
    "lone surrogate": "a\ud800b",
    "emoji": "👩\u200d🚀 " * 3,
    "control characters": "\x1b[31mred\x07\x7f\u202e",
    "quotes": "'; drop table taskharbor_jobs; --",
    "format": "%s {0} {braces} $1 :name",
    "large": "é",
}
REFUSED = 5
NUMBERS = {"2**63": 2**63, "-2**63": -(2**63), "NaN": float("nan"), "infinity": float("inf"), "1e308": 1e308}


@row("text", stores=ALL, seconds=30)
def text(store: str, folder: Path) -> Figures:
    """Each text as an argument, a result, and the text of an error; numbers that not every store can hold."""
    with Harbor(shared_store(store, folder).dsn) as harbor:
        tasks = Tasks(harbor, str(folder))
        sent: dict[str, Any] = {}
        refused = 0
        number = 0
        for kind, value in TEXTS.items():
            for how in ("result", "error"):
                number += 1
                try:
                    times = LARGE if kind == "large" else 1
                    sent[f"{kind}, {how}"] = tasks.odd.enqueue(n=number, text=value, how=how, times=times)
                except (ValueError, TypeError):
                    refused += 1  # before anything is stored
        sent["silent"] = tasks.odd.enqueue(n=number + 1, text="", how="silent")
        for odd in NUMBERS.values():
            try:
                tasks.odd.enqueue(n=odd, text="", how="result")  # type: ignore[arg-type]  # on purpose
                number += 1
            except (ValueError, TypeError):
                refused += 1
        harbor.worker(poll_interval=0.1).run(until_empty=True)
        states = {}
        for what, handle in sent.items():
            info = handle.info()
            states[what] = str(info.state)
            assert info.state in ("done", "dlq"), f"{what}: {info.state}"
            if info.state == "dlq":
                assert info.job.reason, what
        good = {what for what in sent if what.endswith("result") and what != "large, result"}  # that one is too large
        ended = {what for what in sent if states[what] == ("done" if what in good else "dlq")}
        assert ended == set(sent), f"ended otherwise: {set(sent) - ended}"
    assert refused == REFUSED, f"{refused} refused: not the same as on the other stores"
    starts = [note for note in Reader(folder).all() if note.word == "start"]
    assert len(starts) >= len(sent)
    return Figures(jobs=len(sent), faults=len(TEXTS) + len(NUMBERS) + 1, what="texts and numbers",
                   executions=len(starts), note=f"{refused} refused before anything was stored")  # fmt: skip
