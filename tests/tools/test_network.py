"""network_request: where it does not go, what it does not send, and what it does not tell."""

import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loom_dsl.errors import ConfigurationError, LoomError, PermissionDenied, ToolError, ToolValidationError
from loom_dsl.tools.context import ToolContext, ToolServices
from loom_dsl.tools.tool import validate_arguments
from loom_tools.builtin import network
from loom_tools.builtin.network import CheckedBackend, check_host, is_public, parse_url
from loom_tools.registry import ToolRegistry
from loom_tools.secrets import AllowedSecrets
from tests.support.echo_server import EchoServer, echo_server
from tests.support.waiting import PATIENCE

TOKEN = "token-of-the-shop-0815"
Ask = Callable[..., str]


@pytest.fixture(scope="module")
def server() -> Iterator[EchoServer]:
    with echo_server() as made:
        yield made


@pytest.fixture
def ask(server: EchoServer, tmp_path: Path) -> Ask:
    """Call the tool as the pipeline does; the server's address is allowed, and a secret may be sent to it."""
    made = ToolRegistry.load().resolve("network_request")
    environment = {"SHOP": TOKEN, "OTHER": "another-secret-4711"}
    secrets = AllowedSecrets.of([f"SHOP@127.0.0.1:{server.port}", "OTHER"], environment)
    services = ToolServices(secret=secrets.value, private_hosts=frozenset({f"127.0.0.1:{server.port}"}))
    context = ToolContext(working_dir=tmp_path, idempotency_key="job/1/call", services=services)

    def call(url: str, **arguments: Any) -> str:
        own = url.startswith("/") and not url.startswith("//")
        given = {"url": server.url(url) if own else url, **arguments}
        return str(made(**made.bind(validate_arguments(made, given), context)))

    return call


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("64:ff9b::5db8:d822", True),
        *[
            (address, False)
            for address in (
                *("127.0.0.1", "127.8.9.1", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
                *("100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192", "198.18.0.1", "224.0.0.1"),
                *("240.0.0.1", "255.255.255.255", "192.88.99.1", "203.0.113.7", "::", "::1", "::127.0.0.1"),
                *("::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b:1::1"),
                *("64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001:0:7f00:1::", "2001:db8::1", "fe80::1", "fe80::1%eth0"),
                *("fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "ff0e::1", "5f00::1", "3fff::1", "100::1", "x"),
            )
        ],
    ],
)
def test_only_addresses_of_single_machines_on_the_internet_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public


@pytest.mark.parametrize(
    "host",
    [
        *("127.1", "127.0.1", "0177.0.0.1", "0x7f.0.0.1", "0x7f000001", "2130706433", "017700000001", "127.0.0.01"),
        *("0", "1", "0x", "127.0.0.1.", "256.1.1.1", "1.2.3.4.5", "example.1"),
    ],
)
def test_other_spellings_of_an_address_are_refused_before_anything_looks_them_up(host: str) -> None:
    with pytest.raises(PermissionDenied, match="unusual spelling"):
        check_host(host)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://example.com/", "neither http"),
        ("file:///etc/passwd", "neither http"),
        ("gopher://127.0.0.1:6379/_x", "neither http"),
        ("//example.com/", "neither http"),
        ("example.com", "neither http"),
        ("javascript:alert(1)", "neither http"),
        ("https://", "names no host"),
        ("https:///path", "names no host"),
        ("https://user:pass@example.com/", "name or password"),
        ("https://example.com@127.0.0.1/", "name or password"),
        ("https://exa mple.com/", "a space"),
        ("https://example.com/\r\nHost: x", "a space"),
        ("https://example.com\\@127.0.0.1/", "backslash"),
        ("https://example.com:0/", "names no host"),
        ("https://example.com:99999/", "not an address"),
        ("https://example.com:1x/", "not an address"),
        ("https://[::1", "not an address"),
        ("https://[fe80::1%25eth0]/", "network of this machine"),
        ("https://exa%6dple.com/", "not a name"),
        ("https://example.com/?k=${secret:SHOP}", "does not belong in an address"),
        ("http://2130706433/", "unusual spelling"),
        ("http://①②⑦.⓪.⓪.①:99/", "unusual spelling|127"),
        ("http://127。0。0。1:99/", "not on the public internet"),
        ("http://127.0.0.1:1/", "not on the public internet"),
        ("http://[::1]:1/", "not on the public internet"),
        ("http://[::ffff:127.0.0.1]:1/", "not on the public internet"),
        ("http://localhost:1/", "not on the public internet"),
        ("http://169.254.169.254/latest/meta-data/", "not on the public internet"),
        ("http://[64:ff9b::169.254.169.254]/", "not on the public internet"),
    ],
)
def test_an_address_that_leads_elsewhere_than_it_says_is_refused(ask: Ask, url: str, words: str) -> None:
    with pytest.raises(LoomError, match=words):
        ask(url)


