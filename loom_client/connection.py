"""Connecting: a Temporal client and the store, opened together."""

import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import temporalio.service
from temporalio.client import Client
from temporalio.service import TLSConfig
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, stop_never, wait_exponential

from loom_client.client import Loom
from loom_client.server.namespace import look_up_namespace
from loom_client.server.reconnect import outages_of
from loom_client.server.runtime import ends_with_interpreter, quiet_runtime
from loom_client.settings import Settings
from loom_dsl.errors import ConfigurationError, ServerAway
from loom_store.payloads import data_converter
from loom_store.store import Store

# How a connection to the Temporal server is secured: TLS, and who we are; and what a failure to connect means.


_API_KEY = re.compile(r"[!-~]+")
"""What a header can carry; the SDK leaves any other key out without a word."""


@dataclass(frozen=True, slots=True)
class Access:
    """What `Client.connect` is given besides the address.

    Attributes:
        tls: How TLS is spoken; False: not at all.
        api_key: The key, if there is one. It is in no message and in no representation.
    """

    tls: TLSConfig | bool
    api_key: str | None

    def __repr__(self) -> str:
        """Say what is there, and nothing of what it is."""
        return f"Access(tls={bool(self.tls)}, api_key={'set' if self.api_key else None})"


def access_of(settings: Settings) -> Access:
    """Read the files that the settings name, and check them.

    TLS is on when `tls` says so, and when it says nothing but a key, a file or a server name is set.

    Raises:
        ConfigurationError: A file cannot be read or is not what it should be, or the settings contradict each other.
    """
    key = _key(settings)
    if key and not _API_KEY.fullmatch(key):
        raise ConfigurationError(
            "the API key (LOOM_API_KEY) has characters that no key has, such as a space; copy it anew"
        )
    if key and settings.tls is False:
        raise ConfigurationError(
            "LOOM_TLS is off, and an API key is never sent in the clear; unset LOOM_API_KEY or LOOM_TLS"
        )
    if not speaks_tls(settings):
        return Access(False, None)
    certificate, private_key = _client_pair(settings.tls_cert, settings.tls_key)
    config = TLSConfig(
        server_root_ca_cert=_authority(settings.tls_ca) if settings.tls_ca else None,
        domain=settings.tls_server_name or None,
        client_cert=certificate,
        client_private_key=private_key,
    )
    return Access(config, key or None)


def speaks_tls(settings: Settings) -> bool:
    """Whether the connection is to be encrypted."""
    if settings.tls is not None:
        return settings.tls
    named = (settings.tls_ca, settings.tls_cert, settings.tls_key, settings.tls_server_name)
    return any((*named, _key(settings)))


def is_final(error: BaseException) -> bool:
    """Whether trying to connect once more cannot help: the certificates, the keys or the protocol do not fit."""
    return any(mark in str(error) for mark in _FINAL)


def explain(settings: Settings, error: BaseException) -> str:
    """Say why no connection came about, and what to do."""
    text, where = str(error), f"the Temporal server at {settings.address}"
    if "NotValidForName" in text:
        names = ", ".join(re.findall(r'(?:DnsName\(\\"|IpAddress\()([^\\")]+)', text.partition("presented")[2]))
        return f"{where} has a certificate for another name ({names or 'none'}); set LOOM_TLS_SERVER_NAME to its name"
    if "UnknownIssuer" in text:
        by = f"the CA in {settings.tls_ca}" if settings.tls_ca else "a CA that this machine knows"
        return f"the certificate of {where} is not signed by {by}; set LOOM_TLS_CA to the file of the CA that signed it"
    if "InvalidCertificate" in text:
        found = re.search(r"InvalidCertificate\((\w+)", text)
        return f"the certificate of {where} is not good ({found[1] if found else 'InvalidCertificate'}); renew it there"
    if "InvalidContentType" in text:
        return f"{where} does not speak TLS; unset LOOM_TLS and what belongs to it, or correct LOOM_ADDRESS"
    if "Unauthenticated" in text or "PermissionDenied" in text or "Request unauthorized" in text:
        return f"{where} does not let us in: {_refused(settings)}"
    if "call error after connection" in text and any(mark in text for mark in _CLOSED):
        if not speaks_tls(settings):
            return (
                f"{where} ends the connection at once: it does not speak Temporal's protocol, or it wants TLS; "
                "then set LOOM_TLS=true (and LOOM_TLS_CA)"
            )
        own = "another client certificate" if settings.tls_cert else "a client certificate"
        return f"{where} ends the connection after the handshake; it may want {own} (LOOM_TLS_CERT and LOOM_TLS_KEY)"
    return (
        f"no Temporal server answers at {settings.address}; start one with `loom dev`, or set LOOM_ADDRESS (--address)"
    )


_FINAL = ("InvalidCertificate", "InvalidContentType", "PrivateKeyParseError", "InconsistentKeys", "Unauthenticated")
_CLOSED = ("transport error", "connection closed")


def _key(settings: Settings) -> str:
    return settings.api_key.get_secret_value().strip() if settings.api_key else ""


def _refused(settings: Settings) -> str:
    if _key(settings):
        return f"the API key (LOOM_API_KEY) is not valid, or not for the namespace {settings.namespace!r}"
    return f"set LOOM_API_KEY, or a client certificate that may use the namespace {settings.namespace!r}"


