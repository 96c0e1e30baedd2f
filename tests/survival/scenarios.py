"""The scenarios of the table, in its order: what each one is, what it has to reach, and where it has no row, why."""

from typing import NamedTuple

ONE_PROCESS = "it lives in one process, and goes with it"
NO_SERVER = "a file has no server"
NETWORK = "no network between a worker and a file"
SAME_WIRE = "its nodes announce their own addresses, which lead past a proxy; the connection code is that of Redis"


class Scenario(NamedTuple):
    """`key` names its rows; `wanted`: the figure to reach; `absent`: store → why it has no row."""

    key: str
    title: str
    wanted: str
    absent: dict[str, str]


_MEMORY = {"memory": ONE_PROCESS}
_SERVERS = {**_MEMORY, "sqlite": NO_SERVER}

SCENARIOS = (
    Scenario("kill-points", "SIGKILL at named points", "runs again within the lease + 2 s", _MEMORY),
    Scenario("supervised-kill", "SIGKILL under a supervisor", "runs again within 1 s", _MEMORY),
    Scenario("zombie", "Stopped for three leases, then woken", "no late operation accepted", _MEMORY),
    Scenario("chords", "Chords under kills", "one finalizer each; 10,000 members within 60 s", _MEMORY),
    Scenario("mixed", "Mixed chaos", "20,000 jobs, kills for 3 minutes", _MEMORY),
    Scenario("poison", "Poison", "runs 3 times, then the DLQ; neighbours unblamed", _MEMORY),
    Scenario("store-restart", "Store restart", "workers resume within 5 s", _SERVERS),
    Scenario(
        "network",
        "Network",
        "noticed within 10 s",
        {**_MEMORY, "sqlite": NETWORK, "cluster": SAME_WIRE},
    ),
    Scenario("cut-replies", "Replies cut", "no duplicate id", {**_MEMORY, "sqlite": NETWORK, "cluster": SAME_WIRE}),
    Scenario("cancellation", "Calls cancelled at every await", "the next call gets its own reply", {}),
    Scenario("blocked", "Blocked interpreter", "no false reclaim with a lease of 10 s", _MEMORY),
    Scenario("no-faults", "No faults", "100,000 jobs, each executed once", _MEMORY),
    Scenario(
        "clocks",
        "Wrong clocks",
        "no job claimed twice",
        {
            **_MEMORY,
            "sqlite": "the processes of one machine share its clock; steps of it are tested apart "
            "(tests/drivers/test_sqlite_clock.py)",
        },
    ),
    Scenario(
        "backlog",
        "Backlog",
        "reserve p99 ≤ 5 ms; an expired job waits ≤ 5 s",
        {"memory": "a million jobs in one process: the cost of its calls is in tests/drivers/test_memory_cost.py"},
    ),
    Scenario("model", "State machine against the model", "no difference", {}),
    Scenario(
        "simulation",
        "Simulation on virtual time",
        "no seed with a violation",
        dict.fromkeys(
            ("sqlite", "postgres", "redis", "cluster"),
            "virtual time needs a store without input and output; the model holds the others equal to it",
        ),
    ),
    Scenario("idempotent-race", "Racing idempotency keys", "1,000 keys: 1,000 jobs", _MEMORY),
    Scenario("shutdown", "Shutdown", "no reserve after 0.5 s, no attempt spent", _MEMORY),
    Scenario("damaged", "Damaged records", "the worker goes on, the record is set aside", {}),
    Scenario("migrations", "Migrations", "one applies, the others wait", _MEMORY),
    Scenario("full", "Disk full, maxmemory", "an enqueue raises; goes on when freed", {"memory": "it has no limit"}),
    Scenario(
        "bloat",
        "Bloat",
        "throughput ≥ 50 %, a warning within 60 s",
        dict.fromkeys(("memory", "sqlite", "redis", "cluster"), "dead rows are PostgreSQL's"),
    ),
    Scenario(
        "pgbouncer",
        "pgbouncer in transaction mode",
        "the whole contract",
        dict.fromkeys(("memory", "sqlite", "redis", "cluster"), "it is a pooler for PostgreSQL"),
    ),
    Scenario(
        "many-processes",
        "16 processes on one file",
        '"database is locked" never surfaces',
        dict.fromkeys(("memory", "postgres", "redis", "cluster"), "a question of files only"),
    ),
    Scenario("text", "Text that is hard to store", "the job ends recorded", {}),
    Scenario("soak", "Soak", "memory, descriptors, threads, rows flat", _MEMORY),
)
