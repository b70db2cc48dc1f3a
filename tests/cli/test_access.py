"""A server behind TLS: a real listener with certificates made here, in front of a real server."""

import asyncio
import contextlib
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from loom_client.settings import Settings
from loom_dsl.errors import ConfigurationError
from loom_store.server.access import access_of, speaks_tls
from tests.cli.conftest import House, Said, served
from tests.support.waiting import longer, until

KEY = "a-key-that-nobody-may-see"


@dataclass(frozen=True)
class Papers:
    """Certificates: two CAs, a server's certificate of the first, and a client's."""

    folder: Path

    def __getattr__(self, name: str) -> str:
        return str(self.folder / name.replace("_", "."))


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    folder = tmp_path_factory.mktemp("papers")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ("-newkey", "rsa:2048", "-nodes")
    for name in ("ca", "other"):
        openssl(
            "req", "-x509", *new, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "2", "-subj", f"/CN={name}"
        )
    for name in ("server", "client"):
        (folder / "names").write_text("subjectAltName=DNS:temporal.example,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
        openssl("req", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", "/CN=temporal.example")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)
    openssl("pkey", "-in", "client.key", "-aes256", "-passout", "pass:x", "-out", "locked.key")
    (folder / "text.pem").write_text("this is not a certificate\n")
    return Papers(folder)


@contextlib.contextmanager
def behind_tls(address: str, context: ssl.SSLContext) -> Iterator[str]:
    """Listen with TLS on loopback and pass everything on; yields the address."""
    host, _, port = address.rpartition(":")
    ready, stop, at = threading.Event(), threading.Event(), []

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):
                while piece := await source.read(65536):
                    target.write(piece)
                    await target.drain()
            target.close()
        except asyncio.CancelledError:  # the loop ends, and waits for no goodbye
            target.transport.abort()
            raise

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        await asyncio.gather(copy(reader, back), copy(there, writer))

    async def listen() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # a refused handshake is what tests are about
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
        at.append(server.sockets[0].getsockname()[1])
        ready.set()
        await asyncio.to_thread(stop.wait)
        server.close()

    with ThreadPoolExecutor(1) as thread:
        serving = thread.submit(asyncio.run, listen())
        while not ready.wait(0.1) and not serving.done():
            continue
        try:
            yield f"127.0.0.1:{at[0]}"
        finally:
            stop.set()
            serving.result()


@pytest.fixture(scope="module")
def secured(house: House, papers: Papers) -> Iterator[str]:
    """The server's address behind TLS that asks for a client certificate of the first CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(papers.server_pem, papers.server_key)
    context.set_alpn_protocols(["h2"])
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(papers.ca_pem)
    with behind_tls(house.address, context) as address:
        yield address


def examined(house: House, expected: str, **variables: str) -> Said:
    """Ask the doctor until it finds this: it soon gives up on a server that is slow."""

    def found() -> Said:
        said = house.loom("doctor", **variables)
        assert expected in " ".join(said.out.split()), said
        return said

    return until(found)


@pytest.mark.server
def test_a_worker_and_a_client_work_through_tls_with_certificates_and_a_key(
    house: House, papers: Papers, secured: str
) -> None:
    there: dict[str, Any] = {
        "LOOM_ADDRESS": secured,
        "LOOM_TLS_CA": papers.ca_pem,
        "LOOM_TLS_CERT": papers.client_pem,
        "LOOM_TLS_KEY": papers.client_key,
        "LOOM_API_KEY": KEY,
        "LOOM_TASK_QUEUE": f"{house.queue}-tls",
    }
    with served(["worker"], house.environment(**there), house.folder, "worker ready", house.ready) as ready:
        said = house.loom("run", house.agent("calm"), "look", "--workdir", house.workdir(), **there)
        assert said.code == 0, said
        assert "All is well." in said.out
        doctor = examined(house, f"Temporal server {secured}: answers", **there)
    assert KEY not in ready + said.out + said.err + doctor.out + doctor.err
    assert not [log for log in house.folder.glob("*.log") if KEY in log.read_text()]


@pytest.mark.server
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"LOOM_TLS_CA": "other_pem"}, "is not signed by the CA in "),
        ({"LOOM_TLS": "true"}, "is not signed by a CA that this machine knows; set LOOM_TLS_CA"),
        (
            {"LOOM_TLS_CA": "ca_pem", "LOOM_TLS_SERVER_NAME": "x.example"},
            "for another name (temporal.example, 127.0.0.1)",
        ),
        ({"LOOM_TLS_CA": "ca_pem"}, "it may want a client certificate (LOOM_TLS_CERT and LOOM_TLS_KEY)"),
        ({}, "or it wants TLS; then set LOOM_TLS=true"),
    ],
    ids=["another CA", "the machine's CAs", "another name", "no client certificate", "no TLS"],
)
def test_a_connection_that_cannot_be_is_one_line_that_says_what_to_set(
    house: House, papers: Papers, secured: str, given: dict[str, str], expected: str
) -> None:
    variables: dict[str, Any] = {
        name: getattr(papers, value) if "_pem" in value else value for name, value in given.items()
    }
    for command in (["worker"], ["run", house.agent("calm"), "x"]):
        for seconds in longer(5):  # on a slow machine they may be over before it is known why
            said = house.loom(*command, LOOM_ADDRESS=secured, LOOM_CONNECT_SECONDS=str(seconds), **variables)
            assert said.code == 2, said
            if expected in said.err:
                break
        assert said.err.startswith("error: ")
        assert expected in said.err
        assert said.err.count("\n") == 1
    assert examined(house, expected, LOOM_ADDRESS=secured, **variables).code == 1


@pytest.mark.server
def test_a_server_without_tls_is_told_as_such(house: House, papers: Papers) -> None:
    said = house.loom("run", house.agent("calm"), "x", LOOM_TLS_CA=papers.ca_pem)
    assert said.code == 2
    assert f"the Temporal server at {house.address} does not speak TLS; unset LOOM_TLS" in said.err


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"tls_ca": "none_pem"}, r"the CA file .*none\.pem \(LOOM_TLS_CA\) cannot be read: No such file"),
        ({"tls_ca": "text_pem"}, r"\(LOOM_TLS_CA\) holds no certificate in PEM form"),
        ({"tls_ca": "client_key"}, r"\(LOOM_TLS_CA\) holds no certificate in PEM form"),
        ({"tls_cert": "client_pem"}, "LOOM_TLS_CERT is set without LOOM_TLS_KEY"),
        ({"tls_key": "client_key"}, "LOOM_TLS_KEY is set without LOOM_TLS_CERT"),
        ({"tls_cert": "client_pem", "tls_key": "server_key"}, "does not belong to the certificate"),
        ({"tls_cert": "client_pem", "tls_key": "locked_key"}, "is encrypted; give one without a password"),
        ({"tls_cert": "client_pem", "tls_key": "text_pem"}, "holds no private key in PEM form"),
        ({"tls_cert": "text_pem", "tls_key": "client_key"}, "is not in PEM form"),
        ({"api_key": "two words"}, "the API key .LOOM_API_KEY. has characters that no key has"),
        ({"api_key": KEY, "tls": False}, "an API key is never sent in the clear"),
    ],
)
def test_what_cannot_be_used_is_told_before_anything_is_sent(
    papers: Papers, given: dict[str, object], expected: str
) -> None:
    files = {"tls_ca", "tls_cert", "tls_key"}
    values = {name: getattr(papers, str(value)) if name in files else value for name, value in given.items()}
    with pytest.raises(ConfigurationError, match=expected) as caught:
        access_of(Settings.model_validate(values))
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "tls", "key"),
    [
        ({}, False, None),
        ({"LOOM_TLS": "1"}, True, None),
        ({"LOOM_API_KEY": f" {KEY}\n"}, True, KEY),
        ({"TEMPORAL_API_KEY": KEY}, True, KEY),
        ({"LOOM_API_KEY": KEY, "TEMPORAL_API_KEY": "other"}, True, KEY),
        ({"TEMPORAL_TLS": "true"}, True, None),
        ({"LOOM_TLS": "false", "TEMPORAL_TLS": "true"}, False, None),
        ({"LOOM_TLS": "", "LOOM_API_KEY": ""}, False, None),
    ],
)
def test_the_environment_says_how_the_connection_is_secured(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], tls: bool, key: str | None
) -> None:
    for name in [name for name in os.environ if name.startswith(("LOOM_", "TEMPORAL_"))]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    access = access_of(settings)
    assert (speaks_tls(settings), bool(access.tls), access.api_key) == (tls, tls, key)
    assert KEY not in repr(settings) + repr(access)
