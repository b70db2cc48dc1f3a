"""Which endpoint a model's name means: ``provider:model`` and the environment.

``gpt-4.1-mini`` and ``openai:gpt-4.1-mini`` are OpenAI's, or whatever OPENAI_BASE_URL points at. Any other
prefix NAME takes NAME_BASE_URL and NAME_API_KEY, so that every OpenAI-compatible provider can be used.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from genai_prices import Usage, calc_price

from loom_dsl.agent.definition import call_name
from loom_dsl.errors import ConfigurationError

# What a model call costs, from the public price list that `genai-prices` ships.


def cost_microusd(model: str, answered_by: str, prompt: int, completion: int, cached: int) -> int:
    """Give the cost in millionths of a US dollar; 0 for a model that the list does not have."""
    for name in (answered_by, call_name(model)):
        if name and _is_priced(name):
            usage = Usage(input_tokens=prompt, output_tokens=completion, cache_read_tokens=cached)
            return round(float(calc_price(usage, model_ref=name).total_price) * 1_000_000)
    return 0


@lru_cache(maxsize=256)
def _is_priced(name: str) -> bool:
    try:
        calc_price(Usage(input_tokens=1), model_ref=name)
    except LookupError:
        return False
    return True


_BASE_URLS = {
    "openai": "https://api.openai.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "groq": "https://api.groq.com/openai/v1",
    "mistral": "https://api.mistral.ai/v1",
    "deepseek": "https://api.deepseek.com/v1",
    "together": "https://api.together.xyz/v1",
    "ollama": "http://127.0.0.1:11434/v1",
}
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """The provider that a model's name means.

    Attributes:
        provider: The provider's name, in lower case.
        model: The model's name at the provider.
        base_url: The API's base address, without a slash at its end.
        host: Its host, with the port where it names one.
    """

    provider: str
    model: str
    base_url: str
    host: str

    @property
    def prefix(self) -> str:
        """What the provider's environment variables begin with."""
        return _prefix(self.provider)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a model is, and with which credential.

    Attributes:
        model: The model's name at the provider.
        base_url: The API's base address, without a slash at its end.
        api_key: The credential; empty when none is needed.
        key_name: The environment variable of the credential.
        url_name: The environment variable of the base address.
    """

    model: str
    base_url: str
    api_key: str
    key_name: str
    url_name: str


def address(model: str, env: Mapping[str, str]) -> Address:
    """Find where a model is.

    Args:
        model: ``provider:model``, or a model's name alone.
        env: The environment variables.

    Raises:
        ConfigurationError: The provider is not known, its address is not one, or its key is missing.
    """
    place = named(model, env)
    key_name, url_name = f"{place.prefix}_API_KEY", f"{place.prefix}_BASE_URL"
    key = env.get(key_name, "").strip()
    if not key and not is_local(place.base_url):
        raise ConfigurationError(
            f"No key for the model {model!r}: set {key_name}, or set {url_name} to a model on this machine."
        )
    if not key.isascii() or not key.isprintable():
        raise ConfigurationError(f"{key_name} holds characters that a key cannot have. Copy the key again.")
    return Address(model=place.model, base_url=place.base_url, api_key=key, key_name=key_name, url_name=url_name)


def named(model: str, env: Mapping[str, str]) -> NamedModel:
    """Find which provider a model's name means, whether or not there is a key for it.

    Args:
        model: ``provider:model``, or a model's name alone.
        env: The environment variables.

    Raises:
        ConfigurationError: The provider is not known, or its address is not one.
    """
    provider, name = _split(model, env)
    prefix = _prefix(provider)
    key_name, url_name = f"{prefix}_API_KEY", f"{prefix}_BASE_URL"
    base_url = env.get(url_name, "").strip() or _BASE_URLS.get(provider, "")
    if not base_url:
        raise ConfigurationError(
            f"The model {model!r} names the provider {provider!r}, which has no address. Set {url_name} "
            f"(and {key_name}); or write openai:{model} if the colon belongs to the model's name."
        )
    _checked(base_url, url_name)
    host = urlsplit(base_url).netloc.lower()
    return NamedModel(provider=provider, model=name, base_url=base_url.rstrip("/"), host=host)


def _prefix(provider: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", provider.upper())


def is_local(base_url: str) -> bool:
    """Whether an address is on this machine."""
    return _is_local(urlsplit(base_url).hostname or "")


def _split(model: str, env: Mapping[str, str]) -> tuple[str, str]:
    prefix, colon, rest = model.partition(":")
    # "ft:gpt-4.1-mini:org::id" is the name of a fine-tuned model at OpenAI, unless there is a provider "ft".
    known = f"{prefix.upper()}_BASE_URL" in env
    if not colon or (prefix == "ft" and not known):
        provider, name = "openai", model
    else:
        provider, name = prefix.lower(), rest
    if not name.strip() or not _PREFIX.fullmatch(provider):
        raise ConfigurationError(f"{model!r} is not a model. Write `provider:model`, such as openai:gpt-4.1-mini.")
    return provider, name


def _checked(base_url: str, url_name: str) -> None:
    """Check an address, and never quote it, because it may hold a credential."""
    try:
        parts = urlsplit(base_url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host or not base_url.isprintable() or " " in base_url:
        raise ConfigurationError(f"{url_name} is not an address. Write it as https://HOST/v1.")
    if parts.username or parts.password:
        raise ConfigurationError(
            f"{url_name} holds a user or a password. Set {url_name.replace('BASE_URL', 'API_KEY')}."
        )


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
