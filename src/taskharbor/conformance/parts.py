"""The parts of the contract that a small store may lack, by the names of `Driver.lacks`."""

ATTEMPTS = "attempts"
HEADS = "heads"
UPCOMING = "upcoming"
AMEND = "amend"
FLOWS = "flows"
FIGURES = "figures"
AUDIT = "audit"
SCHEDULES = "schedules"

OPTIONAL_PARTS = frozenset({ATTEMPTS, HEADS, UPCOMING, AMEND, FLOWS, FIGURES, AUDIT, SCHEDULES})
