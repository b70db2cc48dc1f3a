"""`loom webhooks test`: what is said of an endpoint that cannot be reached, and what to look at."""

import base64
import json
import socket
import ssl
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.cli.conftest import House, Said
from tests.cli.test_access import behind_tls
from tests.support.receiver import receiver

SECRET = f"whsec_{base64.b64encode(bytes(32)).decode()}"
HIDDEN = "T0-hidden"


def tried(folder: Path, url: str, timeout: str = "30s", **more: str) -> Said:
    """Try an endpoint by hand, whose address stands in a variable."""
    file = folder / "webhooks.yaml"
    endpoint: dict[str, Any] = {"name": "chat", "url": "${env:CHAT_URL}", "secret": "HOOK", "timeout": timeout}
    file.write_text(json.dumps({"loom": 1, "kind": "webhooks", "endpoints": [endpoint]}))
    place = House(folder, "127.0.0.1:9", folder / "loom.db", "nobody", {})
    return place.loom("webhooks", "test", "chat", "--webhooks", str(file), HOOK=SECRET, CHAT_URL=url, **more)


def told(said: Said, where: str, *parts: str) -> None:
    """Look that a failure is one line with the place, and nothing of the rest of the address."""
    assert (said.code, said.out, said.err.count("\n")) == (1, "", 1), said
    assert f"(at {where}); check " in said.err
    assert HIDDEN not in said.err
    for part in parts:
        assert part in said.err, said.err


def free(stack: ExitStack, *, listen: bool) -> int:
    """Give a port on which nothing answers: nobody listens, or nobody takes what comes."""
    taken = stack.enter_context(socket.socket())
    taken.bind(("127.0.0.1", 0))
    if listen:
        taken.listen(8)
    return int(taken.getsockname()[1])


def test_a_closed_port_a_silent_one_and_a_host_that_is_not_there_are_told_apart(tmp_path: Path) -> None:
    with ExitStack() as stack:
        closed, silent = free(stack, listen=False), free(stack, listen=True)
        said = tried(tmp_path, f"http://127.0.0.1:{closed}/{HIDDEN}")
        told(said, f"127.0.0.1:{closed}", "chat cannot be reached: nothing listens there", "whether the receiver is up")
        said = tried(tmp_path, f"http://127.0.0.1:{silent}/{HIDDEN}", timeout="1s")
        told(
            said,
            f"127.0.0.1:{silent}",
            "chat did not answer within 1 s",
            "whether the receiver answers before it works",
        )
    said = tried(tmp_path, f"https://chat.invalid/{HIDDEN}")
    told(said, "chat.invalid:443", "chat cannot be reached: there is no such host", "DNS")


def test_a_status_says_what_to_look_at(tmp_path: Path) -> None:
    endpoint = receiver()
    with endpoint.up():
        for status, part in (
            (401, "has the secret"),
            (404, "the path"),
            (302, "redirects to"),
            (503, "receiver's log"),
        ):
            endpoint.status = lambda told, status=status: status  # type: ignore[misc]
            told(tried(tmp_path, f"{endpoint.url}/{HIDDEN}"), f"127.0.0.1:{endpoint.port}", f"answered {status}", part)
        endpoint.status = lambda told: 204
        assert tried(tmp_path, endpoint.url).out == "chat answered 204\n"


def certified(folder: Path, names: str) -> tuple[Path, ssl.SSLContext]:
    """Make a certificate for some names, signed by itself."""
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "own.key", "-out", "own.pem", "-days", "2"]
    made += ["-subj", "/CN=own", "-addext", f"subjectAltName={names}"]
    subprocess.run(["openssl", *made], cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "own.pem", folder / "own.key")
    return folder / "own.pem", context


def test_what_is_wrong_with_tls_is_told_and_a_ca_of_ones_own_is_taken(tmp_path: Path) -> None:
    endpoint = receiver()
    file, context = certified(tmp_path, "IP:127.0.0.1")
    with endpoint.up():
        with behind_tls(f"127.0.0.1:{endpoint.port}", context) as place:
            said = tried(tmp_path, f"https://{place}/{HIDDEN}")
            told(said, place, "its certificate is not trusted: self", "SSL_CERT_FILE")
            assert tried(tmp_path, f"https://{place}/hook", SSL_CERT_FILE=str(file)).out == "chat answered 204\n"
            told(tried(tmp_path, f"http://{place}/{HIDDEN}"), place, "is it one of https?")
        where = f"127.0.0.1:{endpoint.port}"
        told(tried(tmp_path, f"https://{where}/{HIDDEN}"), where, "does not speak TLS", "is it one of plain http?")
    file, context = certified(tmp_path, "DNS:other.example")
    with endpoint.up(), behind_tls(f"127.0.0.1:{endpoint.port}", context) as place:
        said = tried(tmp_path, f"https://{place}/{HIDDEN}", SSL_CERT_FILE=str(file))
        told(said, place, "its certificate is not trusted: IP address mismatch", "the name in the address")
