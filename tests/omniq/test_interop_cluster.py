"""The published clients and ours on a Redis Cluster: queues in different slots, each shared."""

import pytest

from taskharbor.omniq import Job, OmniQ, now_ms
from tests.omniq.peers import VERSIONS, Peer, Side
from tests.omniq.store import Store
from tests.servers import redis as servers


@pytest.mark.lane("omniq-interop")
@pytest.mark.parametrize("version", VERSIONS)
def test_one_publishes_the_other_reserves_the_first_acks(version):
    cluster = servers.shared_cluster()
    cluster.empty()
    peer = Peer(version, cluster.nodes[0].port, 0)
    try:
        with OmniQ(cluster.url) as q, cluster.client() as raw:
            ours, theirs = Side("ours", q), Side(version, peer)
            for number in range(6):
                queue, (a, b) = f"q{number}", (ours, theirs) if number % 2 else (theirs, ours)
                job_id = a.publish(queue, {"n": 1}, gid="g")
                job = b.reserve(queue, now_ms() + 1000)
                assert isinstance(job, Job)
                assert Store(raw, queue).wrong() == []
                a.held("ack_success", queue, job, now_ms() + 1001)
                assert Store(raw, queue).where(job_id) == ["completed"]
    finally:
        peer.close()