@pytest.mark.parametrize(
    "url",
    [
        *("file:///etc/passwd", "https://user:pw@example.com/", "https://example.com/?key=${secret:SHOP}"),
        *("http://169.254.169.254/latest", "http://[fd00:ec2::254]/", "http://0x7f.1/", "no address"),
    ],
)
def test_what_is_refused_wherever_it_comes_from_is_refused_before_anybody_is_asked(url: str) -> None:
    check = ToolRegistry.load().resolve("network_request").check
    assert check is not None
    with pytest.raises(LoomError):
        check({"url": url})
    for other in ("https://example.com/a?b=c", "http://127.0.0.1:8080/", "http://10.0.0.1/"):
        check({"url": other})  # a worker may allow such a service


def test_every_address_of_a_name_is_checked_and_the_checked_one_is_connected_to(server: EchoServer) -> None:
    answers = iter([["93.184.216.34", "127.0.0.1"], ["127.0.0.1"]])
    backend = CheckedBackend(time.monotonic() + PATIENCE, frozenset(), lambda host, port: next(answers))
    with pytest.raises(PermissionDenied, match=r"rebind\.example is at 127\.0\.0\.1"):
        backend.connect_tcp("rebind.example", server.port)
    looked_up = []

    def once(host: str, port: int) -> list[str]:
        looked_up.append(host)
        return ["127.0.0.1"]

    allowed = CheckedBackend(time.monotonic() + PATIENCE, frozenset({f"shop.internal:{server.port}"}), once)
    allowed.connect_tcp("shop.internal", server.port).close()
    assert looked_up == ["shop.internal"]
    metadata = CheckedBackend(
        time.monotonic() + PATIENCE, frozenset({"meta:80"}), lambda host, port: ["169.254.169.254"]
    )
    with pytest.raises(PermissionDenied):
        metadata.connect_tcp("meta", 80)


def test_an_answer_is_told_with_its_status_and_without_its_cookies(ask: Ask) -> None:
    text = ask("/echo")
    assert text.startswith("HTTP 200 from http://127.0.0.1:")
    assert 'etag: "a"' in text
    assert text.endswith("hello nobody")
    assert "4711" not in text
    assert "HTTP 418" in ask("/teapot")
    assert ask("/teapot").endswith('{"short": "stout"}')
    assert ask("/latin").endswith("grün")
    assert "[a binary body: 256 bytes, application/octet-stream]" in ask("/binary")
    assert "of gzip, which was not asked for" in ask("/gzip")
    assert "[no body]" in ask("/echo", method="HEAD")


def test_a_secret_is_sent_to_its_host_only_and_never_in_the_address(ask: Ask, server: EchoServer) -> None:
    ask("/echo", headers={"Authorization": "Bearer ${secret:SHOP}"})
    assert server.seen[-1][2]["authorization"] == f"Bearer {TOKEN}"
    before = len(server.seen)
    for name, words in (("OTHER", "may not be sent to"), ("OPENAI_API_KEY", "lends no secret")):
        with pytest.raises(PermissionDenied, match=words):
            ask("/echo", headers={"Authorization": "${secret:" + name + "}"})
    with pytest.raises(PermissionDenied, match="without encryption"):
        ask("http://example.com/", headers={"X-Key": "${secret:SHOP}"})
    with pytest.raises(PermissionDenied, match=r"may not be sent to example\.com:443"):
        ask("https://example.com/", headers={"X-Key": "${secret:SHOP}"})
    assert len(server.seen) == before


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"Host": "internal"}, "not yours to set"),
        ({"Transfer-Encoding": "chunked"}, "not yours to set"),
        ({"Content-Length": "0"}, "not yours to set"),
        ({"Proxy-Authorization": "x"}, "not yours to set"),
        ({"Metadata-Flavor": "Google"}, "not yours to set"),
        ({"X-Forwarded-For": "127.0.0.1"}, "not yours to set"),
        ({"X\r\nHost": "a"}, "not the name of a header"),
        ({"X Y": "a"}, "not the name of a header"),
        ({"": "a"}, "not the name of a header"),
        ({"X": "a\r\nHost: b"}, "what a header cannot"),
        ({"X": "a\0"}, "what a header cannot"),
        ({"X": "日本"}, "what a header cannot"),
        ({f"X-{n}": "a" for n in range(41)}, "too many"),
    ],
)
def test_headers_that_change_where_a_request_goes_are_refused(ask: Ask, headers: dict[str, str], words: str) -> None:
    with pytest.raises(LoomError, match=words):
        ask("/echo", headers=headers)


