"""Where a client finds its server, and what it says when that one cannot take the call."""

import asyncio

import pytest
import redis

from taskharbor import BackendUnavailable
from taskharbor.omniq import AsyncOmniQ, OmniQ
from tests.omniq.conftest import url
from tests.servers import redis as servers
from tests.servers.ports import free_port


def opened(address: str) -> list[str]:
    """Publish through both kinds of clients; returns the ids."""

    async def awaited() -> str:
        async with AsyncOmniQ(address) as q:
            return await q.publish("jobs", {}, job_id="b")

    with OmniQ(address) as q:
        return [q.publish("jobs", {}, job_id="a"), asyncio.run(awaited())]


def test_an_address_of_the_driver_will_do(server):
    assert opened(f"{url(server)}?retention=1h&checks=0&timeout=5s&max_connections=7") == ["a", "b"]


def test_a_socket_in_the_file_system(tmp_path):
    server = servers.Server(unixsocket=f"{tmp_path}/redis")
    try:
        assert opened(f"unix://{tmp_path}/redis?db=3") == ["a", "b"]
        with server.client(db=3) as raw:
            assert raw.llen("{jobs}:wait") == 2
    finally:
        server.stop()


@pytest.mark.left_to("full")
def test_a_cluster_of_which_the_first_node_is_down():
    cluster = servers.shared_cluster()
    cluster.empty()
    assert opened(f"redis+cluster://127.0.0.1:{free_port()},127.0.0.1:{cluster.nodes[1].port}") == ["a", "b"]


def test_one_node_of_a_cluster_is_refused_as_a_server():
    cluster = servers.shared_cluster()
    cluster.empty()
    address = f"redis://127.0.0.1:{next(n for n in cluster.nodes if n is not cluster.primary_of('{jobs}')).port}"
    with pytest.raises(TypeError, match="one node of a Redis Cluster: give the URL redis\\+cluster://"):
        opened(address)


@pytest.mark.parametrize("name", ["redis:/h", "http://h", "h:6379", ""])
def test_invalid_addresses(name):
    with pytest.raises(ValueError, match="expected a URL that begins with one of redis://"):
        OmniQ(name)


def test_a_server_that_cannot_take_it_now_cannot_be_reached(server, q):
    """A full one, one that became a replica: a consumer waits for it, as for one that is away."""
    q.publish("jobs", {}, job_id="a")
    job = q.reserve("jobs")
    server.run("REPLICAOF", "127.0.0.1", free_port())
    try:
        with pytest.raises(BackendUnavailable, match="ReadOnlyError") as caught:
            q.ack_success("jobs", job.job_id, job.lease_token)
        assert isinstance(caught.value.__cause__, redis.RedisError)
    finally:
        server.run("REPLICAOF", "NO", "ONE")
    server.run("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(BackendUnavailable, match="Redis is full"):
            q.publish("jobs", {})
    finally:
        server.run("CONFIG", "SET", "maxmemory", "0")
    q.ack_success("jobs", job.job_id, job.lease_token)
