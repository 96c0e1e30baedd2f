"""`python -m tests.simulation SEED [COUNT]`: play one seed and print it, or many and count."""

import sys
import time
from collections import Counter

from tests.simulation.plan import make_plan
from tests.simulation.run import play, tell


def main() -> int:
    seed = int(sys.argv[1])
    if len(sys.argv) < 3:
        plan = make_plan(seed)
        journal = play(plan)
        print(tell(plan, journal))
        return 1 if journal.problems else 0
    happened: Counter[str] = Counter()
    failed = 0
    begun = time.perf_counter()
    for number in range(seed, seed + int(sys.argv[2])):
        journal = play(make_plan(number))
        happened.update(journal.happened)
        if journal.problems:
            failed += 1
            print(f"seed {number}: {journal.problems[0].splitlines()[0]}")
    seconds = time.perf_counter() - begun
    for what, count in sorted(happened.items()):
        print(f"{count:7}  {what}")
    print(f"{int(sys.argv[2])} seeds, {failed} failed, {int(sys.argv[2]) / seconds:.1f} seeds/s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
