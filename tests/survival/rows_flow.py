"""Chords under kills: sizes, nested, with a member that dies, and cancelled; one finalizer each, after all members."""

import time
from pathlib import Path
from typing import Any

from taskharbor.flow import chord
from tests import lanes
from tests.survival.field import field_on
from tests.survival.figures import Figures, of_verdict
from tests.survival.registry import row
from tests.survival.rows_kills import joined
from tests.survival.rows_supervised import Sender
from tests.survival.stores import shared_store


@row("chords", seconds=240)
def chords(store: str, folder: Path) -> Figures:
    sizes = [1, 2, 10] if lanes.run() == "test" else [1, 2, 100] * 5
    kills = lanes.figure(test=1, chaos=20)
    large = lanes.figure(test=0, chaos=10_000)
    with field_on(
        shared_store(store, folder), folder, lease=float(lanes.figure(test=3, chaos=10)), concurrency=16
    ) as field:
        sender = Sender(field)
        tasks = sender.tasks
        expected = 0

        def numbers(count: int) -> list[int]:
            made = list(range(sender.next, sender.next + count))
            sender.next += count
            tasks.pen.note("sent", made)
            return made

        def stored(made: list[int]) -> None:
            tasks.pen.note("stored", made)

        def a_chord(size: int) -> Any:
            nonlocal expected
            *members, last = numbers(size + 1)
            expected += 1
            return [*members, last], chord(
                [tasks.member.s(n=n, i=n) for n in members], tasks.last.s(n=last, first=members[0])
            )

        alive = [field.worker() for _ in range(3)]
        for size in sizes:
            made, flow = a_chord(size)
            with sender.harbor.within(300):
                flow.enqueue()
            stored(made)
        # Nested: the members of the outer one are chords.
        inner = [a_chord(size) for size in (2, 3, 2)]
        outer = numbers(1)
        expected += 1
        ends = [made[-1] for made, _ in inner]
        chord([flow for _, flow in inner], tasks.last.s(n=outer[0], after=ends)).enqueue()
        stored([*(n for made, _ in inner for n in made), *outer])
        numbers_of_spread = numbers(5)
        tasks.spread.enqueue(n=numbers_of_spread[0], size=3)
        stored(numbers_of_spread)
        expected += 1
        # A member that dies: the finalizer waits until an operator brings it back.
        *members, last = numbers(4)
        expected += 1
        steps = [tasks.member.s(n=n, i=n, die="revived" if n == members[0] else "") for n in members]
        dying = chord(steps, tasks.last.s(n=last, first=members[0])).enqueue()
        stored([*members, last])
        # A cancelled one, whose finalizer never runs.
        *gated, never = numbers(3)
        doomed = chord(
            [tasks.gate.s(n=n, name="never") for n in gated], tasks.last.s(n=never, first=gated[0])
        ).enqueue()
        field.until(lambda: dying.status() == "failed", "its member died")
        doomed.cancel()
        for _ in range(kills):
            done = field.done()
            victim = field.chance.randrange(len(alive))
            field.kill(alive[victim])
            alive[victim] = field.worker()
            if lanes.run() != "test":
                time.sleep(field.chance.uniform(0.2, 1.5))
                if field.done() == done:
                    made, flow = a_chord(100)
                    flow.enqueue()
                    stored(made)
        (folder / "revived").touch()
        assert dying.requeue() == 1
        note, took = "", 0.0
        if large:
            made, flow = a_chord(large)
            begin = time.monotonic()
            with sender.harbor.within(300):
                flow.enqueue()
            stored(made)
            field.until(lambda: made[-1] in field._done, "the large chord ended", 600)
            took = time.monotonic() - begin
            note = f"a chord of {large:,} members took {took:.0f} s"
        verdict = field.verdict(field.settled(patience=300), expected_runs={members[0]: 2})
        finalizers = joined(field)
        assert finalizers == expected, f"{finalizers} finalizers of {expected} chords"
        assert not any(n.data[0] == never for n in field.notes("start")), "a cancelled finalizer ran"
        sender.harbor.close()
        return of_verdict(verdict, len(field.faults), f"{len(field.faults)} kills of workers",
                          f"{expected} chords, {finalizers} finalizers{'; ' if note else ''}{note}")  # fmt: skip
