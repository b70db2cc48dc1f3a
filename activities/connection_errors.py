"""Why an address could not be reached, in words: what connections say is about sockets, and not for people."""

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

import httpx2


@dataclass(frozen=True, slots=True)
class Unreached:
    """What is wrong with a connection.

    Attributes:
        why: What is the case, without the address.
        check: What whoever gave the address is to look at.
    """

    why: str
    check: str


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Give an error and what it came from, back to the first."""
    seen: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in seen:
        yield link
        seen.append(link)
        link = link.__cause__ or link.__context__


def unreached(error: BaseException) -> Unreached:
    """Say why no answer came."""
    return next((found for cause in causes_of(error) if (found := _known(cause))), None) or Unreached(
        f"the connection failed ({type(error).__name__})", "look whether it is up, and whether this machine reaches it"
    )


def _known(cause: BaseException) -> Unreached | None:  # noqa: PLR0911 - one for each thing that can be wrong
    match cause:
        case ssl.SSLCertVerificationError():
            check = "the name in the address, and the certificate; SSL_CERT_FILE names the file of a CA of your own"
            return Unreached(f"its certificate is not trusted: {cause.verify_message}", check)
        case ssl.SSLError():
            said = (cause.reason or "SSLError").replace("_", " ").lower()
            return Unreached(f"it does not speak TLS as it should ({said})", "the port; is it one of plain http?")
        case socket.gaierror():
            return Unreached(
                f"there is no such host: {cause.strerror}", "the name in the address, and this machine's DNS"
            )
        case ConnectionRefusedError():
            return Unreached("nothing listens there", "whether the receiver is up, and its port")
        case httpx2.ConnectTimeout():
            return Unreached("no connection in time", "whether a firewall is between, and the address")
        case TimeoutError() | httpx2.TimeoutException():
            return Unreached(
                "no answer in time", "whether the receiver answers before it works; `timeout` gives it longer"
            )
        case httpx2.RemoteProtocolError() | httpx2.ReadError() | ConnectionResetError():
            return Unreached("it ended the connection without an answer", "the port; is it one of https?")
        case OSError() if cause.strerror:
            return Unreached(cause.strerror.lower(), "the address, and this machine's network")
    return None
