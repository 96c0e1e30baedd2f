"""Redis behind TLS, with a CA made here: jobs run through both interfaces; an untrusted side learns what to do."""

import asyncio
import subprocess
import threading
from pathlib import Path

import pytest

from taskharbor import BackendUnavailable, Harbor
from taskharbor.drivers import open_driver
from taskharbor.drivers.redis import tls
from taskharbor.omniq import AsyncOmniQ, OmniQ
from taskharbor.worker import Worker
from tests.servers import redis as servers
from tests.servers.ports import free_port

pytestmark = pytest.mark.lane("redis")

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def openssl(folder: Path, *command: str) -> None:
    subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two CAs, and a certificate of the first for 127.0.0.1, which serves as a client's too."""
    made = tmp_path_factory.mktemp("tls")
    for name in ("ca", "other"):
        openssl(made, "req", "-x509", *KEY, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
    openssl(made, "req", *KEY, "-keyout", "one.key", "-out", "one.csr", "-subj", "/CN=one")
    (made / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
    openssl(made, "x509", "-req", "-in", "one.csr", *signing, "-out", "one.pem")
    return made


@pytest.fixture(scope="module")
def server(folder: Path):
    made = servers.Server(
        tls_port=str(free_port()),
        tls_auth_clients="no",
        tls_cert_file=f"{folder}/one.pem",
        tls_key_file=f"{folder}/one.key",
        tls_ca_cert_file=f"{folder}/ca.pem",
    )
    yield made
    made.stop()


def address(server: servers.Server, host: str = "127.0.0.1", **options: object) -> str:
    given = "&".join(f"{name}={value}" for name, value in options.items())
    return f"rediss://{host}:{server.settings['tls-port']}?{given}"


def told(dsn: str) -> str:
    """What the driver says when it cannot open the store."""

    async def live() -> None:
        driver = open_driver(dsn)
        try:
            await driver.open()
        finally:
            await driver.close()

    with pytest.raises(BackendUnavailable) as caught:
        asyncio.run(live())
    return str(caught.value)


def test_jobs_run_through_both_faces(server, folder):
    dsn = address(server, ssl_ca_certs=folder / "ca.pem", checks=0)
    seen: list[str] = []

    async def awaited() -> None:
        async with AsyncOmniQ(dsn) as q:
            await q.publish("secret", {"word": "awaited"})

    def client(worker: Worker) -> None:
        servers.until(lambda: server.run("PUBSUB", "NUMSUB", "{secret}:th:wake")[1], "the worker to listen")
        note.enqueue("driver")
        with OmniQ(dsn) as q:
            q.publish("secret", {"word": "omniq"})
        asyncio.run(awaited())
        servers.until(lambda: len(seen) == 3, "three jobs to run")
        worker.stop()

    with Harbor(dsn) as harbor:

        @harbor.task(queue="secret", name="secret")
        def note(word: str) -> None:
            seen.append(word)

        worker = harbor.worker(queues=["secret"])
        thread = threading.Thread(target=client, args=(worker,))
        thread.start()
        worker.run()
        thread.join()
    assert sorted(seen) == ["awaited", "driver", "omniq"]


@pytest.mark.parametrize("ca", [None, "other.pem"])
def test_a_ca_that_is_not_trusted_is_named(server, folder, ca):
    dsn = address(server, **({"ssl_ca_certs": folder / ca} if ca else {}))
    assert "name the CA that signed the server's certificate with ssl_ca_certs=" in told(dsn)
    with OmniQ(dsn) as q, pytest.raises(BackendUnavailable, match="name the CA"):
        q.publish("secret", {})


def test_a_worker_does_not_wait_for_a_certificate_that_will_never_do(server, folder):
    with Harbor(address(server, ssl_ca_certs=folder / "other.pem")) as harbor:
        harbor.task(name="note")(print)
        with pytest.raises(BackendUnavailable, match="name the CA"):
            harbor.worker().run()


def test_a_certificate_for_another_host(server, folder):
    dsn = address(server, "localhost", ssl_ca_certs=folder / "ca.pem", checks=0)
    assert "give the host that the certificate names" in told(dsn)
    with OmniQ(dsn) as q, pytest.raises(BackendUnavailable, match="give the host"):
        q.publish("secret", {})
    with OmniQ(f"{dsn}&ssl_check_hostname=0") as q:
        assert q.is_paused("secret") is False
    with OmniQ(address(server, "localhost", ssl_cert_reqs="none")) as q:
        assert q.is_paused("secret") is False


def test_a_server_that_asks_for_a_certificate(server, folder):
    dsn = address(server, ssl_ca_certs=folder / "ca.pem", checks=0)
    own = f"{dsn}&ssl_certfile={folder}/one.pem&ssl_keyfile={folder}/one.key"
    server.run("CONFIG", "SET", "tls-auth-clients", "yes")
    try:
        assert "name one that it trusts with ssl_certfile and ssl_keyfile" in told(dsn)
        with OmniQ(own) as q:
            assert q.publish("asked", {}, job_id="a") == "a"
    finally:
        server.run("CONFIG", "SET", "tls-auth-clients", "no")


@pytest.mark.parametrize("name", ["missing.pem", "ca.key"])
def test_a_file_that_is_not_a_certificate(server, folder, name):
    assert "name files in PEM that this process can read" in told(address(server, ssl_ca_certs=folder / name))


def test_a_port_without_tls(server, folder):
    dsn = f"rediss://127.0.0.1:{server.port}?ssl_ca_certs={folder}/ca.pem&connect_timeout=200ms"
    assert "does the server speak TLS at this port?" in told(dsn)
    assert "did not answer" in told(f"redis://127.0.0.1:{server.settings['tls-port']}")


def test_advice_for_a_handshake_that_times_out():
    error = TimeoutError("no connection within 0.2 s")
    assert tls.advice(error) == ("; does the server speak TLS at this port?", False)


@pytest.mark.parametrize(
    ("dsn", "expected"),
    [
        ("redis://h?ssl_ca_certs=ca.pem", "ssl_ca_certs: expected TLS with it; write rediss://"),
        ("redis+cluster://h?ssl_certfile=a.pem", "ssl_certfile: expected TLS with it"),
        ("rediss://h?ssl_cert_reqs=maybe", "ssl_cert_reqs: expected required, optional, none, got 'maybe'"),
        ("rediss://h?ssl_check_hostname=yes", "ssl_check_hostname: expected 0 or 1, got 'yes'"),
    ],
)
def test_options_that_cannot_be_meant(dsn, expected):
    for opened in (open_driver, OmniQ):
        with pytest.raises(ValueError, match="expected") as caught:
            opened(dsn)
        assert expected in str(caught.value)