def test_redirects_are_followed_within_a_host_and_told_beyond_it(ask: Ask, server: EchoServer) -> None:
    assert ask("/redirect/_echo").endswith("hello nobody")
    elsewhere = ask("/redirect/http:__169.254.169.254_latest", headers={"Authorization": "${secret:SHOP}"})
    assert "HTTP 302" in elsewhere
    assert "location: http://169.254.169.254/latest" in elsewhere
    assert "was not followed" in elsewhere
    other_port = ask(f"/redirect/http:__127.0.0.1:{server.port + 1}_x")
    assert "was not followed" in other_port
    before = len(server.seen)
    assert "was not followed" in ask("/redirect/_echo", method="POST", body="once")
    assert len(server.seen) == before + 1
    with pytest.raises(ToolError, match="one redirect to the next"):
        ask("/loop/")


def test_a_request_that_changes_something_carries_a_key_that_every_attempt_has(ask: Ask, server: EchoServer) -> None:
    ask("/echo", method="POST", body='{"a": 1}', headers={"Content-Type": "application/json"})
    ask("/echo", method="POST", body='{"a": 1}')
    first, second = server.seen[-2:]
    assert first[0] == "POST"
    assert first[3] == b'{"a": 1}'
    assert (first[2]["content-type"], second[2]["content-type"]) == ("application/json", "text/plain; charset=utf-8")
    assert first[2]["idempotency-key"] == second[2]["idempotency-key"] != ""
    ask("/echo")
    assert "idempotency-key" not in server.seen[-1][2]


def test_an_answer_ends_at_its_size_and_its_time(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ask("/endless")
    assert text.endswith("bytes were read]") or "only the first 2097.2 KB were read]" in text
    monkeypatch.setattr(network, "SECONDS", 0.5)
    with pytest.raises(ToolError, match="did not answer in time"):
        ask("/drip")


def test_a_host_that_is_not_there_is_told() -> None:
    made = ToolRegistry.load().resolve("network_request")
    context = ToolContext(working_dir=Path(), services=ToolServices(private_hosts=frozenset({"127.0.0.1:1"})))
    with pytest.raises(ToolError, match="cannot be reached"):
        made(url="http://127.0.0.1:1/", context=context)
    with pytest.raises(ToolError, match="cannot be found"):
        made(url="http://no-such-host.invalid/", context=context)
    with pytest.raises(ToolValidationError):
        validate_arguments(made, {"url": "https://example.com", "method": "CONNECT"})


def test_only_what_asks_is_sent_again_after_a_crash(tmp_path: Path) -> None:
    made = ToolRegistry.load().resolve("network_request")
    assert made.reconcile is not None
    assert not made.idempotent
    context = ToolContext(working_dir=tmp_path)
    said = {
        m: made.reconcile({"method": m}, context).outcome for m in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH")
    }
    again = {method for method, outcome in said.items() if outcome == "not_happened"}
    assert again == {"GET", "HEAD"}
    assert {said[method] for method in said.keys() - again} == {"unknown"}


@pytest.mark.parametrize("text", ["", "1A", "A@", "A@b c", "A@https://b", "A@b@c", "A@b:x", "A B", "A@b,", "A@*"])
def test_a_secret_option_is_a_name_perhaps_with_hosts(text: str) -> None:
    with pytest.raises(ConfigurationError, match="write NAME"):
        AllowedSecrets.of([text], {})


def test_a_port_that_is_the_usual_one_need_not_be_written() -> None:
    secrets = AllowedSecrets.of(["KEY@api.example.com", "KEY@b.example:8443"], {"KEY": "value-of-it"})
    assert secrets.value("KEY", "api.example.com:443") == secrets.value("KEY", "b.example:8443") == "value-of-it"
    assert secrets.value("KEY") == "value-of-it"
    for host in ("api.example.com:80", "api.example.com:8443", "evil.api.example.com:443", "api.example.com.evil:443"):
        with pytest.raises(PermissionDenied):
            secrets.value("KEY", host)


def test_an_address_keeps_its_path_and_query() -> None:
    target = parse_url("HTTPS://Example.COM:8443/a%20b/../c?x=1&y=#part")
    assert (target.url, target.origin) == ("https://example.com:8443/a%20b/../c?x=1&y=", "example.com:8443")
    assert parse_url("https://bücher.example").host == "xn--bcher-kva.example"


def test_a_server_must_prove_its_name_though_the_address_is_connected_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ToolRegistry.load().resolve("network_request")
    paper = ("-keyout", "key.pem", "-out", "own.pem", "-days", "2", "-subj", "/CN=shop.example")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *paper, "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "own.pem", tmp_path / "key.pem")
    with echo_server(tls) as server:
        hosts = frozenset({f"127.0.0.1:{server.port}", f"localhost:{server.port}"})
        context = ToolContext(working_dir=tmp_path, services=ToolServices(private_hosts=hosts))
        with pytest.raises(ToolError, match="certificate"):
            made(url=f"https://127.0.0.1:{server.port}/", context=context)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "own.pem"))
        assert "hello nobody" in made(url=f"https://127.0.0.1:{server.port}/", context=context)
        with pytest.raises(ToolError, match="certificate"):
            made(url=f"https://localhost:{server.port}/", context=context)
        assert len(server.seen) == 1