def _read(path: str, what: str, variable: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{what} {path} ({variable}) cannot be read: {error.strerror}") from None


def _authority(path: str) -> bytes:
    data = _read(path, "the CA file", "LOOM_TLS_CA")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=data.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise ConfigurationError(f"the CA file {path} (LOOM_TLS_CA) holds no certificate in PEM form") from None
    return data


def _client_pair(certificate: str, key: str) -> tuple[bytes | None, bytes | None]:
    if not certificate and not key:
        return None, None
    if not certificate or not key:
        there, missing = ("LOOM_TLS_CERT", "LOOM_TLS_KEY") if certificate else ("LOOM_TLS_KEY", "LOOM_TLS_CERT")
        raise ConfigurationError(f"{there} is set without {missing}; a client certificate needs both files")
    data = _read(certificate, "the client certificate", "LOOM_TLS_CERT")
    private = _read(key, "the client key", "LOOM_TLS_KEY")
    if b"ENCRYPTED" in private:
        raise ConfigurationError(
            f"the client key {key} (LOOM_TLS_KEY) is encrypted; give one without a password (openssl pkey -in … -out …)"
        )
    if b"-----BEGIN" not in private or b"PRIVATE KEY-----" not in private:
        raise ConfigurationError(f"the client key {key} (LOOM_TLS_KEY) holds no private key in PEM form")
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_cert_chain(Path(certificate).expanduser(), Path(key).expanduser())
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigurationError(
                f"the client key {key} (LOOM_TLS_KEY) does not belong to the certificate {certificate} (LOOM_TLS_CERT)"
            ) from None
        raise ConfigurationError(
            f"the client certificate {certificate} (LOOM_TLS_CERT) or its key {key} (LOOM_TLS_KEY) is not in PEM form"
        ) from None
    return data, private


_FAILURES = (RuntimeError, temporalio.service.RPCError)
_NOT_LET_IN = (temporalio.service.RPCStatusCode.PERMISSION_DENIED, temporalio.service.RPCStatusCode.UNAUTHENTICATED)


@asynccontextmanager
async def connect(settings: Settings | None = None, **overrides: Any) -> AsyncIterator[Loom]:
    """Connect to Loom.

    Args:
        settings: Where everything is; from the environment when absent.
        overrides: Single settings, such as ``address="127.0.0.1:7233"``.

    Raises:
        ConfigurationError: No server answers, or the namespace does not exist there.
        LoomError: The store cannot be used.
    """
    chosen = (settings or Settings()).model_copy(update=overrides)
    with Store.open(chosen.store_path()) as store:
        yield Loom(await temporal(chosen, store), store, chosen)


async def temporal(settings: Settings, store: Store, *, patient: bool = False) -> Client:
    """Connect to the Temporal server, trying for a few seconds.

    Args:
        settings: Where it is.
        store: Keeps what is too large for it.
        patient: Try until it answers, and tell of it; `connect_seconds` counts only where somebody has set it.

    Raises:
        ConfigurationError: No server answers, it cannot be trusted or does not let us in, or it has no such namespace.
        ServerAway: None answered although this is `patient`, in the time that was set.
    """
    access, outages = access_of(settings), outages_of(settings.address)
    endless = patient and "connect_seconds" not in settings.model_fields_set

    def goes_on(error: BaseException) -> bool:
        again = isinstance(error, _FAILURES) and not is_final(error)
        if again and patient:
            outages.begins()
        return again

    try:
        async for attempt in AsyncRetrying(
            stop=stop_never if endless else stop_after_delay(settings.connect_seconds),
            wait=wait_exponential(multiplier=0.1, max=1),
            retry=retry_if_exception(goes_on),
            reraise=True,
        ):
            with attempt:
                client = await _connected(settings, store, access)
    except _FAILURES as error:
        away = patient and not is_final(error)
        raise (ServerAway if away else ConfigurationError)(explain(settings, error)) from None
    outages.ends()
    return client


async def _connected(settings: Settings, store: Store, access: Access) -> Client:
    client = await Client.connect(
        settings.address,
        namespace=settings.namespace,
        data_converter=data_converter(store),
        tls=access.tls,
        api_key=access.api_key,
        runtime=quiet_runtime(),
    )
    await _check_namespace(ends_with_interpreter(client), settings)
    return client


async def offline(settings: Settings, store: Store) -> Client:
    """Give a client that asks no server as long as nobody asks it: for what the store alone knows."""
    client = await Client.connect(
        settings.address,
        namespace=settings.namespace,
        data_converter=data_converter(store),
        lazy=True,
        runtime=quiet_runtime(),
    )
    return ends_with_interpreter(client)


async def _check_namespace(client: Client, settings: Settings) -> None:
    try:
        await look_up_namespace(client)
    except temporalio.service.RPCError as error:
        if error.status in _NOT_LET_IN:
            raise ConfigurationError(explain(settings, RuntimeError("PermissionDenied"))) from None
        if error.status is not temporalio.service.RPCStatusCode.NOT_FOUND:
            raise
        raise ConfigurationError(
            f"the Temporal server at {client.service_client.config.target_host} has no namespace "
            f"{client.namespace!r}; create it with `temporal operator namespace create -n {client.namespace}`, "
            "or set LOOM_NAMESPACE (--namespace)"
        ) from None
