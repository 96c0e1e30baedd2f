"""Playing a seed, printing what happened, and finding a smaller plan that fails in the same way."""

import hashlib
from collections.abc import Iterable

from tests.simulation.journal import Journal
from tests.simulation.plan import Plan, make_plan
from tests.simulation.world import World


def play(plan: Plan) -> Journal:
    return World(plan).run()


def trace(journal: Journal) -> list[str]:
    """What happened, a line each."""
    return [f"{when:10.4f}  {who:14} {what}" for when, who, what in journal.events]


def digest(seeds: Iterable[int]) -> str:
    """A fingerprint of all that happened in these runs."""
    told = hashlib.sha256()
    for seed in seeds:
        told.update("\n".join(trace(play(make_plan(seed)))).encode())
    return told.hexdigest()


def tell(plan: Plan, journal: Journal) -> str:
    """A run as text."""
    specs = [f"  {spec}" for batch in plan.batches for spec in batch]
    head = [f"seed {plan.seed}: {plan.describe()}", *specs, ""]
    problems = [f"PROBLEM: {problem}" for problem in journal.problems] or ["no problem"]
    return "\n".join([*head, *trace(journal), "", *problems])


def shrink(plan: Plan, budget: int = 150) -> tuple[Plan, Journal]:
    """A smaller plan with a problem, found by leaving things out as long as one remains."""
    journal = play(plan)
    while budget > 0:
        for smaller in plan.smaller():
            budget -= 1
            attempt = play(smaller)
            if attempt.problems:
                plan, journal = smaller, attempt
                break
            if budget <= 0:
                break
        else:
            break
    return plan, journal


def report(seed: int) -> str:
    """What a failing test prints: the problem, the smallest plan that shows it, its trace, and how to see the rest."""
    plan, journal = shrink(make_plan(seed))
    return f"again: python -m tests.simulation {seed}\nshrunk to:\n{tell(plan, journal)}"
