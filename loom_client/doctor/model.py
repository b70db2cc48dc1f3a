"""The model's endpoint, as this shell's environment has it."""

import urllib.error
import urllib.request
from collections.abc import Mapping
from urllib.parse import urlsplit

from loom_client.doctor.check import Check, Status
from loom_dsl.errors import ConfigurationError

PROBE_SECONDS = 2.0


def model(env: Mapping[str, str]) -> Check:
    """Whether a model is configured; one on this machine is asked, others are not. No key is shown."""
    from activities.provider import address, is_local

    what = "model (as this shell has it)"
    if not env.get("OPENAI_API_KEY") and not env.get("OPENAI_BASE_URL"):
        fix = "set OPENAI_API_KEY where the worker runs; or try without: loom fake-model --script FILE"
        return Check(Status.WARN, what, "neither OPENAI_API_KEY nor OPENAI_BASE_URL is set", fix)
    try:
        where = address(env.get("OPENAI_MODEL") or "gpt-4.1-mini", env)
    except ConfigurationError as error:
        return Check(Status.FAIL, what, error.message, "correct the variable where the worker runs")
    parts = urlsplit(where.base_url)
    endpoint = f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
    key = f"{where.key_name} is set" if where.api_key else "no key is needed"
    if not is_local(where.base_url):
        return Check(Status.OK, what, f"{endpoint}, {key}; not asked, as it is not on this machine")
    problem = _unreachable(f"{where.base_url}/models", where.api_key)
    if problem:
        fix = "start it (loom fake-model --script FILE --port PORT), or correct OPENAI_BASE_URL"
        return Check(Status.FAIL, what, f"{endpoint}, {key}: {problem}", fix)
    return Check(Status.OK, what, f"{endpoint} answers, {key}")


def _unreachable(url: str, key: str) -> str:
    """Ask a model on this machine for its list of models; why that fails, or nothing."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    # A proxy of the environment must not get to see what stays on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(request, timeout=PROBE_SECONDS).close()
    except urllib.error.HTTPError as error:
        # Not every server has such a list; that it answers is enough, unless it refuses the key.
        return f"it answers {error.code}" if error.code in (401, 403) or error.code >= 500 else ""
    except (OSError, ValueError) as error:
        return f"it does not answer ({getattr(error, 'reason', error)})"
    return ""
