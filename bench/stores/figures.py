"""From samples to figures: medians over the rounds, ratios within each round, and the aims.

Throughput is what the clock on the wall says, because a store is waited for: round trips and disks are part of it. The
processor time of a job, the server's included, stands beside it: on a machine that has other work it is the steadier.
"""

from __future__ import annotations

from statistics import quantiles

import msgspec

from bench.figures import Figure, figure_of
from bench.stores.plan import STORES
from bench.stores.rounds import Run, Sample

Samples = dict[str, list[Sample]]


def rate(samples: list[Sample]) -> Figure:
    """Jobs a second."""
    return figure_of([sample.jobs / sample.wall for sample in samples])


def cost(samples: list[Sample]) -> Figure:
    """Seconds of processor time a job, of the sample's process and the server's together."""
    return figure_of([(sample.cpu + sample.server) / sample.jobs for sample in samples])


def server_share(samples: list[Sample]) -> Figure:
    """Seconds of the server's processor time a job."""
    return figure_of([sample.server / sample.jobs for sample in samples])


def ratio(samples: Samples, name: str, base: str) -> Figure | None:
    """How many times the base's throughput, compared within each round; None if one of them was not measured."""
    if name == base or not samples.get(name) or not samples.get(base):
        return None
    pairs = zip(samples[name], samples[base], strict=True)
    return figure_of([(own.jobs / own.wall) / (other.jobs / other.wall) for own, other in pairs])


def cost_ratio(samples: Samples, name: str, base: str) -> Figure | None:
    """How many times the base's processor time a job, compared within each round."""
    if not samples.get(name) or not samples.get(base):
        return None
    pairs = zip(samples[name], samples[base], strict=True)
    return figure_of([cost([own]).median / cost([other]).median for own, other in pairs])


def percentile(samples: list[Sample], percent: int) -> Figure:
    """A percentile of the latencies in each round, in seconds."""
    return figure_of([quantiles(sample.latencies, n=100)[percent - 1] for sample in samples])


class Result(msgspec.Struct, frozen=True):
    """An aim and what became of it; `found` is None if it was not measured. `binding`: it decides the exit status."""

    text: str
    found: Figure | None
    reached: bool = False
    binding: bool = True
    unit: str = ""

    @property
    def missed(self) -> bool:
        """Whether it was measured, and not reached, and should have been."""
        return self.binding and self.found is not None and not self.reached


OF_THE_LOOP = {"sqlite": 0.4, "postgres": 0.6, "redis": 0.6}
PICK_UP = {"postgres": 0.003, "redis": 0.002}
BEST_PEER = {"redis": 10.0}
FREE = {"sqlite": "without waiting for the disk", "postgres": "with claims that are not flushed"}
AT_BACKLOG = 0.8
SAME = 0.8  # "costs the same", within what a machine repeats


def results(store: str, run: Run) -> list[Result]:
    """Every aim of a store."""
    samples = run.samples
    share = OF_THE_LOOP[store]
    narrow = ratio(samples, "process-ours", "narrow-limit")
    wide = ratio(samples, "process-wide-ours", "process-limit")
    mixed = ratio(samples, "process-ours", "process-limit")
    made = [
        _at_least(f"at least {share:g} of the hand-written loop, each with 16 jobs at a time", narrow, share),
        _at_least(f"at least {share:g} of the hand-written loop, each with 100 jobs at a time", wide, share),
        _at_least(f"{share:g} with 16 slots of a loop that takes 100 at a time", mixed, share, binding=False),
    ]
    peers = [subject.name for subject in STORES[store] if subject.peer]
    made += [_at_least(f"ahead of {peer}", ratio(samples, "process-ours", f"process-{peer}"), 1.0) for peer in peers]
    if store in FREE:
        free = ratio(samples, "process-ours", "relaxed-ours"), ratio(samples, "process-wide-ours", "relaxed-wide-ours")
        text = f"{SAME:g} of its own throughput {FREE[store]}"
        made += [
            _at_least(f"{text}, {slots} slots", found, SAME, binding=False)
            for slots, found in zip((16, 100), free, strict=True)
        ]
    relaxed = [subject.name for subject in STORES[store] if subject.peer and subject.relaxed]
    made += [
        _at_least(
            f"ahead of {peer}, neither waiting for the disk at each commit",
            ratio(samples, "relaxed-ours", f"relaxed-{peer}"),
            1.0,
        )
        for peer in relaxed
    ]
    if store in BEST_PEER:
        made.append(_best_peer(samples, peers, BEST_PEER[store]))
    if store in PICK_UP:
        found = percentile(samples["latency-ours"], 50) if samples.get("latency-ours") else None
        most = PICK_UP[store]
        reached = found is not None and found.median < most
        made.append(Result(f"picked up within {most * 1000:g} ms, p50", found, reached, unit="s"))
    made.append(
        _at_least(
            f"at least {AT_BACKLOG:g} of the throughput beside the large backlog",
            ratio(samples, "backlog-ours", "small-ours"),
            AT_BACKLOG,
        )
    )
    made.append(
        _at_least(
            f"settling a member of a small group takes {SAME:g} or more of the processor time of a large one's",
            cost_ratio(samples, "few-ours", "members-ours"),
            SAME,
        )
    )
    return made


def _best_peer(samples: Samples, peers: list[str], times: float) -> Result:
    measured = [peer for peer in peers if samples.get(f"process-{peer}")]
    best = max(measured, key=lambda peer: rate(samples[f"process-{peer}"]).median, default="")
    found = ratio(samples, "process-wide-ours", f"process-{best}") if best else None
    text = f"at least {times:g} times the best peer" + (f", {best}" if best else "")
    return _at_least(f"{text}, each at its best settings (ours: 100 slots)", found, times)


def _at_least(text: str, found: Figure | None, least: float, binding: bool = True) -> Result:
    return Result(text, found, found is not None and found.median >= least, binding)
