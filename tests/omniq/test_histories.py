"""Random histories of operations from all three clients: after each step the invariants of the format hold.

An id stands in exactly one lane and its state agrees, a group's inflight is its active jobs, a group with work and room
is ready, tokens and scores agree with the records, and nothing is lost. A failure prints the seed and the steps.
"""

import random
from collections.abc import Iterator

import pytest

from taskharbor.omniq import Job, OmniQ, OmniQError, now_ms
from tests import lanes
from tests.omniq.conftest import DATABASE, url
from tests.omniq.peers import VERSIONS, Peer, Refused, Side
from tests.omniq.store import Store
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("omniq-interop")

SEEDS = lanes.figure(3, 40)
STEPS = lanes.figure(120, 250)
GROUPS = {"a": 1, "b": 2, "c": 3}
WEIGHTS = {"publish": 6, "reserve": 8, "beat": 2, "ack": 5, "fail": 4, "reap": 2, "promote": 3, "retry": 1, "remove": 1,
           "pause": 0.3, "resume": 1, "late": 1, "back": 1}  # fmt: skip

EXPECTED = ("TOKEN_MISMATCH", "NOT_ACTIVE", "NOT_FAILED", "NO_JOB", "LANE_MISMATCH", "ACTIVE", "NOT_IN_LANE")


class History:
    """One seed: what was published, which leases are held, what has to be somewhere."""

    def __init__(self, seed: int, sides: list[Side], store: Store) -> None:
        self.random = random.Random(seed)
        self.sides, self.store = sides, store
        self.now = now_ms()
        self.leases: list[Job] = []
        self.published = 0
        self.known: set[str] = set()
        self.ended: set[str] = set()  # completed: others trim them to 100
        self.steps: list[str] = []

    def begin(self) -> None:
        ours = next(side for side in self.sides if side.name == "ours")
        for gid, limit in GROUPS.items():  # a first limit that a peer's delayed job brings is a hazard of theirs (13b)
            ours.verb("set_group_limit", "jobs", gid=gid, limit=limit)

    def step(self) -> None:
        self.now += self.random.choice((0, 1, 5, 50, 700))
        side = self.random.choice(self.sides)
        name = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        self.steps.append(f"{side}.{name}@{self.now}")
        try:
            getattr(self, name)(side)
        except (Refused, OmniQError) as refused:
            self.steps[-1] += f" refused: {refused}"
            if not any(word in str(refused) for word in EXPECTED):
                raise

    def publish(self, side: Side) -> None:
        self.published += 1
        options = {
            "job_id": f"{self.published:03}-{side}",
            "max_attempts": self.random.choice((1, 2, 3)),
            "timeout_ms": self.random.choice((10, 500, 5000)),
            "backoff_ms": self.random.choice((0, 100)),
            "gid": self.random.choice((None, None, *GROUPS)),
        }
        if self.random.random() < 0.3:
            options["due_ms"] = self.now + self.random.choice((1, 300, 2000))
        self.known.add(side.publish("jobs", {"n": self.published}, now=self.now, **options))

    def reserve(self, side: Side) -> None:
        job = side.reserve("jobs", self.now)
        if isinstance(job, Job):
            self.leases.append(job)

    def beat(self, side: Side) -> None:
        if self.leases:
            side.held("heartbeat", "jobs", self.random.choice(self.leases), self.now)

    def ack(self, side: Side) -> None:
        if self.leases:
            job = self.leases.pop(self.random.randrange(len(self.leases)))
            side.held("ack_success", "jobs", job, self.now)
            self.ended.add(job.job_id)

    def fail(self, side: Side) -> None:
        if self.leases:
            job = self.leases.pop(self.random.randrange(len(self.leases)))
            side.held("ack_fail", "jobs", job, self.now, error="no")

    def late(self, side: Side) -> None:
        """An ack with a token that is nobody's."""
        if self.known:
            job = Job(job_id=self.random.choice(sorted(self.known)), payload="", lock_until_ms=0, attempt=0, gid="",
                      lease_token="0" * 40)  # fmt: skip
            side.held(self.random.choice(("ack_success", "heartbeat", "ack_fail")), "jobs", job, self.now)

    def back(self, side: Side) -> None:
        if self.leases and side.name == "ours":
            side.held("give_back", "jobs", self.leases.pop(self.random.randrange(len(self.leases))), self.now)

    def reap(self, side: Side) -> None:
        side.verb("reap_expired", "jobs", max_reap=self.random.choice((1, 100)), now_ms_override=self.now)

    def promote(self, side: Side) -> None:
        side.verb("promote_delayed", "jobs", max_promote=self.random.choice((1, 100)), now_ms_override=self.now)

    def retry(self, side: Side) -> None:
        failed = self.store.lines("failed")
        if failed:
            side.verb("retry_failed", "jobs", job_id=self.random.choice(failed), now_ms_override=self.now)

    def remove(self, side: Side) -> None:
        standing = [(lane, each) for lane, each in self.store.lanes() if lane in ("wait", "gwait", "delayed", "failed")]
        if standing:
            lane, job_id = self.random.choice(standing)
            side.verb("remove_job", "jobs", job_id=job_id, lane=lane)
            self.known.discard(job_id)
            self.ended.add(job_id)

    def pause(self, side: Side) -> None:
        side.verb("pause", "jobs")

    def resume(self, side: Side) -> None:
        side.verb("resume", "jobs")

    def check(self) -> None:
        wrong = self.store.wrong()
        lost = self.known - self.ended - {each for _, each in self.store.lanes()}
        assert not wrong and not lost, f"{wrong} lost: {lost}\n" + "\n".join(self.steps[-40:])  # noqa: PT018 - one message for both


@pytest.fixture(scope="module")
def sides() -> Iterator[list[Side]]:
    server = servers.shared()
    ours = OmniQ(url(server))
    peers = [Peer(version, server.port, DATABASE) for version in VERSIONS]
    yield [Side("ours", ours), *(Side(peer.name, peer) for peer in peers)]
    ours.close()
    for peer in peers:
        peer.close()


@pytest.mark.parametrize("number", range(SEEDS))
def test_random_histories_keep_the_invariants(sides, server, store, number):
    seed = lanes.seed() + number
    history = History(seed, sides, store)
    history.begin()
    for _ in range(STEPS):
        history.step()
        history.check()
    drain(history)


def drain(history: History) -> None:
    """In the end everything can be brought to its end, by us alone."""
    ours = history.sides[0]
    ours.verb("resume", "jobs")
    for _ in range(1000):
        history.now += 10_000
        ours.verb("reap_expired", "jobs", now_ms_override=history.now)
        ours.verb("promote_delayed", "jobs", now_ms_override=history.now)
        job = ours.reserve("jobs", history.now)
        if isinstance(job, Job):
            ours.held("ack_success", "jobs", job, history.now)
            history.ended.add(job.job_id)
        elif {lane for lane, _ in history.store.lanes()} <= {"completed", "failed"}:
            break  # else the retry of a job is due later
    else:
        raise AssertionError("a job never ends")
    history.check()
