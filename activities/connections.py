"""Connections to addresses outside: posting, and in words why no answer came.

What connections say is about sockets, and not for people.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterator, Mapping

import httpx2


class Unreached(Exception):
    """An address gave no answer.

    Attributes:
        why: What is the case, without the address.
        check: What whoever gave the address is to look at.
        late: Whether it took too long.
    """

    def __init__(self, error: BaseException) -> None:
        other = (
            f"the connection failed ({type(error).__name__})",
            "look whether it is up, and whether this machine reaches it",
        )
        self.why, self.check = next((found for cause in causes_of(error) if (found := _known(cause))), other)
        self.late = isinstance(error, TimeoutError | httpx2.TimeoutException)
        super().__init__(self.why)


async def post(
    url: str, body: bytes, headers: Mapping[str, str], seconds: float | None = None
) -> tuple[int, Mapping[str, str]]:
    """Post to an address once; what it answers besides is not read.

    Args:
        url: The address.
        body: What is posted.
        headers: Of the request.
        seconds: How long it may take in all; None: whoever calls this sees to it.

    Returns:
        Status and headers of the answer. A redirect is an answer like others: what was signed for one address is for
        no other one.

    Raises:
        Unreached: No answer came.
    """
    limits = httpx2.Timeout(seconds, connect=seconds and 0.9 * seconds)  # so that what took so long is known
    try:
        async with (
            asyncio.timeout(seconds),  # in all: an endpoint may answer a byte at a time
            httpx2.AsyncClient(timeout=limits, follow_redirects=False) as client,
            client.stream("POST", url, content=body, headers=dict(headers)) as answer,
        ):
            return answer.status_code, answer.headers
    except (TimeoutError, httpx2.HTTPError, httpx2.InvalidURL, ssl.SSLError) as error:
        raise Unreached(error) from error


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Give an error and what it came from, back to the first."""
    seen: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in seen:
        yield link
        seen.append(link)
        link = link.__cause__ or link.__context__


def _known(cause: BaseException) -> tuple[str, str] | None:  # noqa: PLR0911 - one for each thing that can be wrong
    match cause:
        case ssl.SSLCertVerificationError():
            check = "the name in the address, and the certificate; SSL_CERT_FILE names the file of a CA of your own"
            return (f"its certificate is not trusted: {cause.verify_message}", check)
        case ssl.SSLError():
            said = (cause.reason or "SSLError").replace("_", " ").lower()
            return (f"it does not speak TLS as it should ({said})", "the port; is it one of plain http?")
        case socket.gaierror():
            return (f"there is no such host: {cause.strerror}", "the name in the address, and this machine's DNS")
        case ConnectionRefusedError():
            return ("nothing listens there", "whether the receiver is up, and its port")
        case httpx2.ConnectTimeout():
            return ("no connection in time", "whether a firewall is between, and the address")
        case TimeoutError() | httpx2.TimeoutException():
            return ("no answer in time", "whether the receiver answers before it works; `timeout` gives it longer")
        case httpx2.RemoteProtocolError() | httpx2.ReadError() | ConnectionResetError():
            return ("it ended the connection without an answer", "the port; is it one of https?")
        case OSError() if cause.strerror:
            return (cause.strerror.lower(), "the address, and this machine's network")
    return None
